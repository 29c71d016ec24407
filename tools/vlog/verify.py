"""`vlog verify`: check every value that tables point to."""

from __future__ import annotations

import os
from typing import Any

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Directory, parse_name
from lsmkv_tool.exits import open_errors
from lsmkv_tool.problems import split_place, value_problem
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import PROBLEM, FileColumn, Row, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.tables import read_tables

COLUMNS = [FileColumn("table", "table"), num("values", "values", units.count), PROBLEM]


def table_row(path: str) -> Row:
    from lsmkv.version.value_logs import ingested_log
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.table.table import Table
    from lsmkv_ext.table.verify import value_problems

    row: dict[str, Any] = {"table": path, "values": None, "problem": None}
    try:
        with open_errors(path):
            number = parse_name(os.path.basename(path))[1]
            table = Table(path, number)
            if own_log := ingested_log(table):
                table = Table(path, number, own_log=own_log)
            row["values"] = sum(use.values for use in table.meta.value_logs)
            found = next(value_problems(table), None)
    except CorruptionError as error:
        return row | {"problem": split_place(str(error), path)[0]}
    return row if found is None else row | {"problem": value_problem(*found)}


@declare("vlog verify", example="lsmkv-tool vlog verify mydb", table=True)
@path_argument("path", "DB")
def verify(out: Output, path: str) -> None:
    """Read every value that the tables point to and check it. Exits 1 on damage."""
    Directory(path)  # refuses a file
    found = read_tables([path], "verifying", table_row, lambda row: row["problem"])
    rows = [row for row in found if row["values"] != 0]
    out.rows(rows, COLUMNS, finding=any(row["problem"] for row in rows), empty="no values in value logs")

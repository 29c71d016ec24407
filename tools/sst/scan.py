"""`sst scan`: print a table's entries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from lsmkv_tool import exits, params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Row, expiry_text, present
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Table, op_name


def entry_text(row: Row) -> str:
    return "  ".join([f"{row['seq']:>10}", f"{row['op']:<12}", *present(row, "key", "value"), *expiry_text(row)])


def entry_rows(out: Output, table: Table, start: bytes | None, stop: bytes | None, damage: list[Any]) -> Iterator[Row]:
    for left, right, seq in table.range_tombstones:
        yield {"seq": seq, "op": "delete_range", "key": out.key(left), "value": out.key(right), "expires": None}
    for key, value, seq, expiry in table.salvage(start, stop, damage):
        shown = {"key": out.key(key), "value": out.value(value), "expires": units.moment(expiry)}
        yield {"seq": seq, "op": op_name(value), **shown}


@declare("sst scan", example="lsmkv-tool sst scan table.sst --limit 3", key_format=True, value_format=True)
@path_argument("file", "FILE")
@params.START
@params.STOP
@params.LIMIT
def scan(out: Output, file: str, start: bytes | None, stop: bytes | None, limit: int | None) -> None:
    """Print the range tombstones and entries of a table: sequence number, operation, key, value, expiry.

    Skips damaged blocks, reports them at the end and exits 1.
    """
    damage: list[Any] = []

    def tail() -> dict[str, Any]:
        if damage:
            out.exit = exits.FINDING
        return {"problems": [{"offset": error.offset, "problem": str(error)} for error in damage]}

    with Table(file) as table:
        out.stream(itertools.islice(entry_rows(out, table, start, stop, damage), limit), entry_text, tail)
    for problem in tail()["problems"]:
        out.note(f"lsmkv-tool: {problem['problem']}")

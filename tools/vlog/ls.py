"""`vlog ls`: list value logs."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, PROBLEM, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.vlog.summary import summarize

COLUMNS = [
    FILE,
    num("size", "size", units.size),
    num("tables", "tables", units.count),
    num("values", "values", units.count),
    num("live", "live", units.size),
    num("garbage", "garbage", units.size),
    PROBLEM,
]


@declare("vlog ls", example="lsmkv-tool vlog ls mydb", table=True)
@path_argument("path", "DB|FILE")
def ls(out: Output, path: str) -> None:
    """List value logs: the tables that point into each, and the bytes of the values that they point to.

    Values that are only in a log or a memtable so far count as garbage.
    """
    rows = summarize(path)
    out.rows(rows, COLUMNS, finding=any(row["problem"] for row in rows), empty="no value logs")

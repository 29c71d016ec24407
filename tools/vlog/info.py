"""`vlog info`: the head of a value log."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, PROBLEM, Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.vlog.summary import head, value_log_paths

COLUMNS = [
    FILE,
    num("number", "number"),
    Column("identity", "identity"),
    num("size", "size", units.size),
    PROBLEM,
]


@declare("vlog info", example="lsmkv-tool vlog info mydb", table=True)
@path_argument("path", "DB|FILE")
def info(out: Output, path: str) -> None:
    """Print the heads of value logs: number, identity, size."""
    rows = [head(file) for file in value_log_paths(path)]
    out.rows(rows, COLUMNS, finding=any(row["problem"] for row in rows), empty="no value logs")

"""`wal ls`: list logs."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.wal.summary import summarize_all

COLUMNS = [
    FILE,
    num("size", "size", units.size),
    num("records", "records", units.count, rank=2),
    num("entries", "entries", units.count),
    num("first seq", "first_seq", rank=1),
    num("last seq", "last_seq"),
    num("used", "used", units.size),
    num("known synced", "synced", units.size),
    Column("state", "verdict"),
]


@declare("wal ls", example="lsmkv-tool wal ls mydb", table=True)
@path_argument("path", "DB|FILE")
def ls(out: Output, path: str) -> None:
    """List logs: records, sequence numbers, bytes known to be synced."""
    with Progress("reading"):
        rows = summarize_all(path)
    out.rows(rows, COLUMNS, empty="no logs")

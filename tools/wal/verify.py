"""`wal verify`: check every record of a log."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, PROBLEM, Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.wal.summary import summarize_all

COLUMNS = [
    FILE,
    Column("state", "verdict"),
    num("records", "records", units.count),
    num("offset", "offset"),
    PROBLEM,
]


@declare("wal verify", example="lsmkv-tool wal verify mydb", table=True)
@path_argument("path", "DB|FILE")
def verify(out: Output, path: str) -> None:
    """Check every record. Exits 1 on damage or a torn tail, with its file and offset.

    `torn` is an append that a crash cut short; opening the database drops it. `corrupt` is damage to records
    known to be synced.
    """
    with Progress("verifying"):
        rows = summarize_all(path)
    out.rows(rows, COLUMNS, finding=any(row["verdict"] != "ok" for row in rows), empty="no logs")

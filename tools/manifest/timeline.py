"""`manifest timeline`: list flushes and compactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.reader import ManifestFile, format_time
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, Row, num, optional
from lsmkv_tool.render.output import Output

if TYPE_CHECKING:
    from lsmkv.version.edit import TreeEdit
    from lsmkv.version.manifest import TreeState

WHEN = [
    Column("time", "time", lambda time: units.clock_text(time, seconds=True)),
    optional("keyspace", "keyspace", rank=1),
    Column("reason", "reason"),
]
TOTALS = [num("tables", "files", rank=2), num("L0", "l0_files", rank=4), num("bytes", "bytes", units.size, rank=2)]
COLUMNS = [
    *WHEN,
    num("in", "in_files", rank=3),
    num("bytes in", "in_bytes", units.size),
    num("out", "out_files", rank=3),
    num("bytes out", "out_bytes", units.size),
    num("moved", "moved", rank=3),
    Column("to", "levels", lambda levels: " ".join(f"L{level}" for level in levels)),
    *TOTALS,
]


def timeline_rows(manifest: ManifestFile) -> Iterator[Row]:
    """Yield one row per keyspace that an edit changed, with the totals of that keyspace after it."""
    from lsmkv.version.manifest import ManifestState

    state = ManifestState(manifest.number)
    for record in manifest.records:
        before = state.trees
        state.apply(record.edit)
        for edit in record.edit.trees:
            if edit.added or edit.removed or edit.moved or edit.shift or edit.dropped:
                when = {"time": format_time(record.edit.time_us), "reason": record.edit.reason or None}
                yield when | change_row(edit, before.get(edit.keyspace), state.trees.get(edit.keyspace))


def change_row(edit: TreeEdit, before: TreeState | None, after: TreeState | None) -> Row:
    """Return what `edit` did to a keyspace. It did not exist before it was created, nor after it was dropped."""
    from lsmkv.version.manifest import TreeState

    named = after or before or TreeState()
    version = (after or TreeState()).version
    known = (before or TreeState()).version.places
    removed = known.keys() if edit.dropped else edit.removed
    return {
        "keyspace": named.name or None,
        "in_files": len(removed),
        "in_bytes": sum(known[number][1].size for number in removed),
        "out_files": len(edit.added),
        "out_bytes": sum(meta.size for _, meta in edit.added),
        "moved": len(edit.moved),
        "levels": sorted({level for level, _ in edit.added} | {level for _, level in edit.moved}),
        "files": sum(map(len, version.levels)),
        "bytes": version.total_bytes,
        "l0_files": len(version.levels[0]),
    }


@declare("manifest timeline", example="lsmkv-tool manifest timeline mydb --last 5", table=True)
@path_argument("path", "DB|FILE")
@click.option("--last", type=click.IntRange(min=1), help="Print only the last N rows.", metavar="N")
def timeline(out: Output, path: str, last: int | None) -> None:
    """List every flush and compaction: tables and bytes in and out, and the totals of the keyspace after it.

    Times are in UTC.
    """
    manifest = ManifestFile(path)
    rows = list(timeline_rows(manifest))
    out.rows(rows[-last:] if last else rows, COLUMNS, empty="no tables yet", finding=bool(manifest.problem()))
    manifest.report_problem(out)

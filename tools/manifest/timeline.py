"""`manifest timeline`: list flushes and compactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.reader import ManifestFile, format_time
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Column, Row, num
from lsmkv_tool.render.output import Output

if TYPE_CHECKING:
    from lsmkv.version.version import TableMeta

WHEN = [Column("time", "time"), Column("reason", "reason")]
TOTALS = [num("tables", "files"), num("L0", "l0_files"), num("bytes", "bytes", units.size)]
COLUMNS = [
    *WHEN,
    num("in", "in_files"),
    num("bytes in", "in_bytes", units.size),
    num("out", "out_files"),
    num("bytes out", "out_bytes", units.size),
    num("moved", "moved"),
    Column("to", "levels", lambda levels: " ".join(f"L{level}" for level in levels)),
    *TOTALS,
]


def timeline_rows(manifest: ManifestFile) -> Iterator[Row]:
    """Yield one row per edit that changed the tree, with the totals after it."""
    from lsmkv.version.version import Version

    version = Version()
    known: dict[int, TableMeta] = {}
    for record in manifest.records:
        edit = record.edit
        known.update({meta.number: meta for _, meta in edit.added})
        version = edit.apply(version)
        if not (edit.added or edit.removed or edit.moved or edit.shift):
            continue
        yield {
            "time": format_time(edit.time_us),
            "reason": edit.reason or None,
            "in_files": len(edit.removed),
            "in_bytes": sum(known[number].size for number in edit.removed),
            "out_files": len(edit.added),
            "out_bytes": sum(meta.size for _, meta in edit.added),
            "moved": len(edit.moved),
            "levels": sorted({level for level, _ in edit.added} | {level for _, level in edit.moved}),
            "files": sum(map(len, version.levels)),
            "bytes": version.total_bytes,
            "l0_files": len(version.levels[0]),
        }


@declare("manifest timeline", example="lsmkv-tool manifest timeline mydb --last 5")
@path_argument("path", "DB|FILE")
@click.option("--last", type=click.IntRange(min=1), help="Print only the last N rows.", metavar="N")
def timeline(out: Output, path: str, last: int | None) -> None:
    """List every flush and compaction: tables and bytes in and out, and the totals after it."""
    manifest = ManifestFile(path)
    rows = list(timeline_rows(manifest))
    out.rows(rows[-last:] if last else rows, COLUMNS, empty="no tables yet", finding=bool(manifest.problem()))
    manifest.report_problem(out)

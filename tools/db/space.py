"""`db space`: break down disk usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Entry
from lsmkv_tool.manifest.tree import Tree, load_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import num, percent, prose
from lsmkv_tool.render.output import Output

COLUMNS = [
    prose("what", "what"),
    num("files", "files"),
    num("bytes", "bytes", units.size),
    percent("share", "share", 1),
    prose("note", "note", hide_empty=True),
]
SMALL = ("current", "lock", "options", "stats", "synced")
OTHER = "other files"


def space_rows(tree: Tree) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def add(what: str, count: int, size: int, note: str | None = None) -> None:
        rows.append({"what": what, "files": count, "bytes": size, "note": note})

    def add_files(what: str, entries: Sequence[Entry], note: str | None = None) -> None:
        add(what, len(entries), sum(entry.size for entry in entries), note)

    for _, stored in sorted(tree.state.trees.items()):
        for level, files in enumerate(stored.version.levels):
            if files:
                raw, data = sum(m.raw_bytes for m in files), sum(m.data_bytes for m in files)
                what = f"{stored.name} L{level} blocks".lstrip()
                add(what, len(files), data, f"{raw / data:.2f} x smaller than raw" if data else None)
    metas = tree.all_metas
    add("indexes", len(metas), sum(meta.index_bytes for meta in metas))
    add("filters", sum(1 for meta in metas if meta.filter_bytes), sum(meta.filter_bytes for meta in metas))
    rest = sum(meta.size - meta.data_bytes - meta.index_bytes - meta.filter_bytes for meta in metas)
    add("range tombstones, properties, footers", len(metas), rest)
    add_files("value logs", tree.of_kind("value log"))
    add_files("live logs", tree.live_logs, "space is preallocated")
    add_files("reserve", tree.of_kind("reserve"), "freed when the disk is full")
    add_files("manifests", tree.of_kind("manifest"))
    add_files("small files", [entry for entry in tree.entries if entry.kind in SMALL])
    obsolete = tree.obsolete + tree.of_kind("temporary")
    add_files("obsolete files", obsolete, "removed by the next writable open" if obsolete else None)
    add_files(OTHER, tree.of_kind("other"))
    return rows


@declare("db space", example="lsmkv-tool db space mydb", table=True)
@path_argument()
def space(out: Output, db: str) -> None:
    """Break down disk usage: blocks, indexes, filters, logs, obsolete files; and what compression saves."""
    rows = space_rows(load_tree(db))
    total = sum(row["bytes"] for row in rows if row["what"] != OTHER)
    for row in rows:
        row["share"] = row["bytes"] / total if total else 0.0
    out.rows(rows, COLUMNS, total=total, after=lambda printer: printer.line(f"\ntotal {units.size(total)}"))

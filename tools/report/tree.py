"""The report's sections about keyspaces and the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsmkv_tool import keys
from lsmkv_tool.db.levels import COLUMNS as LEVEL_COLUMNS
from lsmkv_tool.manifest.levels import bits_per_key
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import fit, html, units
from lsmkv_tool.render.columns import Column, fixed, num
from lsmkv_tool.render.key_axis import KeyAxis

if TYPE_CHECKING:
    from lsmkv.version.manifest import TreeState
    from lsmkv.version.version import TableMeta

MAX_LANES = 24
MAX_KEY = 22
TICKS = (0.0, 0.36, 0.68, 1.0)

KEYSPACE_COLUMNS = [
    Column("keyspace", "name"),
    num("tables", "tables", units.count),
    num("size", "bytes", units.size),
    num("entries", "entries", units.count),
    num("deletes", "deletes", units.count, rank=3),
    num("filters", "filter_bytes", units.size, rank=2),
    fixed("bits/key", "bits_per_key", 1, rank=2),
    Column("levels", "levels", rank=2),
]
Lane = list[tuple[float, float, str]]


def keyspace_row(stored: TreeState) -> dict[str, Any]:
    metas = [meta for files in stored.version.levels for meta in files]
    return {
        "name": stored.name or "(default)",
        "tables": len(metas),
        "bytes": sum(meta.size for meta in metas),
        "entries": sum(meta.entries for meta in metas),
        "deletes": sum(meta.deletes for meta in metas),
        "filter_bytes": sum(meta.filter_bytes for meta in metas),
        "bits_per_key": bits_per_key(metas),
        "levels": " ".join(f"L{level}" for level, files in enumerate(stored.version.levels) if files) or "-",
    }


def keyspace_section(tree: Tree) -> str:
    rows = [keyspace_row(stored) for _, stored in sorted(tree.state.trees.items())]
    return html.section("Keyspaces", html.table(KEYSPACE_COLUMNS, rows)) if len(rows) > 1 else ""


def lanes(files: Sequence[TableMeta], axis: KeyAxis) -> list[Lane]:
    """Arrange the files as bars, in as many lanes as overlap."""
    out: list[Lane] = []
    for meta in sorted(files, key=lambda meta: meta.smallest):
        title = (
            f"{meta.number:06d}.sst: {units.size(meta.size)}, {units.count(meta.entries)} entries, "
            f"{short(meta.smallest)} to {short(meta.largest)}"
        )
        bar = (axis(meta.smallest), axis(meta.largest), title)
        for lane in out:
            if lane[-1][1] <= bar[0]:
                lane.append(bar)
                break
        else:
            out.append([bar])
    return out


def short(key: bytes) -> str:
    return fit.shorten(keys.quote(key), MAX_KEY)


def ticks(tree: Tree, axis: KeyAxis) -> list[tuple[float, str]]:
    """Return the first and the last key, and of the bounds of tables those next to a third and two thirds."""
    bounds = sorted({key for meta in tree.metas for key in (meta.smallest, meta.largest)})
    places = {axis(key): key for key in bounds}
    inner = [min(places, key=lambda at: abs(at - wanted)) for wanted in TICKS[1:-1]]
    kept = [at for at, wanted in zip(inner, TICKS[1:-1], strict=True) if abs(at - wanted) < 0.12]
    found = [(at, short(places[at])) for at in sorted({*kept} - {0.0, 1.0})]
    return [(0.0, short(bounds[0])), *found, *([(1.0, short(bounds[-1]))] if len(bounds) > 1 else [])]


def tree_section(tree: Tree, rows: list[dict[str, Any]], title: str) -> str:
    if not rows:
        return html.section(title, html.note("No tables yet."))
    axis = tree.key_axis()
    drawn, omitted = [], 0
    for row in rows:
        all_lanes = lanes(tree.levels[row["level"]], axis)
        omitted += max(0, len(all_lanes) - MAX_LANES)
        note = f"{units.counted(row['files'], 'table')}, {units.size(row['bytes'])}"
        drawn.append({"label": f"L{row['level']}", "note": note, "lanes": all_lanes[:MAX_LANES]})
    text = (
        "Each bar is a table, from its first key to its last. Lookups ask each level from the top down; `wasted reads` "
        "is how many tables a level reads for an absent key."
    )
    text += f" {omitted} more rows of overlapping tables are not drawn." if omitted else ""
    return html.section(title, html.tree(drawn, ticks(tree, axis)), html.note(text), html.table(LEVEL_COLUMNS, rows))

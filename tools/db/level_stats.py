"""The level table of `db stats`, `top` and `report`, from a database's statistics."""

from __future__ import annotations

from typing import Any

from lsmkv_tool.render import units
from lsmkv_tool.render.columns import LEVEL, num, percent

COLUMNS = [
    LEVEL,
    num("files", "files"),
    num("size", "bytes", units.size),
    num("entries", "entries", units.count, rank=3),
    num("filters", "filter_bytes", units.size, rank=1),
    percent("fill", "fill", 1, rank=4),
    num("lookups", "lookups", units.count),
    percent("skipped", "useful", 1),
    percent("FPR", "observed_fpr", 3),
    percent("designed", "designed_fpr", 3),
    num("debt", "debt", rank=2),
]


def level_rows(stats: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per level that has files or lookups."""
    shown = [level for level in stats["levels"] if level["files"] or level["filter"]["lookups"]]
    return [
        {
            "level": level["level"],
            "files": level["files"],
            "bytes": level["bytes"],
            "entries": level["entries"],
            "filter_bytes": filters["memory_bytes"],
            "fill": filters["fill_ratio"],
            "lookups": filters["lookups"],
            "useful": filters["useful_ratio"],
            "observed_fpr": filters["observed_fpr"],
            "designed_fpr": filters["designed_fpr"],
            "debt": filters["debt_tables"],
        }
        for level, filters in ((level, level["filter"]) for level in shown)
    ]

"""The table of levels that `top`, `db stats` and `report` share, from exported figures."""

from __future__ import annotations

from typing import Any

from lsmkv_tool.render import units
from lsmkv_tool.render.output import num

COLUMNS = [
    num("level", "level", lambda level: f"L{level}"),
    num("files", "files"),
    num("size", "bytes", units.size),
    num("entries", "entries", units.count),
    num("filters", "filter_bytes", units.size),
    num("fill", "fill", lambda x: units.percent(x, 1)),
    num("lookups", "lookups", units.count),
    num("skipped", "useful", lambda x: units.percent(x, 1)),
    num("FPR", "observed_fpr", lambda x: units.percent(x, 3)),
    num("designed", "designed_fpr", lambda x: units.percent(x, 3)),
    num("debt", "debt"),
]


def rows(stats: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per level that holds files or was asked."""
    out = []
    for level in stats["levels"]:
        found = level["filter"]
        if not level["files"] and not found["lookups"]:
            continue
        out.append(
            {
                "level": level["level"],
                "files": level["files"],
                "bytes": level["bytes"],
                "entries": level["entries"],
                "filter_bytes": found["memory_bytes"],
                "fill": found["fill_ratio"],
                "lookups": found["lookups"],
                "useful": found["useful_ratio"],
                "observed_fpr": found["observed_fpr"],
                "designed_fpr": found["designed_fpr"],
                "debt": found["debt_tables"],
            }
        )
    return out

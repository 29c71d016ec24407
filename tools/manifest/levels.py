"""Totals and expected filter performance per level, computed from table metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lsmkv_tool.manifest.tree import Tree

if TYPE_CHECKING:
    from lsmkv.version.version import TableMeta


def sum_metas(files: Iterable[TableMeta]) -> dict[str, int]:
    files = list(files)
    return {
        "entries": sum(meta.entries for meta in files),
        "deletes": sum(meta.deletes for meta in files),
        "range_tombstones": sum(meta.range_tombstones for meta in files),
        "index_bytes": sum(meta.index_bytes for meta in files),
        "filter_bytes": sum(meta.filter_bytes for meta in files),
    }


def bits_per_key(files: Iterable[TableMeta]) -> float | None:
    filtered = [meta for meta in files if meta.filter_keys]
    keys = sum(meta.filter_keys for meta in filtered)
    return sum(meta.filter_bytes for meta in filtered) * 8 / keys if keys else None


def expected_fpr(meta: TableMeta) -> float:
    """Return the expected false positive rate of a table's filter, 1 without a filter."""
    from lsmkv_ext.filter.curve import fpr_for

    if not meta.filter_bytes or not meta.k:
        return 1.0
    if meta.filter_kind != 1:
        return 2.0**-meta.k
    return float(fpr_for(meta.filter_keys, meta.filter_bytes // 64, meta.k))


def mean_fpr(level: int, files: Sequence[TableMeta], rates: Sequence[float]) -> float:
    """Average the rates over the tables that a lookup probes.

    A lookup probes every table of L0. Deeper, it probes the one table whose range holds the key, so tables
    count by their entries.
    """
    if level == 0:
        return sum(rates) / len(rates)
    entries = sum(meta.entries for meta in files)
    weighted = sum(rate * meta.entries for rate, meta in zip(rates, files, strict=True))
    return weighted / entries if entries else 0.0


def wasted_reads(level: int, files: Sequence[TableMeta]) -> float:
    """Return the expected table reads in this level per lookup of an absent key."""
    rate = mean_fpr(level, files, [expected_fpr(meta) for meta in files])
    return rate * len(files) if level == 0 else rate


def level_rows(tree: Tree) -> list[dict[str, Any]]:
    """Return one row per level that has tables."""
    axis = tree.key_axis()
    return [
        {
            "level": level,
            "files": len(files),
            "bytes": sum(meta.size for meta in files),
            **sum_metas(files),
            "raw_bytes": sum(meta.raw_bytes for meta in files),
            "data_bytes": sum(meta.data_bytes for meta in files),
            "bits_per_key": bits_per_key(files),
            "expected_wasted_reads": wasted_reads(level, files),
            "spans": [
                {"number": meta.number, "start": axis(meta.smallest), "stop": axis(meta.largest)} for meta in files
            ],
        }
        for level, files in enumerate(tree.levels)
        if files
    ]

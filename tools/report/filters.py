"""The report's sections about filters: what they save, their false positive rates, and the tables that stand out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lsmkv_tool.db import level_stats, stats_export
from lsmkv_tool.filter.advise import COLUMNS as ADVICE_COLUMNS
from lsmkv_tool.filter.advise import propose, reasons, stored_kinds
from lsmkv_tool.filter.fpr import measure
from lsmkv_tool.filter.tables import TableRef
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Column, fixed, num
from lsmkv_tool.render.columns import percent as percent_column
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import filter_state

PROBES = 200_000
MAX_MEASURED = 64
MAX_OUTLIERS = 6
MAX_MAP_BLOCKS = 64 * 64

KIND_COLUMNS = [
    Column("level", "level"),
    Column("kind", "kind"),
    num("tables", "tables", units.count, rank=1),
    num("keys", "keys", units.count),
    num("memory", "bytes", units.size, rank=1),
    fixed("bits/key", "bits_per_key", 2, rank=1),
    percent_column("expected FPR", "expected_fpr", 3),
    percent_column("measured", "measured_fpr", 3),
    percent_column("observed", "observed_fpr", 3),
]


def measured_tables(tree: Tree) -> Iterator[dict[str, Any]]:
    """Yield fill and measured rate of the tables with the largest filters, by level and key."""
    chosen = sorted(tree.files, key=lambda item: -item[1].filter_bytes)[:MAX_MEASURED]
    refs = [
        TableRef(tree.path(meta), level, meta)
        for level, meta in sorted(chosen, key=lambda item: (item[0], item[1].smallest))
    ]
    with Progress("measuring filters", len(refs)) as progress:
        for ref in progress.over(refs):
            with ref.open() as table:
                found, fills = table.filter, table.fills(MAX_MAP_BLOCKS)
            yield {"filter": found, "fills": fills, **measure(ref, PROBES, 1)}


def mean(rows: list[dict[str, Any]], name: str) -> float | None:
    """Return the mean of a rate, weighted by keys."""
    keys = sum(row["filter"]["keys"] for row in rows)
    return sum(row[name] * row["filter"]["keys"] for row in rows) / keys if keys else None


def kind_rows(tables: list[dict[str, Any]], observed: dict[int, float]) -> list[dict[str, Any]]:
    """Return a row for each level and kind of filter."""
    out = []
    for level, kind in sorted({(row["level"], row["filter"]["kind"]) for row in tables}):
        rows = [row for row in tables if (row["level"], row["filter"]["kind"]) == (level, kind)]
        usable = [row for row in rows if row["measured_fpr"] is not None]
        keys, size = (sum(row["filter"][name] or 0 for row in rows) for name in ("keys", "bytes"))
        out.append(
            {
                "level": f"L{level}",
                "kind": kind,
                "tables": len(rows),
                "keys": keys,
                "bytes": size,
                "bits_per_key": size * 8 / keys if keys else None,
                "expected_fpr": mean(usable, "expected_fpr"),
                "measured_fpr": mean(usable, "measured_fpr"),
                "observed_fpr": observed.get(level),
            }
        )
    return out


def filter_section(tree: Tree, tables: list[dict[str, Any]], observed: dict[int, float]) -> str:
    rows = kind_rows(tables, observed)
    if not any(row["measured_fpr"] is not None for row in rows):
        return html.section("Filters", *damaged(tables), html.note("No table has a usable filter."))
    drawn: list[tuple[str, list[html.Bar]]] = []
    for row in rows:
        rates = (("expected", "grey"), ("measured", "blue"), ("observed", "green"))
        bars = [(row[f"{name}_fpr"], colour, units.percent(row[f"{name}_fpr"], 3)) for name, colour in rates]
        drawn.append((f"{row['level']} {row['kind']}", [bar for bar in bars if bar[0] is not None]))
    legend = html.legend(
        ("grey", "expected from bits per key"),
        ("blue", f"measured with {PROBES:,} random absent keys a table"),
        ("green", "observed by lookups"),
    )
    total = len(tree.metas)
    some = html.note(f"Of the {len(tables)} largest of {total} filters.") if len(tables) < total else ""
    return html.section(
        "Filters", *damaged(tables), html.bars(drawn), legend, some, html.table(KIND_COLUMNS, rows), *outliers(tables)
    )


def outliers(tables: list[dict[str, Any]]) -> list[str]:
    """Draw the filters that need a look; if there are none, say so, and draw one as an example."""
    usable = [row for row in tables if row["fills"]]
    if not usable:
        return []
    worse = [row for row in usable if row["verdict"] == "worse" or max(row["fills"]) > 0.75]
    shown = sorted(worse, key=lambda row: -row["measured_fpr"] / row["expected_fpr"])[:MAX_OUTLIERS]
    if worse:
        text = f"{len(worse)} of {len(usable)} filters have crowded blocks, or more false positives than expected."
    else:
        shown = [max(usable, key=lambda row: row["filter"]["bytes"])]
        text = f"Of {units.counted(len(usable), 'filter')}, none stands out. This is the largest one."
    maps = [html.heat_picture(row["fills"], f"L{row['level']} {row['file']}", caption(row)) for row in shown]
    cell = "A cell is a 512-bit block, or the mean of several. A bright cell is crowded."
    return [html.heading("Heat"), html.note(f"{text} {cell}"), html.maps(maps), html.heat_scale()]


def caption(row: dict[str, Any]) -> str:
    found = row["filter"]
    return f"{found['kind']}, {row['bits_per_key']:.1f} bits/key, {units.percent(found['fill'], 1)} full"


def damaged(tables: list[dict[str, Any]]) -> list[str]:
    names = [row["file"] for row in tables if filter_state(row["filter"]) == "damaged"]
    return [html.alarm(f'The filter of {name} is damaged: it answers "maybe" for every key.') for name in names]


def advice_section(tree: Tree, absent: float, measured: bool) -> str:
    if not tree.filter_bytes:
        return ""
    found = propose(tree, absent, tree.filter_bytes, stored_kinds(tree))
    share = f"{units.percent(absent, 0)} of lookups are for absent keys ({'measured' if measured else 'assumed'})"
    return html.section(
        "Best split of the filter memory",
        html.table(ADVICE_COLUMNS, found["rows"]),
        html.note(f"With the same memory, if {share}."),
        *[html.note(reason) for reason in reasons(found)],
    )


def saved_section(sample: stats_export.Sample | None) -> str:
    if sample is None:
        text = "No statistics: a running database exports them if it was opened with stats_export=True."
        return html.section("Reads saved by filters", html.note(text))
    filters, reads = sample.stats["total"]["filter"], sample.stats["reads"]
    lines = [
        ("filter checks", filters["checks"], "grey"),
        ("tables skipped", filters["negatives"], "green"),
        ("keys found", filters["true_positives"], "blue"),
        ("false positives", filters["false_positives"], "red"),
    ]
    text = (
        f"{units.count(reads['gets'])} lookups since process {sample.pid} opened the database. Filters of "
        f"{units.size(filters['memory_bytes'])} skipped {units.size(filters['bytes_skipped'])} of blocks, "
        f"{units.size(filters['bytes_skipped_disk'])} of these on disk, and saved "
        f"{units.duration(filters['seconds_saved'] * 1e9)} of reads."
    )
    bars = html.bars([(label, [(value, colour, units.count(value))]) for label, value, colour in lines])
    levels = html.table(level_stats.COLUMNS, level_stats.level_rows(sample.stats))
    return html.section("Reads saved by filters", bars, html.note(text), levels)

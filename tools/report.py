"""`report`: write an HTML page about a database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import level_stats, stats_export
from lsmkv_tool.db.info import totals
from lsmkv_tool.db.levels import COLUMNS as LEVEL_COLUMNS
from lsmkv_tool.directory import refuse_existing
from lsmkv_tool.exits import open_errors
from lsmkv_tool.filter.advise import COLUMNS as ADVICE_COLUMNS
from lsmkv_tool.filter.advise import propose, reasons, stored_kinds
from lsmkv_tool.filter.fpr import measure
from lsmkv_tool.filter.tables import TableRef
from lsmkv_tool.manifest.levels import level_rows
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.manifest.timeline import TOTALS, WHEN, timeline_rows
from lsmkv_tool.manifest.tree import Tree, with_tree
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Row
from lsmkv_tool.render.key_axis import KeyAxis
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.sst.table import filter_state

if TYPE_CHECKING:
    from lsmkv.version.version import TableMeta

PROBES = 300_000
MAX_LANES = 24
MAX_MAPS = 24
MAX_MAP_BLOCKS = 64 * 64
MAX_HISTORY = 40

Bar = tuple[float, float, str]


# Tree -----------------------------------------------------------------------------------------------------


def lanes(files: Sequence[TableMeta], axis: KeyAxis) -> list[list[Bar]]:
    """Arrange the files as bars, in as many lanes as overlap."""
    out: list[list[Bar]] = []
    for meta in sorted(files, key=lambda meta: meta.smallest):
        title = f"{meta.number:06d}.sst: {units.size(meta.size)}, {units.count(meta.entries)} entries"
        bar = (axis(meta.smallest), axis(meta.largest), title)
        for lane in out:
            if lane[-1][1] <= bar[0]:
                lane.append(bar)
                break
        else:
            out.append([bar])
    return out


def tree_section(tree: Tree, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return html.section("Tree", html.note("No tables yet."))
    axis = tree.key_axis()
    drawn = [
        {
            "label": f"L{row['level']}",
            "note": f"{row['files']} files, {units.size(row['bytes'])}",
            "lanes": lanes(tree.levels[row["level"]], axis)[:MAX_LANES],
        }
        for row in rows
    ]
    text = "Each bar is a table. It spans the table's key range, from the first key (left) to the last (right)."
    return html.section("Tree", html.tree(drawn), html.note(text), html.table(LEVEL_COLUMNS, rows))


# Filters --------------------------------------------------------------------------------------------------


def measured_tables(tree: Tree) -> Iterator[dict[str, Any]]:
    """Yield fill and measured rate of the tables with the largest filters, by level and key."""
    chosen = sorted(tree.files, key=lambda item: -item[1].filter_bytes)[:MAX_MAPS]
    refs = [
        TableRef(tree.path(meta), level, meta)
        for level, meta in sorted(chosen, key=lambda item: (item[0], item[1].smallest))
    ]
    with Progress("measuring filters", len(refs)) as progress:
        for ref in progress.over(refs):
            with ref.open() as table:
                found, fills = table.filter, table.fills(MAX_MAP_BLOCKS)
            yield {"filter": found, "fills": fills, **measure(ref, PROBES, 1)}


def fpr_section(tables: list[dict[str, Any]], observed: dict[int, float]) -> str:
    bars = []
    for level in sorted({row["level"] for row in tables}):
        usable = [row for row in tables if row["level"] == level and row["measured_fpr"] is not None]
        if not usable:
            continue
        keys = sum(row["filter"]["keys"] for row in usable) or 1
        expected, measured = (
            sum(row[name] * row["filter"]["keys"] for row in usable) / keys for name in ("expected_fpr", "measured_fpr")
        )
        group = [
            (expected, html.GREY, f"expected {units.percent(expected, 3)}"),
            (measured, html.BLUE, f"measured {units.percent(measured, 3)}"),
        ]
        if level in observed:
            group.append((observed[level], html.GREEN, f"observed {units.percent(observed[level], 3)}"))
        bars.append((f"L{level}", group))
    if not bars:
        return html.section("False positive rate", html.note("No table has a usable filter."))
    text = (
        f"Expected: computed from bits per key and k. Measured: {PROBES:,} random absent keys per table. Observed: "
        "lookups in the running database, if it exports statistics (stats_export=True)."
    )
    return html.section("False positive rate", html.bars(bars), html.note(text))


def heat_section(tables: list[dict[str, Any]]) -> str:
    maps = [
        html.heat_picture(
            row["fills"],
            f"L{row['level']} {row['file']}",
            f"{row['bits_per_key']:.1f} bits/key, {units.percent(row['filter']['fill'], 1)} full",
        )
        for row in tables
        if row["fills"]
    ]
    damaged = [row["file"] for row in tables if filter_state(row["filter"]) == "damaged"]
    alarms = [html.alarm(f'The filter of {name} is damaged: it answers "maybe" for every key.') for name in damaged]
    if not maps:
        return html.section("Filter heat", *alarms, html.note("No table has a usable filter."))
    text = "A cell is one 512-bit block, or the mean of several. A healthy filter is even; a bright cell is crowded."
    return html.section("Filter heat", *alarms, html.maps(maps), html.note(text), html.heat_scale())


def advice_section(tree: Tree, absent: float) -> str:
    if not tree.filter_bytes:
        return ""
    found = propose(tree, absent, tree.filter_bytes, stored_kinds(tree))
    text = f"With the same memory, if {units.percent(absent, 0)} of lookups are for absent keys."
    return html.section(
        "Best split of the filter memory",
        html.table(ADVICE_COLUMNS, found["rows"]),
        html.note(text),
        *[html.note(reason) for reason in reasons(found)],
    )


# Statistics of the running database -----------------------------------------------------------------------


def saved_section(sample: stats_export.Sample | None) -> str:
    if sample is None:
        text = "No statistics: a running database exports them if it was opened with stats_export=True."
        return html.section("I/O saved", html.note(text))
    filters, reads = sample.stats["total"]["filter"], sample.stats["reads"]
    lines = [
        ("filter checks", filters["checks"], html.GREY),
        ("tables skipped", filters["negatives"], html.GREEN),
        ("keys found", filters["true_positives"], html.BLUE),
        ("false positives", filters["false_positives"], html.RED),
    ]
    text = (
        f"{units.count(reads['gets'])} lookups since process {sample.pid} opened the database. Filters of "
        f"{units.size(filters['memory_bytes'])} skipped {units.size(filters['bytes_skipped'])} of blocks, "
        f"{units.size(filters['bytes_skipped_disk'])} of these on disk, and saved "
        f"{filters['seconds_saved']:.2f} s of reads."
    )
    alarms = [html.alarm(alarm["message"]) for alarm in sample.stats["alarms"]]
    bars = html.bars([(label, [(value, colour, units.count(value))]) for label, value, colour in lines])
    levels = html.table(level_stats.COLUMNS, level_stats.level_rows(sample.stats))
    return html.section("I/O saved", *alarms, bars, html.note(text), levels)


# History --------------------------------------------------------------------------------------------------


def history_section(rows: list[Row]) -> str:
    if not rows:
        return html.section("Flushes and compactions", html.note("None yet."))
    shown = rows[-MAX_HISTORY:]
    bars = []
    for row in shown:
        label = f"{(row['time'] or '')[11:19]} {row['reason'] or ''}"[:28]
        done = f"wrote {units.size(row['out_bytes'])}" if row["out_files"] else f"moved {row['moved']} tables"
        group = [(row["out_bytes"], html.BLUE, done)]
        if row["in_bytes"]:
            group.insert(0, (row["in_bytes"], html.LIGHT, f"read {units.size(row['in_bytes'])}"))
        bars.append((label, group))
    omitted = len(rows) - len(shown)
    text = f"Since the start of this manifest; times in UTC.{f' {omitted} earlier ones omitted.' if omitted else ''}"
    last = html.table([*WHEN, *TOTALS], shown[-8:])
    return html.section("Flushes and compactions", html.bars(bars), html.note(text), last)


# Page -----------------------------------------------------------------------------------------------------


def tiles(tree: Tree, levels: list[dict[str, Any]], sample: stats_export.Sample | None) -> str:
    total = totals(tree)
    wasted = sum(row["expected_wasted_reads"] for row in levels)
    parts = [
        (units.count(total["entries"]), "entries in tables"),
        (units.size(total["table_bytes"]), f"in {total['tables']} tables"),
        (units.size(total["filter_bytes"]), "of filters"),
        (f"{wasted:.3f}", "wasted reads per absent key"),
    ]
    if sample is not None:
        parts.append((units.ratio(sample.stats["compaction"]["write_amplification"]), "write amplification"))
        parts.append((units.percent(sample.stats["cache"]["hit_ratio"], 1), "cache hits"))
    return "".join(html.tile(value, name) for value, name in parts)


def build_page(db: str, keyspace: str) -> str:
    from importlib.metadata import version

    tree, tables = with_tree(db, lambda tree: (tree, list(measured_tables(tree))), keyspace)
    levels = level_rows(tree)
    sample = stats_export.read_sample(db, keyspace)
    absent = stats_export.absent_share(db, keyspace)
    sections = [
        tree_section(tree, levels),
        saved_section(sample),
        fpr_section(tables, stats_export.observed_fpr(db, keyspace)),
        heat_section(tables),
        advice_section(tree, 1.0 if absent is None else absent),
        history_section([row for row in timeline_rows(ManifestFile(db)) if (row["keyspace"] or "") == keyspace]),
    ]
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return html.page(
        name=escape(Path(os.path.abspath(db)).name),
        subtitle=escape(f"{db}{f', keyspace {keyspace}' if keyspace else ''}, {made}"),
        tiles=tiles(tree, levels, sample),
        sections="".join(sections),
        version=escape(version("lsmkv")),
    )


@declare("report", example="lsmkv-tool report mydb -o report.html")
@path_argument()
@click.option("-o", "--output", "target", type=click.Path(), required=True, help="HTML file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@params.KEYSPACE
def report(out: Output, db: str, target: str, force: bool, keyspace: str) -> None:
    """Write a self-contained HTML page about DB: tree, filter heat, false positive rates, saved I/O, history.

    It is about one keyspace.
    """
    if not force:
        refuse_existing(target, "overwrite it with --force")
    text = build_page(db, keyspace)
    with open_errors(target), open(target, "w", encoding="utf-8") as file:
        file.write(text)
    size = len(text.encode())
    out.result({"file": target, "bytes": size}, lambda printer: printer.line(f"{target}: {units.size(size)}"))

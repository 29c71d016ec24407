"""`report`: one HTML page with the tree, the filters, what they save, and how the tree came to be."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import level_stats as top_levels
from lsmkv_tool.db import stats_export as live
from lsmkv_tool.db.info import LEVELS, totals
from lsmkv_tool.exits import CannotOpen, opening
from lsmkv_tool.filter.advise import ADVICE, proposal, reasons
from lsmkv_tool.filter.fpr import measure, state_of
from lsmkv_tool.filter.tables import Place
from lsmkv_tool.manifest.reader import TIMELINE, Reading, timeline_rows
from lsmkv_tool.manifest.tree import Tree, level_rows, steady
from lsmkv_tool.render import html as page
from lsmkv_tool.render import units
from lsmkv_tool.render.key_axis import KeySpace
from lsmkv_tool.render.output import Output, num
from lsmkv_tool.render.progress import Progress

PROBES = 300_000
MAX_MAPS = 24
MAX_HISTORY = 40


# The tree -------------------------------------------------------------------------------------------------


def lanes(files: Any, space: KeySpace) -> list[list[tuple[float, float, str]]]:
    """Files as bars; those that overlap go into lanes of their own."""
    out: list[list[tuple[float, float, str]]] = []
    for meta in sorted(files, key=lambda meta: meta.smallest):
        start, stop = space(meta.smallest), space(meta.largest)
        bar = (
            start,
            stop,
            f"{meta.number:06d}.sst: {units.size(meta.size)}, {units.count(meta.entries)} entries",
        )
        for lane in out:
            if lane[-1][1] <= start:
                lane.append(bar)
                break
        else:
            out.append([bar])
    return out


def tree_section(tree: Tree, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return page.section("The tree", page.note("No tables yet."))
    space = tree.bounds()
    drawn = [
        {
            "label": f"L{row['level']}",
            "note": f"{row['files']} files, {units.size(row['bytes'])}",
            "lanes": lanes(tree.levels[row["level"]], space)[:24],
        }
        for row in rows
    ]
    text = "Each bar is a table, drawn over its key range from the first key (left) to the last (right)."
    return page.section("The tree", page.tree(drawn), page.note(text), page.table(LEVELS, rows))


# Filters --------------------------------------------------------------------------------------------------


def looked_at(tree: Tree) -> Iterator[dict[str, Any]]:
    """The tables with the largest filters of each level: heat, and a measured rate."""
    chosen = sorted(tree.files, key=lambda item: -item[1].filter_bytes)[:MAX_MAPS]
    with Progress("measuring filters", len(chosen)) as progress:
        for level, meta in sorted(chosen, key=lambda item: (item[0], item[1].smallest)):
            place = Place(tree.path(meta), level, meta)
            with place.opened() as table:
                found, fills = table.filter, table.fills(64 * 64)
            progress.step(1, place.path)
            yield {"level": level, "filter": found, "fills": fills, **measure(place, PROBES, 1)}


def rate_section(tables: list[dict[str, Any]], observed: dict[int, float]) -> str:
    bars = []
    for level in sorted({row["level"] for row in tables}):
        healthy = [row for row in tables if row["level"] == level and row["measured_fpr"] is not None]
        if not healthy:
            continue
        keys = sum(row["filter"]["keys"] for row in healthy) or 1
        expected, measured = (
            sum(row[name] * row["filter"]["keys"] for row in healthy) / keys
            for name in ("expected_fpr", "measured_fpr")
        )
        group = [
            (expected, page.GREY, f"expected {units.percent(expected, 3)}"),
            (measured, page.BLUE, f"measured {units.percent(measured, 3)}"),
        ]
        if level in observed:
            group.append((observed[level], page.GREEN, f"observed {units.percent(observed[level], 3)}"))
        bars.append((f"L{level}", group))
    if not bars:
        return page.section("False positive rate", page.note("No table has a usable filter."))
    text = (
        f"Expected by bits and k; measured with {PROBES:,} random absent keys per table; observed by "
        "the lookups of the running database where its owner exports them (stats_export=True)."
    )
    return page.section("False positive rate", page.bars(bars), page.note(text))


def heat_section(tables: list[dict[str, Any]]) -> str:
    maps = [
        page.heat_map(
            row["fills"],
            f"L{row['level']} {row['file']}",
            f"{row['bits_per_key']:.1f} bits/key, {units.percent(row['filter']['fill'], 1)} full",
        )
        for row in tables
        if row["fills"]
    ]
    damaged = [row["file"] for row in tables if state_of(row["filter"]) == "damaged"]
    parts = [
        page.alarm(f"The filter of {name} is damaged: it answers maybe to every key.") for name in damaged
    ]
    if not maps:
        return page.section("Filter heat", *parts, page.note("No table has a usable filter."))
    text = "One cell per 512-bit block (or run of blocks). Even is healthy; a bright cell is a crowded block."
    return page.section("Filter heat", *parts, page.maps(maps), page.note(text), page.heat_scale())


def advice_section(tree: Tree, absent: float) -> str:
    budget = sum(meta.filter_bytes for _, meta in tree.files)
    if not budget:
        return ""
    found = proposal(tree, absent, budget)
    text = f"At the same memory, for {units.percent(absent, 0)} of lookups asking for absent keys."
    return page.section(
        "A better split of the filters' memory",
        page.table(ADVICE, found["rows"]),
        page.note(text),
        *[page.note(reason) for reason in reasons(found)],
    )


# What a running owner says --------------------------------------------------------------------------------


def saved_section(found: live.Sample | None) -> str:
    if found is None:
        text = "No figures: they are counted by a running database and exported when it is opened with "
        return page.section("I/O saved", page.note(text + "stats_export=True."))
    filters, reads = found.stats["total"]["filter"], found.stats["reads"]
    lines = [
        ("asked of filters", filters["checks"], page.GREY, units.count(filters["checks"])),
        ("tables skipped", filters["negatives"], page.GREEN, units.count(filters["negatives"])),
        ("found", filters["true_positives"], page.BLUE, units.count(filters["true_positives"])),
        ("wasted read", filters["false_positives"], page.RED, units.count(filters["false_positives"])),
    ]
    text = (
        f"Since process {found.pid} opened it: {units.count(reads['gets'])} lookups. Skipped blocks amount "
        f"to {units.size(filters['bytes_skipped'])}, of which {units.size(filters['bytes_skipped_disk'])} "
        f"would have come from the disk; {filters['seconds_saved']:.2f} s of reading saved for "
        f"{units.size(filters['memory_bytes'])} of memory."
    )
    alarms = [page.alarm(alarm["message"]) for alarm in found.stats["alarms"]]
    bars = page.bars([(label, [(value, colour, words)]) for label, value, colour, words in lines])
    levels = page.table(top_levels.COLUMNS, top_levels.rows(found.stats))
    return page.section("I/O saved", *alarms, bars, page.note(text), levels)


# History --------------------------------------------------------------------------------------------------


def history_section(rows: list[Any]) -> str:
    if not rows:
        return page.section("Flushes and compactions", page.note("No table was ever written."))
    shown = rows[-MAX_HISTORY:]
    bars = []
    for row in shown:
        label = f"{(row['time'] or '')[11:19]} {row['reason'] or ''}"[:28]
        done = f"wrote {units.size(row['out_bytes'])}" if row["out_files"] else f"moved {row['moved']} tables"
        group = [(row["out_bytes"], page.BLUE, done)]
        if row["in_bytes"]:
            group.insert(0, (row["in_bytes"], page.LIGHT, f"read {units.size(row['in_bytes'])}"))
        bars.append((label, group))
    left_out = len(rows) - len(shown)
    text = (
        f"Since this manifest began; times in UTC.{f' {left_out} earlier ones left out.' if left_out else ''}"
    )
    growth = [num("tables", "files"), num("L0", "l0_files"), num("bytes", "bytes", units.size)]
    last = page.table([*TIMELINE[:2], *growth], shown[-8:])
    return page.section("Flushes and compactions", page.bars(bars), page.note(text), last)


# The page -------------------------------------------------------------------------------------------------


def tiles(tree: Tree, found: live.Sample | None) -> str:
    total = totals(tree)
    parts = [
        (units.count(total["entries"]), "entries in tables"),
        (units.size(total["table_bytes"]), f"in {total['tables']} tables"),
        (units.size(total["filter_bytes"]), "of filters"),
        (
            f"{sum(row['expected_wasted_reads'] for row in level_rows(tree)):.3f}",
            "wasted reads per absent key",
        ),
    ]
    if found is not None:
        written = found.stats["compaction"]["write_amplification"]
        parts.append((units.ratio(written), "write amplification"))
        parts.append((units.percent(found.stats["cache"]["hit_ratio"], 1), "cache hits"))
    return "".join(page.tile(value, name) for value, name in parts)


def build(db: str) -> str:
    from importlib.metadata import version

    tree, tables = steady(db, lambda tree: (tree, list(looked_at(tree))))
    found = live.sample(db)
    absent = live.absent_share(db)
    sections = [
        tree_section(tree, level_rows(tree)),
        saved_section(found),
        rate_section(tables, live.observed_fpr(db)),
        heat_section(tables),
        advice_section(tree, 1.0 if absent is None else absent),
        history_section(list(timeline_rows(Reading(db)))),
    ]
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return page.page(
        name=escape(Path(os.path.abspath(db)).name),
        subtitle=escape(f"{db}, {made}"),
        tiles=tiles(tree, found),
        sections="".join(sections),
        version=escape(version("lsmkv")),
    )


@declare(example="lsmkv-tool report mydb -o report.html")
@path_argument()
@click.option("-o", "--output", "target", type=click.Path(), required=True, help="The HTML file to write.")
@click.option("--force", is_flag=True, help="Overwrite it.")
def report(out: Output, db: str, target: str, force: bool) -> None:
    """Write one self-contained page about DB: tree, filter heat, false positive rates, I/O saved, history."""
    if os.path.lexists(target) and not force:
        raise CannotOpen(f"{target} exists; --force overwrites it", file=target)
    text = build(db)
    with opening(target), open(target, "w", encoding="utf-8") as file:
        file.write(text)
    size = len(text.encode())
    out.result({"file": target, "bytes": size}, lambda human: human.line(f"{target}: {units.size(size)}"))

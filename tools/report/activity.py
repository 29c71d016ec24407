"""The report's section about the running database: reads, writes, write amplification, memory and stalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsmkv_tool.db import stats_export
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Row

if TYPE_CHECKING:
    from lsmkv.options import Options

Pairs = list[tuple[str, str]]


def amplification_of_history(rows: Sequence[Row]) -> float | None:
    """Return the bytes that flushes and compactions wrote per byte flushed, since the start of the manifest."""
    flushed = sum(row["out_bytes"] for row in rows if row["reason"] == "flush")
    return sum(row["out_bytes"] for row in rows) / flushed if flushed else None


def expected_amplification(tree: Tree, options: Options) -> float:
    """Return what random overwrites of a full tree of this depth lead to.

    A flush writes each byte once, and the merge into L1 about once more. Each deeper level has `level_size_ratio` times
    the size of the one above, and a byte that enters it is merged with half of that on average.
    """
    deepest = max((level for level, files in enumerate(tree.levels) if files), default=0)
    return 1 + min(deepest, 1) + max(0, deepest - 1) * options.level_size_ratio / 2


def amplification(tree: Tree, options: Options, sample: stats_export.Sample | None, history: Sequence[Row]) -> str:
    pairs: Pairs = []
    if sample is not None:
        found = sample.stats
        pairs.append(("flushes and compactions, since open", ratio(found["compaction"]["write_amplification"])))
        pairs.append(("with logs and value logs, since open", ratio(found["writes"]["written_per_byte"])))
    pairs.append(("flushes and compactions, in this manifest", ratio(amplification_of_history(history))))
    pairs.append(("expected at this depth, random overwrites", ratio(expected_amplification(tree, options))))
    text = (
        "Bytes written per byte of new data. A young tree is below the expected figure, and so are writes in key "
        f"order. More than that points to small flushes (`write_buffer_size` is "
        f"{units.size(options.write_buffer_size)}) or to manual compactions."
    )
    return html.heading("Write amplification") + html.fields(pairs) + html.note(text)


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def time_of(us: float | None) -> str:
    return units.duration(None if us is None else us * 1000)


def read_pairs(stats: dict[str, Any]) -> Pairs:
    reads, cache = stats["reads"], stats["cache"]
    return [
        ("lookups", units.count(reads["gets"])),
        ("found", units.percent(reads["found"] / reads["gets"] if reads["gets"] else None, 1)),
        ("seeks, steps", f"{units.count(reads['seeks'])}, {units.count(reads['nexts'])}"),
        ("disk reads", f"{units.count(reads['disk_reads'])}, {time_of(reads['disk_read_us'])} each"),
        ("block cache", f"{units.size(cache['used'])} of {units.size(cache['capacity'])}"),
        ("cache hits", units.percent(cache["hit_ratio"], 1)),
    ]


def write_pairs(stats: dict[str, Any]) -> Pairs:
    writes, log, flush, compaction = (stats[name] for name in ("writes", "log", "flush", "compaction"))
    return [
        ("puts, deletes", f"{units.count(writes['puts'])}, {units.count(writes['deletes'])}"),
        ("written by the program", units.size(writes["bytes"])),
        ("log", f"{units.size(log['bytes'])}, {units.count(log['syncs'])} syncs, {time_of(log['sync_us'])} each"),
        ("flushes", f"{units.count(flush['count'])}, {units.size(flush['bytes_out'])}"),
        ("compactions", f"{units.count(compaction['count'])}, {units.size(compaction['bytes_out'])}"),
    ]


def stall_pairs(stats: dict[str, Any]) -> Pairs:
    stalls = stats["stalls"]
    return [
        (name, f"{units.count(stalls[name])}, {units.duration(stalls[f'{one}_seconds'] * 1e9)} in all")
        for name, one in (("slowdowns", "slowdown"), ("stops", "stop"))
    ]


def memory_bars(stats: dict[str, Any]) -> str:
    memory = stats["memory"]
    parts = ("write_buffers", "block_cache", "row_cache", "tables")
    bars: list[tuple[str, list[html.Bar]]] = [
        (name.replace("_", " "), [(memory[name], "blue", units.size(memory[name]))]) for name in parts
    ]
    limit = "no limit is set (option memory)" if memory["limit"] is None else f"limit {units.size(memory['limit'])}"
    return html.heading("Memory") + html.bars(bars) + html.note(f"Sizes that each part may use; {limit}.")


def activity_section(tree: Tree, options: Options, sample: stats_export.Sample | None, history: Sequence[Row]) -> str:
    written = amplification(tree, options, sample, history)
    if sample is None:
        text = "No statistics: a running database exports them if it was opened with stats_export=True."
        return html.section("Reads and writes", html.note(text), written)
    stats = sample.stats
    stalls = html.heading("Stalls of writers") + html.fields(stall_pairs(stats))
    return html.section(
        "Reads and writes",
        html.columns(
            html.heading("Reads") + html.fields(read_pairs(stats)),
            html.heading("Writes") + html.fields(write_pairs(stats)),
        ),
        html.columns(written, stalls + memory_bars(stats)),
        html.note(f"Since process {sample.pid} opened the database; exported {units.duration(sample.age * 1e9)} ago."),
    )

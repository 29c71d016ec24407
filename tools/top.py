"""`top`: a running database, from the STATS file that its owner writes twice a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import level_stats as top_levels
from lsmkv_tool.db.stats_export import Sample, sample
from lsmkv_tool.directory import Folder
from lsmkv_tool.exits import CannotOpen
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output

# Figures that only grow; `top` shows how fast.
COUNTERS = {
    "gets": ("reads", "gets"),
    "found": ("reads", "found"),
    "seeks": ("reads", "seeks"),
    "nexts": ("reads", "nexts"),
    "puts": ("writes", "puts"),
    "deletes": ("writes", "deletes"),
    "batches": ("writes", "batches"),
    "written_bytes": ("writes", "bytes"),
    "disk_reads": ("reads", "disk_reads"),
    "disk_bytes": ("reads", "disk_bytes"),
    "log_syncs": ("log", "syncs"),
    "filter_checks": ("total", "filter", "checks"),
    "filter_negatives": ("total", "filter", "negatives"),
    "bytes_skipped": ("total", "filter", "bytes_skipped"),
    "seconds_saved": ("total", "filter", "seconds_saved"),
    "flush_bytes": ("flush", "bytes_out"),
    "compaction_bytes_in": ("compaction", "bytes_in"),
    "compaction_bytes_out": ("compaction", "bytes_out"),
}


def pick(stats: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = stats
    for name in path:
        value = value[name]
    return float(value)


def rates(before: Sample | None, after: Sample) -> dict[str, float] | None:
    """Per second between two samples of one process; None without two."""
    if before is None or before.pid != after.pid or after.time <= before.time:
        return None
    seconds = after.time - before.time
    return {
        name: max(0.0, (pick(after.stats, path) - pick(before.stats, path)) / seconds)
        for name, path in COUNTERS.items()
    }


def require(db: str) -> Sample:
    found = sample(db)
    if found is None:
        raise CannotOpen(f"{db} exports no figures: its owner opens it with stats_export=True", file=db)
    return found


def samples(db: str, interval: float, count: int | None) -> Iterator[tuple[Sample, dict[str, float] | None]]:
    before = None
    shown = 0
    while True:
        now = require(db)
        while before is not None and now.time == before.time and not now.stale:
            time.sleep(0.05)
            now = require(db)
        yield now, rates(before, now)
        before = now
        shown += 1
        if count is not None and shown >= count:
            return
        time.sleep(interval)


def frame(db: str, now: Sample, speed: dict[str, float] | None) -> list[str]:
    """One picture as lines; without rates, the totals since the owner opened the database."""
    s = now.stats
    state = "STOPPED: its owner writes no more" if now.stale else f"{now.age:.1f} s ago"
    show, unit = (speed, "/s") if speed else ({name: pick(s, p) for name, p in COUNTERS.items()}, "")

    def many(name: str) -> str:
        return units.count(show[name]) + unit

    def bytes_(name: str) -> str:
        return units.size(show[name]) + unit

    reads, cache, log, stalls, memory = (s[n] for n in ("reads", "cache", "log", "stalls", "memtable"))
    filters, compaction = s["total"]["filter"], s["compaction"]
    found = units.percent(show["found"] / show["gets"] if show["gets"] else None, 1)
    skipped = show["filter_negatives"] / show["filter_checks"] if show["filter_checks"] else None
    fpr = f"{units.percent(filters['observed_fpr'], 3)}, designed {units.percent(filters['designed_fpr'], 3)}"
    lines = [
        f"{db}   process {now.pid}   {state}   {'per second' if speed else 'since it was opened'}",
        "",
        f"reads    {many('gets')} lookups, {found} found; {many('seeks')} seeks, {many('nexts')} scanned",
        f"writes   {many('puts')} puts, {many('deletes')} deletes, {bytes_('written_bytes')}",
        f"disk     {many('disk_reads')} reads, {bytes_('disk_bytes')}, {_us(reads['disk_read_us'])} each",
        f"cache    {units.size(cache['used'])} of {units.size(cache['capacity'])}, hit ratio "
        f"{units.percent(cache['hit_ratio'], 1)}, {units.count(cache['evictions'])} evictions",
        f"filters  {many('filter_checks')} checks, {units.percent(skipped, 1)} skipped a table; FPR {fpr}",
        f"saved    {bytes_('bytes_skipped')}, {show['seconds_saved']:.3f} s{unit} of reading; "
        f"{units.size(filters['memory_bytes'])} of filters",
        f"log      {many('log_syncs')} syncs, {_us(log['sync_us'])} each",
        f"memory   {units.size(memory['bytes'])} in the memtable, {memory['immutable']} wait for flush",
        f"compact  {s['flush']['count']} flushes, {compaction['count']} compactions; in "
        f"{bytes_('compaction_bytes_in')}, out {bytes_('compaction_bytes_out')}; write amplification "
        f"{units.ratio(compaction['write_amplification'])}",
        f"stalls   {stalls['slowdowns']} slowdowns ({stalls['slowdown_seconds']:.2f} s), "
        f"{stalls['stops']} stops ({stalls['stop_seconds']:.2f} s)",
    ]
    return lines + [f"ALARM    {alarm['message']}" for alarm in s["alarms"]]


def _us(value: float | None) -> str:
    return units.duration(None if value is None else value * 1000)


@declare(example="lsmkv-tool top mydb --count 1")
@path_argument()
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many; by default on Ctrl-C.")
def top(out: Output, db: str, interval: float, count: int | None) -> None:
    """Watch a running database: rates, levels, filter savings, cache, stalls, compactions.

    Its owner opens it with stats_export=True. The first picture shows totals, the next ones figures per
    second.
    """
    Folder(db)
    if out.mode == "human":
        for now, speed in samples(db, interval, count):
            if out.human.terminal:
                sys.stdout.write("\x1b[H\x1b[2J")
            for line in frame(db, now, speed):
                out.human.line(line)
            out.human.line()
            out.human.table(top_levels.COLUMNS, top_levels.rows(now.stats))
            sys.stdout.flush()
        return
    out.stream(
        (
            {"time": now.time, "pid": now.pid, "stale": now.stale, "rates": speed, "stats": now.stats}
            for now, speed in samples(db, interval, count)
        ),
        lambda row: "",
    )

"""`top`: watch a running database through its STATS file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db import level_stats
from lsmkv_tool.db.stats_export import Sample, read_sample
from lsmkv_tool.directory import Directory
from lsmkv_tool.exits import CannotOpen
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output

LABEL = 9  # width of the labels of a frame
# Where the cumulative counters are in the statistics.
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


def counters(stats: dict[str, Any]) -> dict[str, float]:
    found = {}
    for name, path in COUNTERS.items():
        value: Any = stats
        for part in path:
            value = value[part]
        found[name] = float(value)
    return found


def rates(before: Sample | None, after: Sample) -> dict[str, float] | None:
    """Return the counters per second between two samples, or None if they are not of one process."""
    if before is None or before.pid != after.pid or after.time <= before.time:
        return None
    seconds = after.time - before.time
    old, new = counters(before.stats), counters(after.stats)
    return {name: max(0.0, (new[name] - old[name]) / seconds) for name in COUNTERS}


def require_sample(db: str, keyspace: str) -> Sample:
    found = read_sample(db, keyspace)
    if found is None:
        raise CannotOpen(f"{db} exports no statistics; open it with stats_export=True", file=db)
    return found


def samples(
    db: str, keyspace: str, interval: float, count: int | None
) -> Iterator[tuple[Sample, dict[str, float] | None]]:
    before = None
    shown = 0
    while True:
        now = require_sample(db, keyspace)
        while before is not None and now.time == before.time and not now.stale:
            time.sleep(0.05)
            now = require_sample(db, keyspace)
        yield now, rates(before, now)
        before = now
        shown += 1
        if count is not None and shown >= count:
            return
        time.sleep(interval)


def frame(db: str, now: Sample, per_second: dict[str, float] | None) -> list[str]:
    """Return the lines of one update: rates, or without these the totals since the database was opened."""
    s = now.stats
    state = "STOPPED, no update for 5 s" if now.stale else f"{now.age:.1f} s ago"
    shown, unit = (per_second, "/s") if per_second else (counters(s), "")

    def count(name: str) -> str:
        return units.count(shown[name]) + unit

    def size(name: str) -> str:
        return units.size(shown[name]) + unit

    reads, cache, log, stalls, memory = (s[n] for n in ("reads", "cache", "log", "stalls", "memtable"))
    filters, compaction = s["total"]["filter"], s["compaction"]
    found = units.percent(shown["found"] / shown["gets"] if shown["gets"] else None, 1)
    skipped = shown["filter_negatives"] / shown["filter_checks"] if shown["filter_checks"] else None
    fpr = f"{units.percent(filters['observed_fpr'], 3)}, designed {units.percent(filters['designed_fpr'], 3)}"
    lines = [
        f"{db}   process {now.pid}   {state}   {'per second' if per_second else 'since open'}",
        "",
        f"reads    {count('gets')} lookups, {found} found; {count('seeks')} seeks, {count('nexts')} scanned",
        f"writes   {count('puts')} puts, {count('deletes')} deletes, {size('written_bytes')}",
        f"disk     {count('disk_reads')} reads, {size('disk_bytes')}, {microseconds(reads['disk_read_us'])} each",
        f"cache    {units.size(cache['used'])} of {units.size(cache['capacity'])}, hit ratio "
        f"{units.percent(cache['hit_ratio'], 1)}, {units.count(cache['evictions'])} evictions",
        f"filters  {count('filter_checks')} checks, {units.percent(skipped, 1)} skipped a table; FPR {fpr}",
        f"saved    {size('bytes_skipped')}, {shown['seconds_saved']:.3f} s{unit} of reads; "
        f"{units.size(filters['memory_bytes'])} of filters",
        f"log      {count('log_syncs')} syncs, {microseconds(log['sync_us'])} each",
        f"memory   {units.size(memory['bytes'])} in the memtable, {memory['immutable']} immutable memtables",
        f"compact  {s['flush']['count']} flushes, {compaction['count']} compactions; in "
        f"{size('compaction_bytes_in')}, out {size('compaction_bytes_out')}; write amplification "
        f"{units.ratio(compaction['write_amplification'])}",
        f"stalls   {stalls['slowdowns']} slowdowns ({stalls['slowdown_seconds']:.2f} s), "
        f"{stalls['stops']} stops ({stalls['stop_seconds']:.2f} s)",
    ]
    return lines + [f"ALARM    {alarm['message']}" for alarm in s["alarms"]]


def microseconds(value: float | None) -> str:
    return units.duration(None if value is None else value * 1000)


@declare("top", example="lsmkv-tool top mydb --count 1", table=True)
@path_argument()
@click.option(
    "--interval", type=params.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between updates."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many updates; by default on Ctrl-C.")
@params.KEYSPACE
def top(out: Output, db: str, interval: float, count: int | None, keyspace: str) -> None:
    """Watch a running database: rates, levels, filter savings, cache, stalls, compactions.

    The database must be open with stats_export=True. The first update shows totals, later ones show rates per
    second.
    """
    Directory(db)
    if out.mode == "text":
        for now, per_second in samples(db, keyspace, interval, count):
            if out.printer.terminal:
                sys.stdout.write("\x1b[H\x1b[2J")
            for line in frame(db, now, per_second):
                out.printer.sentence(line, indent=" " * LABEL)
            out.printer.line()
            out.printer.table(level_stats.COLUMNS, level_stats.level_rows(now.stats))
            sys.stdout.flush()
        return
    rows = (
        {"time": now.time, "pid": now.pid, "stale": now.stale, "rates": per_second, "stats": now.stats}
        for now, per_second in samples(db, keyspace, interval, count)
    )
    out.stream(rows, str)

"""`str(db.stats())`: the statistics as a table of 80 columns, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lsmkv.notebook import table

if TYPE_CHECKING:
    from lsmkv.stats.metrics import LevelStats, Stats

HEADINGS = ("level", "tables", "MiB", "entries", "filter MiB", "skipped", "wasted", "FPR", "design")
Row = Sequence[str]


def text(stats: Stats) -> str:
    """The levels, one line for each subject that has something to say, and the alarms."""
    facts = [f"{name:<12}{fact}" for name, fact in _facts(stats)]
    alarms = [f"ALARM       {alarm.message}" for alarm in stats.alarms]
    return "\n".join([*_aligned([HEADINGS, *_rows(stats)]), "", *facts, *alarms])


def html(stats: Stats) -> str:
    """The same as two tables."""
    alarms = [("alarm", alarm.message) for alarm in stats.alarms]
    return table(_rows(stats), HEADINGS) + table([*_facts(stats), *alarms])


def _rows(stats: Stats) -> list[Row]:
    used = [level for level in stats.levels if level.files or level.filter.lookups]
    return [*(_row(f"L{level.level}", level) for level in used), _row("total", stats.total)]


def _row(name: str, level: LevelStats) -> Row:
    found = level.filter
    return (
        name,
        f"{level.files:,}",
        _mib(level.bytes),
        f"{level.entries:,}",
        _mib(found.memory_bytes),
        f"{found.negatives:,}",
        f"{found.false_positives:,}",
        _percent(found.observed_fpr),
        _percent(found.designed_fpr),
    )


def _facts(stats: Stats) -> Iterable[tuple[str, str]]:
    """(subject, what it has to say), without subjects in which nothing happened."""
    reads, cache, flush, compaction = stats.reads, stats.cache, stats.flush, stats.compaction
    yield (
        "memtables",
        (f"{stats.memtable.entries:,} entries, {_mib(stats.memtable.bytes)} MiB; {stats.memtable.immutable} to flush"),
    )
    if reads.gets or reads.seeks:
        yield (
            "reads",
            (f"{reads.gets:,} gets, {reads.found:,} found; {reads.seeks:,} seeks; {reads.disk_reads:,} disk reads"),
        )
    if stats.total.filter.negatives:
        saved = stats.total.filter
        yield "filters", f"{saved.blocks_skipped:,} blocks skipped, {saved.seconds_saved:.3f} s saved"
    if cache.hit_ratio is not None:
        yield "block cache", f"{_mib(cache.used)} of {_mib(cache.capacity)} MiB, {_percent(cache.hit_ratio)} hits"
    if stats.writes.puts or stats.writes.deletes:
        amplified = stats.writes.written_per_byte
        yield (
            "writes",
            (
                f"{stats.writes.puts:,} puts, {stats.writes.deletes:,} deletes, {_mib(stats.writes.bytes)} MiB"
                + ("" if amplified is None else f", {amplified:.2f} bytes written per byte")
            ),
        )
    if flush.count:
        yield "flushes", f"{flush.count:,}, {_mib(flush.bytes_out)} MiB in {flush.seconds:.1f} s"
    if compaction.count or compaction.moves:
        yield (
            "compactions",
            (
                f"{compaction.count:,} and {compaction.moves:,} moves, {_mib(compaction.bytes_out)} MiB"
                f" in {compaction.seconds:.1f} s"
            ),
        )
    if stats.value_logs.files:
        yield (
            "value logs",
            (
                f"{stats.value_logs.files:,}, {_mib(stats.value_logs.bytes)} MiB,"
                f" {_mib(stats.value_logs.garbage_bytes)} MiB garbage"
            ),
        )
    if stats.expiry.expired_bytes or stats.expiry.reclaimed_bytes:
        yield (
            "expiry",
            (f"{_mib(stats.expiry.expired_bytes)} MiB expired, {_mib(stats.expiry.reclaimed_bytes)} MiB reclaimed"),
        )
    if stats.stalls.stops or stats.stalls.slowdowns:
        seconds = stats.stalls.stop_seconds + stats.stalls.slowdown_seconds
        yield "stalls", f"{stats.stalls.stops:,} stops, {stats.stalls.slowdowns:,} slowdowns, {seconds:.1f} s"


def _mib(n: int) -> str:
    return f"{n / (1 << 20):,.1f}"


def _percent(x: float | None) -> str:
    return "-" if x is None else f"{x:.2%}"


def _aligned(rows: Sequence[Row]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]

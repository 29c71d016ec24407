"""A `prometheus_client` collector over `db.stats()`. Needs the extra: `pip install lsmkv[prometheus]`.

    from prometheus_client import REGISTRY
    REGISTRY.register(lsmkv.prometheus.Collector(db))

Every name is in NAMES below; per-level figures carry the label `level`, all carry `db`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as _Base

from lsmkv.stats.metrics import LevelStats, Stats


class Source(Protocol):
    @property
    def path(self) -> Any: ...
    def stats(self) -> Stats: ...


@dataclass(frozen=True)
class _Name:
    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    text: str
    value: Callable[[Any], float | None]  # of a LevelStats, or of the Stats


def _counter(name: str, text: str, value: Callable[[Any], float | None]) -> _Name:
    return _Name("lsmkv_" + name, CounterMetricFamily, text, value)


def _gauge(name: str, text: str, value: Callable[[Any], float | None]) -> _Name:
    return _Name("lsmkv_" + name, GaugeMetricFamily, text, value)


PER_LEVEL = (
    _gauge("level_files", "Tables in the level", lambda s: s.files),
    _gauge("level_bytes", "Bytes of tables in the level", lambda s: s.bytes),
    _gauge("level_entries", "Entries in the level", lambda s: s.entries),
    _counter("filter_lookups", "Lookups that reached a table of the level", lambda s: s.filter.lookups),
    _counter("filter_checks", "Verdicts by healthy filters", lambda s: s.filter.checks),
    _counter("filter_negatives", "Tables skipped by a filter", lambda s: s.filter.negatives),
    _counter("filter_true_positives", "Positives whose key was there", lambda s: s.filter.true_positives),
    _counter("filter_false_positives", "Positives whose key was not there", lambda s: s.filter.false_positives),
    _counter("filter_unfiltered", "Lookups in tables without a filter", lambda s: s.filter.unfiltered),
    _counter("filter_fail_open", "Lookups that met a damaged filter", lambda s: s.filter.fail_open),
    _gauge("filter_observed_fpr", "False positives per absent key", lambda s: s.filter.observed_fpr),
    _gauge("filter_designed_fpr", "The rate the filters were designed for", lambda s: s.filter.designed_fpr),
    _counter("filter_skipped_disk_reads", "Sampled estimate", lambda s: s.filter.blocks_skipped_disk),
    _counter("filter_skipped_cache_hits", "Sampled estimate", lambda s: s.filter.blocks_skipped_cache),
    _counter("filter_skipped_bytes", "Sampled estimate", lambda s: s.filter.bytes_skipped),
    _counter("filter_saved_seconds", "Sampled estimate", lambda s: s.filter.seconds_saved),
    _gauge("filter_memory_bytes", "Bytes of healthy filters", lambda s: s.filter.memory_bytes),
    _gauge("filter_fill_ratio", "Share of bits set", lambda s: s.filter.fill_ratio),
    _gauge("filter_tables_damaged", "Tables with a damaged filter", lambda s: s.filter.tables_damaged),
    _gauge("filter_debt_tables", "Tables whose filter should be rebuilt", lambda s: s.filter.debt_tables),
)

WHOLE = (
    _counter("gets", "Point lookups", lambda s: s.reads.gets),
    _counter("gets_found", "Point lookups that found their key", lambda s: s.reads.found),
    _counter("memtable_hits", "Lookups answered by a memtable", lambda s: s.reads.memtable_hits),
    _counter("row_hits", "Lookups answered by the row cache", lambda s: s.reads.row_hits),
    _counter("disk_reads", "Block reads from disk", lambda s: s.reads.disk_reads),
    _counter("disk_read_bytes", "Bytes read from disk", lambda s: s.reads.disk_bytes),
    _counter("disk_read_seconds", "Time in disk reads", lambda s: s.reads.disk_seconds),
    _counter("seeks", "Seeks of iterators", lambda s: s.reads.seeks),
    _counter("nexts", "Steps of iterators", lambda s: s.reads.nexts),
    _counter("puts", "Entries put", lambda s: s.writes.puts),
    _counter("deletes", "Entries deleted", lambda s: s.writes.deletes),
    _counter("write_bytes", "Bytes of keys and values written", lambda s: s.writes.bytes),
    _counter("cache_hits", "Blocks found in the cache", lambda s: s.cache.hits),
    _counter("cache_misses", "Blocks not found in the cache", lambda s: s.cache.misses),
    _gauge("cache_used_bytes", "Bytes in the cache", lambda s: s.cache.used),
    _counter("log_bytes", "Bytes appended to the log", lambda s: s.log.bytes),
    _counter("log_syncs", "fdatasync calls on the log", lambda s: s.log.syncs),
    _counter("log_sync_seconds", "Time in fdatasync calls", lambda s: s.log.sync_seconds),
    _gauge("memtable_bytes", "Bytes in the active memtable", lambda s: s.memtable.bytes),
    _gauge("memtable_immutable", "Memtables waiting for their flush", lambda s: s.memtable.immutable),
    _counter("flushes", "Memtables flushed", lambda s: s.flush.count),
    _counter("flush_bytes", "Bytes of tables flushed", lambda s: s.flush.bytes_out),
    _counter("compactions", "Compactions done", lambda s: s.compaction.count),
    _counter("compaction_in_bytes", "Bytes read by compactions", lambda s: s.compaction.bytes_in),
    _counter("compaction_out_bytes", "Bytes written by compactions", lambda s: s.compaction.bytes_out),
    _gauge("write_amplification", "Written per flushed byte", lambda s: s.compaction.write_amplification),
    _counter("slowdown_seconds", "Time writers were slowed", lambda s: s.stalls.slowdown_seconds),
    _counter("stop_seconds", "Time writers were stopped", lambda s: s.stalls.stop_seconds),
    _counter("shadow_checks", "Negatives checked by a read", lambda s: s.shadow.checks),
    _counter("shadow_wrong", "Negatives found wrong", lambda s: s.shadow.wrong),
)

ALARM = "lsmkv_alarm"

NAMES = tuple(sorted([n.name for n in (*PER_LEVEL, *WHOLE)] + [ALARM]))


class Collector(_Base):
    """A collector that calls `stats()` of each database once per scrape."""

    def __init__(self, *databases: Source) -> None:
        self._databases = databases

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not read the databases."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per name in NAMES."""
        seen = [(str(db.path), db.stats()) for db in self._databases]
        for name in PER_LEVEL:
            family = name.kind(name.name, name.text, labels=("db", "level"))
            for path, stats in seen:
                for level in stats.levels:
                    _add(family, (path, str(level.level)), name, level)
            yield family
        for name in WHOLE:
            family = name.kind(name.name, name.text, labels=("db",))
            for path, stats in seen:
                _add(family, (path,), name, stats)
            yield family
        alarms = GaugeMetricFamily(ALARM, "1 for each alarm that is on", labels=("db", "name", "level"))
        for path, stats in seen:
            for alarm in stats.alarms:
                alarms.add_metric((path, alarm.name, "" if alarm.level is None else str(alarm.level)), 1)
        yield alarms


def _add(family: Any, labels: tuple[str, ...], name: _Name, source: LevelStats | Stats) -> None:
    value = name.value(source)
    if value is not None:
        family.add_metric(labels, value)

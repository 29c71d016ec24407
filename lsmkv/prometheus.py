"""A `prometheus_client` collector over `db.stats()`. Needs the extra: `pip install lsmkv[prometheus]`.

    from prometheus_client import REGISTRY
    REGISTRY.register(lsmkv.prometheus.Collector(db))

Every name is in NAMES below; per-level figures carry the label `level`, all carry `db`. Once a database has named
keyspaces, figures of one keyspace carry the label `keyspace`, which is "" for the default one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as _Base

from lsmkv.errors import ClosedError, ForkError, KeyspaceError
from lsmkv.stats.metrics import Histogram, LevelStats, Stats


class Source(Protocol):
    """A database. Without `keyspaces` it is one tree."""

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
    _gauge("level_raw_bytes", "Keys and values of the level, before compression", lambda s: s.raw_bytes),
    _gauge("level_zstd_bytes", "Bytes of tables compressed with zstd", lambda s: s.zstd_bytes),
    _counter("filter_lookups", "Lookups that reached a table of the level", lambda s: s.filter.lookups),
    _counter("filter_checks", "Verdicts by healthy filters", lambda s: s.filter.checks),
    _counter("filter_negatives", "Tables skipped by a filter", lambda s: s.filter.negatives),
    _counter("filter_true_positives", "Positives whose key was there", lambda s: s.filter.true_positives),
    _counter("filter_false_positives", "Positives whose key was not there", lambda s: s.filter.false_positives),
    _counter("filter_unfiltered", "Lookups in tables without a filter", lambda s: s.filter.unfiltered),
    _counter("filter_fail_open", "Lookups that met a damaged filter", lambda s: s.filter.fail_open),
    _gauge("filter_observed_fpr", "False positives per absent key", lambda s: s.filter.observed_fpr),
    _gauge("filter_designed_fpr", "The rate the filters were designed for", lambda s: s.filter.designed_fpr),
    # Estimates from a sample may fall when more is known, so they are no counters.
    _gauge("filter_skipped_disk_reads", "Sampled estimate", lambda s: s.filter.blocks_skipped_disk),
    _gauge("filter_skipped_cache_hits", "Sampled estimate", lambda s: s.filter.blocks_skipped_cache),
    _gauge("filter_skipped_bytes", "Sampled estimate", lambda s: s.filter.bytes_skipped),
    _gauge("filter_saved_seconds", "Sampled estimate", lambda s: s.filter.seconds_saved),
    _gauge("filter_memory_bytes", "Bytes of healthy filters", lambda s: s.filter.memory_bytes),
    _gauge("filter_fuse_bytes", "Of these, bytes of fuse filters", lambda s: s.filter.fuse_bytes),
    _gauge("filter_fill_ratio", "Share of bits set", lambda s: s.filter.fill_ratio),
    _gauge("filter_tables_damaged", "Tables with a damaged filter", lambda s: s.filter.tables_damaged),
    _gauge("filter_debt_tables", "Tables whose filter should be rebuilt", lambda s: s.filter.debt_tables),
)

PER_TREE = (
    _counter("gets", "Point lookups", lambda s: s.reads.gets),
    _counter("gets_found", "Point lookups that found their key", lambda s: s.reads.found),
    _counter("memtable_hits", "Lookups answered by a memtable", lambda s: s.reads.memtable_hits),
    _counter("row_hits", "Lookups answered by the row cache", lambda s: s.reads.row_hits),
    _gauge("memtable_bytes", "Bytes in the active memtable", lambda s: s.memtable.bytes),
    _gauge("memtable_immutable", "Memtables waiting for their flush", lambda s: s.memtable.immutable),
    _gauge("live_bytes", "Keys and values in tables that are not expired", lambda s: s.expiry.live_bytes),
    _gauge("expired_bytes", "Expired keys and values in tables", lambda s: s.expiry.expired_bytes),
    _counter("shadow_checks", "Negatives checked by a read", lambda s: s.shadow.checks),
    _counter("shadow_wrong", "Negatives found wrong", lambda s: s.shadow.wrong),
)

WHOLE = (  # of all keyspaces
    _counter("disk_reads", "Block reads from disk", lambda s: s.reads.disk_reads),
    _counter("disk_read_bytes", "Bytes read from disk", lambda s: s.reads.disk_bytes),
    _counter("disk_read_seconds", "Time in disk reads", lambda s: s.reads.disk_seconds),
    _counter("seeks", "Seeks of iterators", lambda s: s.reads.seeks),
    _counter("nexts", "Steps of iterators", lambda s: s.reads.nexts),
    _counter("dead_passed", "Deleted entries that scans passed one by one", lambda s: s.reads.dead_passed),
    _counter("spans_jumped", "Dead spans that scans jumped over", lambda s: s.reads.spans_jumped),
    _counter("puts", "Entries put", lambda s: s.writes.puts),
    _counter("deletes", "Entries deleted", lambda s: s.writes.deletes),
    _counter("write_bytes", "Bytes of keys and values written", lambda s: s.writes.bytes),
    _counter("cache_hits", "Blocks found in the cache", lambda s: s.cache.hits),
    _counter("cache_misses", "Blocks not found in the cache", lambda s: s.cache.misses),
    _gauge("cache_used_bytes", "Bytes in the cache", lambda s: s.cache.used),
    _gauge("memory_limit_bytes", "The option memory", lambda s: s.memory.limit),
    _gauge("memory_tables_bytes", "Bytes of indexes and filters", lambda s: s.memory.tables),
    _counter("log_bytes", "Bytes appended to the log", lambda s: s.log.bytes),
    _counter("log_syncs", "fdatasync calls on the log", lambda s: s.log.syncs),
    _counter("log_sync_seconds", "Time in fdatasync calls", lambda s: s.log.sync_seconds),
    _counter("flushes", "Memtables flushed", lambda s: s.flush.count),
    _counter("flush_bytes", "Bytes of tables flushed", lambda s: s.flush.bytes_out),
    _counter("compactions", "Compactions done", lambda s: s.compaction.count),
    _counter("compaction_in_bytes", "Bytes read by compactions", lambda s: s.compaction.bytes_in),
    _counter("compaction_out_bytes", "Bytes written by compactions", lambda s: s.compaction.bytes_out),
    _gauge("write_amplification", "Written per flushed byte", lambda s: s.compaction.write_amplification),
    _counter("reclaimed_bytes", "Expired keys and values that were dropped", lambda s: s.expiry.reclaimed_bytes),
    _gauge("value_log_bytes", "Bytes of value logs", lambda s: s.value_logs.bytes),
    _gauge("value_log_live_bytes", "Bytes of values that tables point to", lambda s: s.value_logs.live_bytes),
    _gauge("value_log_garbage_bytes", "Bytes of values that nobody points to", lambda s: s.value_logs.garbage_bytes),
    _counter("value_log_written_bytes", "Bytes appended to value logs", lambda s: s.value_logs.written_bytes),
    _gauge("written_per_byte", "Written per byte of keys and values", lambda s: s.writes.written_per_byte),
    _counter("slowdown_seconds", "Time writers were slowed", lambda s: s.stalls.slowdown_seconds),
    _counter("stop_seconds", "Time writers were stopped", lambda s: s.stalls.stop_seconds),
    _counter("background_errors", "Errors of background work", lambda s: s.health.errors),
    _gauge("read_only", "1 if an error made the database read-only", lambda s: s.health.read_only is not None),
)

HISTOGRAMS: dict[str, tuple[str, Callable[[Stats], Histogram]]] = {
    "lsmkv_flush_duration_seconds": ("Flushes", lambda s: s.latencies.flush),
    "lsmkv_compaction_duration_seconds": ("Compactions", lambda s: s.latencies.compaction),
    "lsmkv_stop_duration_seconds": ("Stops of writers that have ended", lambda s: s.latencies.stop),
    "lsmkv_log_sync_duration_seconds": ("fdatasync calls on the log", lambda s: s.latencies.sync),
}

ALARM = "lsmkv_alarm"
LAST_ERROR = "lsmkv_last_error"
UP = "lsmkv_up"

NAMES = tuple(sorted([n.name for n in (*PER_LEVEL, *PER_TREE, *WHOLE)] + [*HISTOGRAMS, ALARM, LAST_ERROR, UP]))


@dataclass(frozen=True)
class _Tree:
    """The statistics of one keyspace, and its labels."""

    db: str
    keyspace: str
    stats: Stats


class Collector(_Base):
    """A collector that calls `stats()` of each database and of its keyspaces once per scrape."""

    def __init__(self, *databases: Source) -> None:
        self._databases = databases

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not read the databases."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield one family per name in NAMES."""
        up = GaugeMetricFamily(UP, "0 if the database is closed", labels=("db",))
        trees: list[_Tree] = []
        for db in self._databases:
            found = list(_trees(db))
            trees += found
            up.add_metric((str(db.path),), bool(found))
        yield up
        named = any(tree.keyspace for tree in trees)
        labels = ("db", "keyspace") if named else ("db",)

        def values(tree: _Tree) -> tuple[str, ...]:
            return (tree.db, tree.keyspace) if named else (tree.db,)

        for name in PER_LEVEL:
            family = name.kind(name.name, name.text, labels=(*labels, "level"))
            for tree in trees:
                for level in tree.stats.levels:
                    _add(family, (*values(tree), str(level.level)), name, level)
            yield family
        for name in PER_TREE:
            family = name.kind(name.name, name.text, labels=labels)
            for tree in trees:
                _add(family, values(tree), name, tree.stats)
            yield family
        for name in WHOLE:
            family = name.kind(name.name, name.text, labels=("db",))
            for tree in trees:
                if not tree.keyspace:
                    _add(family, (tree.db,), name, tree.stats)
            yield family
        whole = [tree for tree in trees if not tree.keyspace]
        yield from _histograms(whole)
        errors = GaugeMetricFamily(LAST_ERROR, "1, with the text of the last error", labels=("db", "error"))
        for tree in whole:
            if tree.stats.health.last_error is not None:
                errors.add_metric((tree.db, tree.stats.health.last_error), 1)
        yield errors
        alarms = GaugeMetricFamily(ALARM, "1 for each alarm that is on", labels=(*labels, "name", "level"))
        for tree in trees:
            for alarm in tree.stats.alarms:
                level_label = "" if alarm.level is None else str(alarm.level)
                alarms.add_metric((*values(tree), alarm.name, level_label), 1)
        yield alarms


def _trees(db: Any) -> Iterator[_Tree]:
    """The keyspaces of a database, the default one first; none of one that is closed."""
    path = str(db.path)
    try:
        yield _Tree(path, "", db.stats())
    except (ClosedError, ForkError):
        return
    for name in getattr(db, "keyspaces", tuple)():
        with suppress(KeyspaceError, ClosedError):  # meanwhile
            yield _Tree(path, name, db.keyspace(name, create=False).stats())


def _histograms(trees: Sequence[_Tree]) -> Iterator[Metric]:
    for name, (text, of) in HISTOGRAMS.items():
        family = HistogramMetricFamily(name, text, labels=("db",))
        for tree in trees:
            found = of(tree.stats)
            bounds = [*map(str, found.bounds), "+Inf"]
            family.add_metric((tree.db,), list(zip(bounds, accumulate(found.counts), strict=True)), found.seconds)
        yield family


def _add(family: Any, labels: tuple[str, ...], name: _Name, source: LevelStats | Stats) -> None:
    value = name.value(source)
    if value is not None:
        family.add_metric(labels, value)

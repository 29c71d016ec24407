"""Statistics: what the database did and what its filters saved, as frozen dataclasses built by one pure function.

`make_stats` takes the engine's raw counters and a description of each table and of the background work; missing
counters are 0. Figures from a sample say so in their comment; all others are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lsmkv.stats.evidence import ENOUGH, evidence_of_excess, wilson
from lsmkv.stats.text import html, text
from lsmkv_ext.port.latency import BOUNDS

Raw = Mapping[str, Any]

# Alarms fire above (or below) these; the useful ratio counts from MIN_CHECKS filter checks on.
FPR_FACTOR = 2.0
FILL_LIMIT = 0.6
USEFUL_LIMIT = 0.5
MIN_CHECKS = 1000
# A table's filter is built for exactly its keys, so only more than its design is a finding.
KEYS_LIMIT = 1.0


@dataclass(frozen=True)
class TableInfo:
    """One table of the tree. `problem` is "ok", "absent", or what is wrong with its filter."""

    level: int
    number: int
    size: int
    entries: int
    filter_bytes: int = 0
    filter_keys: int = 0
    kind: str = "none"  # of the filter: "bloom", "fuse" or "none"
    millibits: int = 0
    n_blocks: int = 0
    fill_ratio: float = 0.0
    problem: str = "absent"
    debt: str | None = None  # why the filter should be rebuilt
    raw_bytes: int = 0  # keys and values
    expired_bytes: int = 0  # about how many of these are expired
    remembered_bytes: int = 0  # absent keys that passed the filter
    compression: str | None = None

    @property
    def healthy(self) -> bool:
        return self.problem == "ok"

    @property
    def damaged(self) -> bool:
        return self.problem not in ("ok", "absent")

    @property
    def keys_of_design(self) -> float:
        """Keys in the filter, as a share of those it was designed for."""
        if self.kind == "fuse":
            return 1.0 if self.healthy else 0.0  # it is built from exactly its keys
        capacity = self.n_blocks * 512_000
        return self.filter_keys * self.millibits / capacity if capacity else 0.0


@dataclass(frozen=True)
class FilterStats:
    lookups: int  # times a lookup came to a table whose key range holds the key
    checks: int  # verdicts by a healthy filter
    negatives: int  # "no": tables skipped
    positives: int  # "maybe"
    true_positives: int
    false_positives: int  # wasted reads
    remembered: int  # wasted reads that were avoided: a lookup of this key had read the table for nothing before
    unfiltered: int  # lookups in tables without a filter
    fail_open: int  # lookups in tables whose filter is damaged: answered "maybe"
    observed_fpr: float | None  # of keys that are not in the table; None before the first such check
    observed_fpr_low: float  # 95 % bounds
    observed_fpr_high: float
    designed_fpr: float | None  # of the tables actually checked, weighted by their checks of absent keys
    useful_ratio: float | None  # negatives among the checks
    blocks_skipped: int  # exact: one per negative
    sampled: int  # negatives whose block was looked up in the index, for the next four
    blocks_skipped_disk: int  # would have been disk reads
    blocks_skipped_cache: int  # would have been cache hits
    bytes_skipped: int
    bytes_skipped_disk: int
    seconds_saved: float  # by the measured cost of a disk read and of a cached block
    memory_bytes: int
    remembered_bytes: int  # of the keys behind `remembered`
    keys: int
    fill_ratio: float | None  # mean over the tables, by size
    max_fill_ratio: float
    keys_of_design: float  # the fullest table
    tables: int  # with a healthy filter
    fuse_tables: int  # of these, with a fuse filter
    fuse_bytes: int  # of memory_bytes, in fuse filters
    tables_without: int
    tables_damaged: int
    debt_tables: int
    debt_bytes: int  # filter bytes of tables in debt


@dataclass(frozen=True)
class LevelStats:
    level: int
    files: int
    bytes: int
    entries: int
    raw_bytes: int  # keys and values, before compression
    zstd_bytes: int  # of `bytes`: tables compressed with zstd
    filter: FilterStats


@dataclass(frozen=True)
class ReadStats:
    gets: int
    found: int
    missing: int
    memtable_hits: int
    row_hits: int
    seeks: int
    nexts: int
    dead_passed: int  # deleted entries that scans passed one by one
    spans_jumped: int  # dead spans that scans jumped over
    disk_reads: int
    disk_bytes: int
    disk_seconds: float
    disk_read_us: float | None  # mean


@dataclass(frozen=True)
class WriteStats:
    puts: int
    deletes: int
    batches: int
    bytes: int
    written_per_byte: float | None  # bytes written to logs, value logs and tables per byte of keys and values


@dataclass(frozen=True)
class CacheStats:
    capacity: int
    used: int
    hits: int
    misses: int
    hit_ratio: float | None
    evictions: int


@dataclass(frozen=True)
class MemoryStats:
    """How the memory is split (option `memory`), in bytes."""

    limit: int | None  # the option
    write_buffers: int  # all of them
    block_cache: int  # without the idle write buffer that it borrows
    row_cache: int
    tables: int  # indexes and filters of open tables; with `memory` they are in the block cache


@dataclass(frozen=True)
class LogStats:
    bytes: int
    syncs: int
    sync_seconds: float
    sync_us: float | None  # mean


@dataclass(frozen=True)
class MemtableStats:
    bytes: int
    entries: int
    immutable: int  # waiting for their flush
    immutable_bytes: int


@dataclass(frozen=True)
class FlushStats:
    count: int
    bytes_out: int
    seconds: float


@dataclass(frozen=True)
class CompactionStats:
    count: int
    moves: int
    filter_rebuilds: int
    bytes_in: int
    bytes_out: int
    seconds: float
    write_amplification: float | None  # bytes written by flush and compaction per byte flushed
    reasons: dict[str, int]  # why compactions, moves and filter rebuilds ran, and how often


@dataclass(frozen=True)
class ExpiryStats:
    """Bytes of keys and values. Those in tables are estimated from the range of each table's expiries."""

    live_bytes: int  # in tables
    expired_bytes: int  # in tables, not reclaimed yet
    reclaimed_bytes: int  # dropped by flushes and compactions


@dataclass(frozen=True)
class ValueLogStats:
    """Of all keyspaces together. Bytes include the headers and checksums of the values."""

    files: int
    bytes: int
    live_bytes: int  # that tables point to
    garbage_bytes: int  # of value logs that no memtable points into
    written_bytes: int  # by puts and batches
    copied_values: int  # by compactions, out of value logs that are collected


@dataclass(frozen=True)
class StallStats:
    slowdowns: int
    slowdown_seconds: float
    stops: int
    stop_seconds: float


@dataclass(frozen=True)
class ShadowStats:
    """Negatives that were checked by reading the block (`filter_shadow_ratio`)."""

    checks: int
    wrong: int


@dataclass(frozen=True)
class Histogram:
    """How often something took how long. `counts[i]` took at most `bounds[i]` seconds, the last one longer."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    seconds: float  # in total


@dataclass(frozen=True)
class LatencyStats:
    flush: Histogram
    compaction: Histogram
    stop: Histogram  # stops of writers that have ended
    sync: Histogram  # of the log


@dataclass(frozen=True)
class HealthStats:
    read_only: str | None  # why the database takes no more writes
    errors: int  # of background work
    last_error: str | None


@dataclass(frozen=True)
class Alarm:
    name: str
    level: int | None  # None: the whole tree
    value: float
    limit: float
    message: str


@dataclass(frozen=True)
class Stats:
    """The statistics of a database, as `db.stats()` returns them.

    >>> db.put(b"ada", b"1815")
    >>> db.stats().memtable.entries
    1
    """

    levels: tuple[LevelStats, ...]
    total: LevelStats  # level is -1
    reads: ReadStats
    writes: WriteStats
    cache: CacheStats
    memory: MemoryStats
    log: LogStats
    memtable: MemtableStats
    flush: FlushStats
    compaction: CompactionStats
    expiry: ExpiryStats
    value_logs: ValueLogStats
    stalls: StallStats
    shadow: ShadowStats
    latencies: LatencyStats
    health: HealthStats
    alarms: tuple[Alarm, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain data, for JSON.

        >>> db.stats().to_dict()["memtable"]["entries"]
        0
        """
        return asdict(self)

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)


# --- from raw counters ---


def make_stats(
    counters: Raw,
    tables: Iterable[TableInfo] = (),
    *,
    background: Raw | None = None,
    cache: Raw | None = None,
    memtable: Raw | None = None,
    values: Raw | None = None,
    memory: Raw | None = None,
    refusal: BaseException | None = None,
) -> Stats:
    """Build Stats from the engine's `counters`, the counters of `background` work and the current state."""
    tables = tuple(tables)
    cost = _Costs.of(counters)
    raw_levels: Sequence[Raw] = counters.get("levels", ())
    n_levels = max([len(raw_levels), *(t.level + 1 for t in tables)])
    levels = tuple(
        _level(i, raw_levels[i] if i < len(raw_levels) else {}, [t for t in tables if t.level == i], cost)
        for i in range(n_levels)
    )
    total = _level(-1, _summed(raw_levels), tables, cost)
    shadow = ShadowStats(_int(counters, "shadow_checks"), _int(counters, "shadow_wrong"))
    return Stats(
        levels=levels,
        total=total,
        reads=_reads(counters),
        writes=WriteStats(
            _int(counters, "puts"),
            _int(counters, "deletes"),
            _int(counters, "batches"),
            _int(counters, "bytes_written"),
            _written_per_byte(counters, background or {}),
        ),
        cache=_cache(counters, cache or {}),
        memory=_memory(memory or {}),
        log=_log(counters),
        memtable=_memtable(memtable or {}),
        flush=_flush(background or {}),
        compaction=_compaction(background or {}),
        expiry=_expiry(tables, background or {}),
        value_logs=_value_logs(values or {}, counters, background or {}),
        stalls=StallStats(
            _int(counters, "slowdowns"),
            _int(counters, "slowdown_ns") / 1e9,
            _int(counters, "stops"),
            _int(counters, "stop_ns") / 1e9,
        ),
        shadow=shadow,
        latencies=_latencies(counters, background or {}),
        health=_health(background or {}, refusal),
        alarms=tuple(_alarms(levels, total, shadow)),
    )


def _latencies(counters: Raw, background: Raw) -> LatencyStats:
    return LatencyStats(
        flush=_histogram(background, "flush_buckets", "flush_ns"),
        compaction=_histogram(background, "compaction_buckets", "compaction_ns"),
        stop=_histogram(background, "stop_buckets", "stop_ns"),
        sync=_histogram(counters, "log_sync_buckets", "log_sync_ns"),
    )


def _histogram(raw: Raw, counts: str, ns: str) -> Histogram:
    none = (0,) * (len(BOUNDS) + 1)
    return Histogram(BOUNDS, tuple(raw.get(counts) or none), _int(raw, ns) / 1e9)


def _health(background: Raw, refusal: BaseException | None) -> HealthStats:
    return HealthStats(
        None if refusal is None else str(refusal) or type(refusal).__name__,
        _int(background, "errors"),
        background.get("last_error"),
    )


def _value_logs(state: Raw, counters: Raw, background: Raw) -> ValueLogStats:
    return ValueLogStats(
        files=_int(state, "files"),
        bytes=_int(state, "bytes"),
        live_bytes=_int(state, "live_bytes"),
        garbage_bytes=_int(state, "garbage_bytes"),
        written_bytes=_int(counters, "value_log_bytes"),
        copied_values=_int(background, "values_copied"),
    )


def _written_per_byte(counters: Raw, background: Raw) -> float | None:
    logged = _int(counters, "log_bytes") + _int(counters, "value_log_bytes")
    stored = _int(background, "flush_bytes") + _int(background, "compaction_bytes_out")
    return _mean(logged + stored, _int(counters, "bytes_written"))


def _expiry(tables: Sequence[TableInfo], background: Raw) -> ExpiryStats:
    expired = sum(t.expired_bytes for t in tables)
    return ExpiryStats(sum(t.raw_bytes for t in tables) - expired, expired, _int(background, "expired_bytes"))


@dataclass(frozen=True)
class _Costs:
    """Nanoseconds per block: measured means, 0 before the first measurement."""

    disk_ns: float
    cache_ns: float

    @classmethod
    def of(cls, counters: Raw) -> _Costs:
        return cls(
            _mean(_int(counters, "disk_ns"), _int(counters, "disk_reads")) or 0.0,
            _mean(_int(counters, "cache_timed_ns"), _int(counters, "cache_timed")) or 0.0,
        )


def _int(raw: Raw, name: str) -> int:
    return int(raw.get(name, 0))


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _summed(levels: Sequence[Raw]) -> dict[str, float]:
    total: dict[str, float] = {}
    for level in levels:
        for name, value in level.items():
            total[name] = total.get(name, 0) + value
    return total


def _level(number: int, raw: Raw, tables: Sequence[TableInfo], cost: _Costs) -> LevelStats:
    return LevelStats(
        level=number,
        files=len(tables),
        bytes=sum(t.size for t in tables),
        entries=sum(t.entries for t in tables),
        raw_bytes=sum(t.raw_bytes for t in tables),
        zstd_bytes=sum(t.size for t in tables if t.compression == "zstd"),
        filter=_filter(raw, tables, cost),
    )


def _filter(raw: Raw, tables: Sequence[TableInfo], cost: _Costs) -> FilterStats:
    checks, negatives = _int(raw, "checks"), _int(raw, "negatives")
    false_positives = _int(raw, "false_positives")
    absent = negatives + false_positives
    low, high = wilson(false_positives, absent)
    healthy = [t for t in tables if t.healthy]
    memory = sum(t.filter_bytes for t in healthy)
    fuse = [t for t in healthy if t.kind == "fuse"]
    skipped = _Skipped.of(raw, negatives)
    return FilterStats(
        lookups=_int(raw, "lookups"),
        checks=checks,
        negatives=negatives,
        positives=_int(raw, "positives"),
        true_positives=_int(raw, "true_positives"),
        false_positives=false_positives,
        remembered=_int(raw, "remembered"),
        unfiltered=_int(raw, "unfiltered"),
        fail_open=_int(raw, "fail_open"),
        observed_fpr=_mean(false_positives, absent),
        observed_fpr_low=low,
        observed_fpr_high=high,
        designed_fpr=_mean(float(raw.get("designed_fpr_sum", 0.0)), absent),
        useful_ratio=_mean(negatives, checks),
        blocks_skipped=negatives,
        sampled=_int(raw, "sampled"),
        blocks_skipped_disk=round(skipped.disk),
        blocks_skipped_cache=round(skipped.cached),
        bytes_skipped=round(skipped.bytes),
        bytes_skipped_disk=round(skipped.bytes_disk),
        seconds_saved=(skipped.disk * cost.disk_ns + skipped.cached * cost.cache_ns) / 1e9,
        memory_bytes=memory,
        remembered_bytes=sum(t.remembered_bytes for t in tables),
        keys=sum(t.filter_keys for t in healthy),
        fill_ratio=sum(t.fill_ratio * t.filter_bytes for t in healthy) / memory if memory else None,
        max_fill_ratio=max((t.fill_ratio for t in healthy), default=0.0),
        keys_of_design=max((t.keys_of_design for t in healthy), default=0.0),
        tables=len(healthy),
        fuse_tables=len(fuse),
        fuse_bytes=sum(t.filter_bytes for t in fuse),
        tables_without=sum(t.problem == "absent" for t in tables),
        tables_damaged=sum(t.damaged for t in tables),
        debt_tables=sum(t.debt is not None for t in tables),
        debt_bytes=sum(t.filter_bytes for t in tables if t.debt is not None),
    )


@dataclass(frozen=True)
class _Skipped:
    """The sample of negatives, scaled to all of them."""

    disk: float
    cached: float
    bytes: float
    bytes_disk: float

    @classmethod
    def of(cls, raw: Raw, negatives: int) -> _Skipped:
        sampled = _int(raw, "sampled")
        if not sampled:
            return cls(0.0, 0.0, 0.0, 0.0)
        scale = negatives / sampled
        disk = _int(raw, "sampled_disk") * scale
        in_all = _int(raw, "sampled_bytes") * scale
        share = disk / negatives if negatives else 0.0
        return cls(disk, _int(raw, "sampled_cached") * scale, in_all, in_all * share)


def _reads(raw: Raw) -> ReadStats:
    gets, found, disk_reads, disk_ns = (_int(raw, n) for n in ("gets", "gets_found", "disk_reads", "disk_ns"))
    mean = _mean(disk_ns, disk_reads)
    return ReadStats(
        gets=gets,
        found=found,
        missing=gets - found,
        memtable_hits=_int(raw, "memtable_hits"),
        row_hits=_int(raw, "row_hits"),
        seeks=_int(raw, "seeks"),
        nexts=_int(raw, "nexts"),
        dead_passed=_int(raw, "dead_passed"),
        spans_jumped=_int(raw, "spans_jumped"),
        disk_reads=disk_reads,
        disk_bytes=_int(raw, "disk_bytes"),
        disk_seconds=disk_ns / 1e9,
        disk_read_us=None if mean is None else mean / 1000,
    )


def _cache(raw: Raw, state: Raw) -> CacheStats:
    hits, misses = _int(raw, "cache_hits"), _int(raw, "disk_reads")
    return CacheStats(
        capacity=_int(state, "capacity"),
        used=_int(state, "used"),
        hits=hits,
        misses=misses,
        hit_ratio=_mean(hits, hits + misses),
        evictions=_int(state, "evictions"),
    )


def _memory(state: Raw) -> MemoryStats:
    parts = (_int(state, name) for name in ("write_buffers", "block_cache", "row_cache", "tables"))
    return MemoryStats(state.get("limit"), *parts)


def _log(raw: Raw) -> LogStats:
    syncs, ns = _int(raw, "log_syncs"), _int(raw, "log_sync_ns")
    mean = _mean(ns, syncs)
    return LogStats(_int(raw, "log_bytes"), syncs, ns / 1e9, None if mean is None else mean / 1000)


def _memtable(state: Raw) -> MemtableStats:
    return MemtableStats(*(_int(state, n) for n in ("bytes", "entries", "immutable", "immutable_bytes")))


def _flush(raw: Raw) -> FlushStats:
    return FlushStats(_int(raw, "flushes"), _int(raw, "flush_bytes"), _int(raw, "flush_ns") / 1e9)


def _compaction(raw: Raw) -> CompactionStats:
    flushed, written = _int(raw, "flush_bytes"), _int(raw, "compaction_bytes_out")
    return CompactionStats(
        count=_int(raw, "compactions"),
        moves=_int(raw, "moves"),
        filter_rebuilds=_int(raw, "filter_rebuilds"),
        bytes_in=_int(raw, "compaction_bytes_in"),
        bytes_out=written,
        seconds=_int(raw, "compaction_ns") / 1e9,
        write_amplification=_mean(flushed + written, flushed),
        reasons=dict(raw.get("reasons") or {}),
    )


# --- alarms ---


def _alarms(levels: Sequence[LevelStats], total: LevelStats, shadow: ShadowStats) -> Iterable[Alarm]:
    if shadow.wrong:
        yield Alarm(
            "filter_wrong", None, shadow.wrong, 0,
            f"{shadow.wrong} of {shadow.checks} checked negatives were wrong: a filter hides keys",
        )  # fmt: skip
    for level in levels:
        yield from _level_alarms(level)
    yield from _useful_alarm(total)


def _level_alarms(level: LevelStats) -> Iterable[Alarm]:
    f, name = level.filter, f"L{level.level}"
    if f.tables_damaged or f.fail_open:
        yield Alarm(
            "filter_damaged", level.level, f.tables_damaged, 0,
            f"{name}: {f.tables_damaged} tables with a damaged filter, {f.fail_open} lookups without it",
        )  # fmt: skip
    yield from _fpr_alarm(level)
    if f.max_fill_ratio > FILL_LIMIT:
        yield Alarm(
            "filter_fill", level.level, f.max_fill_ratio, FILL_LIMIT,
            f"{name}: a filter has {f.max_fill_ratio:.0%} of its bits set",
        )  # fmt: skip
    if f.keys_of_design > KEYS_LIMIT:
        yield Alarm(
            "filter_keys", level.level, f.keys_of_design, KEYS_LIMIT,
            f"{name}: a filter holds {f.keys_of_design:.2f} times the keys it was designed for",
        )  # fmt: skip


def _fpr_alarm(level: LevelStats) -> Iterable[Alarm]:
    f = level.filter
    if f.observed_fpr is None or not f.designed_fpr:
        return
    ratio = f.observed_fpr / f.designed_fpr
    evidence = evidence_of_excess(f.false_positives, f.designed_fpr * (f.negatives + f.false_positives))
    if ratio > FPR_FACTOR and evidence >= ENOUGH:
        yield Alarm(
            "filter_fpr", level.level, ratio, FPR_FACTOR,
            f"L{level.level}: false positive rate {f.observed_fpr:.3%}, {ratio:.1f} times the designed",
        )  # fmt: skip


def _useful_alarm(total: LevelStats) -> Iterable[Alarm]:
    useful, f = total.filter.useful_ratio, total.filter
    if useful is not None and f.checks >= MIN_CHECKS and useful < USEFUL_LIMIT:
        yield Alarm(
            "filter_useful", None, useful, USEFUL_LIMIT,
            f"only {useful:.0%} of filter checks said no; optimize_filters_for_hits would give memory back",
        )  # fmt: skip

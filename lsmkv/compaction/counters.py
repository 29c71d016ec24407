"""Counters of background work, as `db.background` shows them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from lsmkv.compaction.jobs import Result
from lsmkv.compaction.picker import CompactionPlan, PlanKind
from lsmkv_ext.port.latency import BOUNDS


def _no_durations() -> list[int]:
    return [0] * (len(BOUNDS) + 1)


def _count(buckets: list[int], ns: int) -> None:
    buckets[bisect_left(BOUNDS, ns / 1e9)] += 1


@dataclass
class Counters:
    """What background work did since the database was opened. Written with the version set's `lock` held."""

    flushes: int = 0
    flush_bytes: int = 0
    flush_ns: int = 0
    flush_entries: int = 0
    compactions: int = 0
    compaction_bytes_in: int = 0
    compaction_bytes_out: int = 0
    compaction_ns: int = 0
    compaction_entries_in: int = 0
    compaction_entries_out: int = 0
    moves: int = 0
    shifts: int = 0
    drops: int = 0
    expired_bytes: int = 0  # keys and values of expired entries that were dropped
    values_copied: int = 0  # out of value logs that are collected
    filter_rebuilds: int = 0
    filter_rebuild_bytes: int = 0
    filter_rebuild_ns: int = 0
    filter_build_ns: int = 0
    filter_verify_ns: int = 0
    errors: int = 0
    last_error: str | None = None
    stops: int = 0
    stop_ns: int = 0
    slowdowns: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    level_bytes_written: Counter[int] = field(default_factory=Counter)
    level_bytes_read: Counter[int] = field(default_factory=Counter)
    # How often it took how long, by the bounds in `lsmkv_ext.port.latency`.
    flush_buckets: list[int] = field(default_factory=_no_durations)
    compaction_buckets: list[int] = field(default_factory=_no_durations)
    stop_buckets: list[int] = field(default_factory=_no_durations)

    def flushed(self, result: Result) -> None:
        self.flushes += 1
        self.flush_bytes += result.bytes_written
        self.flush_entries += result.entries_out
        self.flush_ns += result.ns
        _count(self.flush_buckets, result.ns)
        self.level_bytes_written[0] += result.bytes_written
        self.expired_bytes += result.expired_bytes
        self._filters(result)

    def done(self, plan: CompactionPlan, result: Result) -> None:
        self.reasons[plan.reason] += 1
        self.expired_bytes += result.expired_bytes
        if plan.kind is PlanKind.MOVE:
            self.moves += 1
        elif plan.kind is PlanKind.SHIFT:
            self.shifts += 1
        elif plan.kind is PlanKind.DROP:
            self.drops += len(plan.upper)
        elif plan.kind is PlanKind.FILTERS:
            self.filter_rebuilds += 1
            self.filter_rebuild_bytes += result.bytes_written
            self.filter_rebuild_ns += result.ns
        else:
            self.compactions += 1
            self.values_copied += result.values_copied
            self.compaction_bytes_in += result.bytes_read
            self.compaction_bytes_out += result.bytes_written
            self.compaction_entries_in += result.entries_in
            self.compaction_entries_out += result.entries_out
            self.compaction_ns += result.ns
            _count(self.compaction_buckets, result.ns)
            self.level_bytes_read[plan.level] += result.bytes_read
            self.level_bytes_written[plan.output_level] += result.bytes_written
        self._filters(result)

    def stopped(self, ns: int, count: int = 1) -> None:
        """Writers were stopped for so long, `count` times that are not counted yet."""
        self.stops += count
        self.stop_ns += ns
        _count(self.stop_buckets, ns)

    def failed(self, what: str, error: BaseException) -> None:
        self.errors += 1
        self.last_error = f"{what}: {error}"

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def _filters(self, result: Result) -> None:
        self.filter_build_ns += result.filter_build_ns
        self.filter_verify_ns += result.filter_verify_ns


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Counter) else value

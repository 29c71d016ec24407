"""Medians over runs and repeats, confidence intervals, and ratios between engines."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from ..workloads.suites import HIDDEN

LATENCIES = ("p50", "p75", "p99", "p99.9", "p99.99", "max")
RESOURCES = ("rss_peak", "rss_anon", "disk", "write_amplification", "cpu_seconds", "settle_seconds")
MEASURES = {"wall": "micros_per_op", "cpu": "cpu_micros_per_op", "user": "user_micros_per_op"}

# Two-sided 95 % quantiles of Student's t by degrees of freedom, 1.96 beyond the table.
_T95 = "12.71 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131"
T95 = tuple(map(float, _T95.split()))


@dataclass(frozen=True)
class Summary:
    count: int
    mean: float
    median: float
    stdev: float
    half: float  # half width of the 95 % interval of the mean
    low: float
    high: float

    @property
    def spread(self) -> float:
        """(max - min) / median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(values: list[float]) -> Summary:
    n = len(values)
    if n == 0:
        raise ValueError("no values")
    stdev = statistics.stdev(values) if n > 1 else 0.0
    t = T95[n - 2] if 2 <= n <= len(T95) + 1 else 1.96
    half = t * stdev / n**0.5 if n > 1 else 0.0
    return Summary(n, statistics.fmean(values), statistics.median(values), stdev, half, min(values), max(values))


@dataclass(frozen=True)
class Cell:
    """One engine's results of one workload."""

    engine: str
    micros: Summary
    by_run: dict[int, float]  # microseconds per operation, the median of a run's repeats
    latency: dict[str, float]
    resources: dict[str, float | None]

    @property
    def ops_per_second(self) -> float:
        return 1e6 / self.micros.median if self.micros.median else 0.0


Row = dict[str, Cell]  # by engine


def rows(results: list[dict[str, Any]], measure: str = "wall") -> dict[str, Row]:
    """workload -> engine -> Cell, in order of appearance, without hidden steps. `measure`: a key of MEASURES."""
    field = MEASURES[measure]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        if result.get(field) is not None and result["workload"] not in HIDDEN:
            groups.setdefault((result["workload"], result["engine"]), []).append(result)
    table: dict[str, Row] = {}
    for (workload, engine), group in groups.items():
        table.setdefault(workload, {})[engine] = _cell(engine, group, field)
    return table


def _cell(engine: str, group: list[dict[str, Any]], field: str) -> Cell:
    latencies = [r["latency"] for r in group if "latency" in r]
    latency = {name: statistics.median(one[name] for one in latencies) for name in LATENCIES if latencies}
    resources = {name: _median([r.get(name) for r in group]) for name in RESOURCES}
    runs: dict[int, list[float]] = {}
    for r in group:
        runs.setdefault(r["run"], []).append(r[field])
    by_run = {run: statistics.median(values) for run, values in runs.items()}
    return Cell(engine, summarize([r[field] for r in group]), by_run, latency, resources)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(row: Row, peer: str, ours: str) -> float | None:
    """The peer's time per operation divided by ours, the median of the runs. Above 1 we are faster."""
    ratios = _ratios(row, peer, ours)
    return statistics.median(ratios) if ratios else None


def ratio_range(row: Row, peer: str, ours: str) -> tuple[float, float] | None:
    """The lowest and the highest ratio of the runs."""
    ratios = _ratios(row, peer, ours)
    return (min(ratios), max(ratios)) if ratios else None


def _ratios(row: Row, peer: str, ours: str) -> list[float]:
    """One per run: only results of the same run are comparable."""
    if peer not in row or ours not in row:
        return []
    theirs, mine = row[peer].by_run, row[ours].by_run
    return [theirs[run] / mine[run] for run in theirs if mine.get(run)]

"""From raw results to the peers table: medians over runs and repeats, ratios against the first engine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from .interval import Summary, summarize


@dataclass(frozen=True)
class Cell:
    """One engine at one workload."""

    engine: str
    workload: str
    micros: Summary
    by_run: dict[int, float]  # microseconds per operation, the median of a run's repeats
    latency: dict[str, float]
    resources: dict[str, float | None]
    mb_per_second: float | None
    threads: int

    @property
    def ops_per_second(self) -> float:
        return 1e6 / self.micros.median if self.micros.median else 0.0


LATENCIES = ("p50", "p75", "p99", "p99.9", "p99.99", "max")
RESOURCES = ("rss_peak", "rss_anon", "disk", "write_amplification", "cpu_seconds", "settle_seconds")


MEASURES = {"wall": "micros_per_op", "cpu": "cpu_micros_per_op"}


def cells(results: list[dict[str, Any]], by: str = "wall") -> dict[str, dict[str, Cell]]:
    """workload -> engine -> Cell, both in order of first appearance.

    By "cpu" an operation's time is what its thread spent on a processor: on a busy machine this leaves out
    the time lost to others, but also its own waiting (syncs, stalls).
    """
    measure = MEASURES[by]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        if result.get(measure) is not None:
            groups.setdefault((result["workload"], result["engine"]), []).append(result)
    table: dict[str, dict[str, Cell]] = {}
    for (workload, engine), group in groups.items():
        table.setdefault(workload, {})[engine] = _cell(engine, workload, group, measure)
    return table


def _cell(engine: str, workload: str, group: list[dict[str, Any]], measure: str) -> Cell:
    latency = {
        name: statistics.median(r["latency"][name] for r in group if "latency" in r)
        for name in LATENCIES
        if any("latency" in r for r in group)
    }
    resources = {name: _median([r.get(name) for r in group]) for name in RESOURCES}
    speeds = _median([r.get("mb_per_second") for r in group])
    micros = summarize([r[measure] for r in group])
    runs: dict[int, list[float]] = {}
    for r in group:
        runs.setdefault(r["run"], []).append(r[measure])
    by_run = {run: statistics.median(values) for run, values in runs.items()}
    return Cell(engine, workload, micros, by_run, latency, resources, speeds, group[0]["threads"])


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(row: dict[str, Cell], peer: str, ours: str) -> float | None:
    """The peer's time per operation over ours, the median of the runs: above 1, we are faster."""
    ratios = _ratios(row, peer, ours)
    return statistics.median(ratios) if ratios else None


def ratio_range(row: dict[str, Cell], peer: str, ours: str) -> tuple[float, float] | None:
    """The ratio at its worst and at its best over the runs."""
    ratios = _ratios(row, peer, ours)
    return (min(ratios), max(ratios)) if ratios else None


def _ratios(row: dict[str, Cell], peer: str, ours: str) -> list[float]:
    """One for each run, as only what was measured seconds apart can be compared."""
    if peer not in row or ours not in row:
        return []
    theirs, mine = row[peer].by_run, row[ours].by_run
    return [theirs[run] / mine[run] for run in theirs if mine.get(run)]

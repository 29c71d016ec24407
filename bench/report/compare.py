"""Comparison with an earlier result."""

from __future__ import annotations

from dataclasses import dataclass

from .results import Results
from .summary import rows
from .text import Table


@dataclass(frozen=True)
class Change:
    workload: str
    engine: str
    old: float
    new: float

    @property
    def slower(self) -> float:
        """0.1 means 10 % more time per operation; negative is faster."""
        return self.new / self.old - 1


def parse_percent(text: str) -> float:
    """`10%` or `0.1`."""
    stripped = text.strip()
    try:
        value = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    except ValueError:
        raise ValueError(f"not a percentage: {text!r} (use 10% or 0.1)") from None
    if value < 0:
        raise ValueError(f"a percentage cannot be negative: {text!r}")
    return value


def changes(old: Results, new: Results) -> list[Change]:
    """Changes of the medians, for each workload and engine that both results have."""
    before, after = rows(old.results), rows(new.results)
    return [
        Change(workload, engine, before[workload][engine].micros.median, cell.micros.median)
        for workload, row in after.items()
        if workload in before
        for engine, cell in row.items()
        if engine in before[workload] and before[workload][engine].micros.median
    ]


def regressions(found: list[Change], new: Results, limit: float) -> list[Change]:
    """Changes of the first engine beyond `limit`. Peers do not change with our code."""
    ours = next(iter(new.engines), None)
    return [change for change in found if change.engine == ours and change.slower > limit]


def change_table(found: list[Change]) -> Table:
    lines = [[c.workload, c.engine, f"{c.old:.3f}", f"{c.new:.3f}", f"{c.slower:+.1%}"] for c in found]
    return ["workload", "engine", "old us/op", "new us/op", "time"], lines

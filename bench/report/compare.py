"""Is the new result slower than the old one?"""

from __future__ import annotations

from dataclasses import dataclass

from ..runner import Gathered
from ..workloads.suites import HIDDEN
from .summary import cells


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
        raise ValueError(f"not a share: {text!r} (write 10% or 0.1)") from None
    if value < 0:
        raise ValueError(f"a share cannot be negative: {text!r}")
    return value


def changes(old: Gathered, new: Gathered) -> list[Change]:
    """Medians of every workload and engine that both results have."""
    before, after = cells(old.results), cells(new.results)
    return [
        Change(workload, engine, before[workload][engine].micros.median, cell.micros.median)
        for workload, row in after.items()
        if workload in before and workload not in HIDDEN
        for engine, cell in row.items()
        if engine in before[workload] and before[workload][engine].micros.median
    ]


def judged(found: list[Change], new: Gathered, limit: float) -> list[Change]:
    """Those that fail the comparison: the first engine's only, since peers do not change with our code."""
    ours = next((name for name in new.settings.engines if name in new.versions), None)
    return [change for change in found if change.engine == ours and change.slower > limit]


def change_rows(found: list[Change]) -> tuple[list[str], list[list[str]]]:
    rows = [[c.workload, c.engine, f"{c.old:.3f}", f"{c.new:.3f}", f"{c.slower:+.1%}"] for c in found]
    return ["workload", "engine", "old us/op", "new us/op", "time"], rows

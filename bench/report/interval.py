"""Summary of a few repeated measurements."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

# Two-sided 95 % points of Student's t by degrees of freedom; beyond the table 1.96 is near enough.
_T95 = (
    12.71,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)


@dataclass(frozen=True)
class Summary:
    count: int
    mean: float
    median: float
    stdev: float
    half: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """(max - min) / median: how far apart the runs lie."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(values: list[float]) -> Summary:
    """Mean, median, and the half width of the mean's 95 % interval (0 for a single value)."""
    n = len(values)
    if n == 0:
        raise ValueError("nothing to summarize")
    stdev = statistics.stdev(values) if n > 1 else 0.0
    t = _T95[n - 2] if 2 <= n <= len(_T95) + 1 else 1.96
    half = t * stdev / n**0.5 if n > 1 else 0.0
    return Summary(
        n, statistics.fmean(values), statistics.median(values), stdev, half, min(values), max(values)
    )

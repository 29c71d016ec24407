"""How many filter bits each level gets, and what they save: pure functions on the curves of the two kinds of filters.

A lookup probes one filter per run: each L0 table is a run, each deeper level is one. A probe for a key that the run
does not hold is wasted; a filter of b bits per key lets `curve.rate(b)` of these through, and each costs a wasted
read. A plan assigns bits per key to levels. It costs memory and leaves the sum over levels of (wasted probes) x (rate)
in wasted reads per lookup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from lsmkv import notebook
from lsmkv.filters.curves import BLOOM, MAX_SOLVED_BITS, Curve, bits_for_fpr, curve_for, designed_fpr, gain
from lsmkv.filters.kinds import kinds_of
from lsmkv_ext.filter.curve import k_for

__all__ = [
    "FilterPlan",
    "LevelPlan",
    "LevelShape",
    "best_bits",
    "bits_for_fpr",
    "bits_for_latency",
    "designed_fpr",
    "memory_bytes",
    "plan",
    "price_of",
    "shape",
    "solve_memory",
    "solve_rate",
    "summed_fpr",
]


@dataclass(frozen=True)
class LevelShape:
    """One level as a plan sees it. `weight`: wasted probes per lookup, None for one per run. `curve`: its filters."""

    entries: int
    runs: int = 1
    weight: float | None = None
    curve: Curve = BLOOM

    @property
    def wasted_probes(self) -> float:
        return float(self.runs) if self.weight is None else self.weight


# --- the solver ---


def price_of(bits: float, curve: Curve = BLOOM) -> float:
    """The gain per bit at which exactly `bits` are worth having."""
    return curve.price_of(bits)


def best_bits(weight: float, price: float, curve: Curve = BLOOM) -> float:
    """The bits per key worth having at `weight` wasted probes per lookup; 0: no filter."""
    return curve.best_bits(weight, price)


def _steps(levels: Sequence[LevelShape]) -> list[tuple[float, int, float, float]]:
    """(gain per bit of memory, level, from bits, to bits), the most useful first."""
    steps = []
    for number, level in enumerate(levels):
        if level.entries and level.wasted_probes > 0:
            for a, b in pairwise(level.curve.hull()):
                steps.append((level.wasted_probes * gain(a, b) / level.entries, number, a[0], b[0]))
    steps.sort(key=lambda step: (-step[0], step[1], step[2]))
    return steps


def solve_memory(levels: Sequence[LevelShape], memory: float) -> tuple[float, ...]:
    """Bits per key for each level: the least wasted reads within `memory` bytes."""
    bits = [0.0] * len(levels)
    left = memory * 8
    for _, number, start, stop in _steps(levels):
        entries = levels[number].entries
        if (stop - start) * entries > left:
            # Inside a step the rate still falls with every bit, so the rest is spent too.
            bits[number] = start + left / entries
            break
        bits[number] = stop
        left -= (stop - start) * entries
    # k is a whole number, so the curve has kinks, and the last step may end worse than an even spread.
    total = sum(level.entries for level in levels)
    even = min(memory * 8 / total, MAX_SOLVED_BITS) if total else 0.0
    uniform = [even if level.entries and level.wasted_probes > 0 else 0.0 for level in levels]
    return min(tuple(bits), tuple(uniform), key=lambda spread: summed_fpr(levels, spread))


def solve_rate(levels: Sequence[LevelShape], target: float) -> tuple[float, ...]:
    """Bits per key for each level: the least memory for at most `target` wasted reads per lookup.

    If even the largest filters miss the target, the largest.
    """
    bits = [0.0] * len(levels)
    total = summed_fpr(levels, bits)
    for _, number, start, stop in _steps(levels):
        if total <= target:
            break
        rate = levels[number].curve.rate
        total -= levels[number].wasted_probes * (rate(start) - rate(stop))
        bits[number] = stop
    return tuple(bits)


def summed_fpr(levels: Sequence[LevelShape], bits: Sequence[float]) -> float:
    """Wasted reads per lookup."""
    return math.fsum(
        level.wasted_probes * level.curve.rate(b) for level, b in zip(levels, bits, strict=True) if level.entries
    )


def memory_bytes(levels: Sequence[LevelShape], bits: Sequence[float]) -> int:
    return math.ceil(math.fsum(level.entries * b for level, b in zip(levels, bits, strict=True)) / 8)


def bits_for_latency(budget_us: float, *, absent: float, read_cost_us: float, runs: float = 1) -> float:
    """The bits per key at which wasted reads add at most `budget_us` to the mean lookup."""
    if not budget_us > 0 or not read_cost_us > 0 or not 0 <= absent <= 1 or not runs > 0:
        raise ValueError("budget, cost and runs must be positive, the absent fraction between 0 and 1")
    if absent * runs * read_cost_us <= budget_us:
        return 0.0
    return bits_for_fpr(budget_us / (absent * runs * read_cost_us))


# --- a plan for a tree that does not exist yet ---


def shape(
    n_keys: int,
    *,
    size_ratio: float = 10,
    depth: int | None = None,
    l0_runs: int = 4,
    run_entries: int = 500_000,
) -> tuple[LevelShape, ...]:
    """A full tree of `n_keys`: L0 and `depth` levels below, each `size_ratio` times the one above.

    Without `depth` it has as many levels as make L1 about as large as L0.
    """
    if n_keys < 0 or l0_runs < 0 or run_entries < 1 or not size_ratio > 1:
        raise ValueError("n_keys and l0_runs must not be negative, run_entries positive, size_ratio above 1")
    in_l0 = min(n_keys // 10, l0_runs * run_entries) if l0_runs else 0
    below = n_keys - in_l0
    if depth is None:
        depth = max(1, math.ceil(math.log(max(below / max(in_l0, run_entries), 1), size_ratio)))
    if depth < 1:
        raise ValueError("depth must be at least 1")
    parts = [size_ratio**i for i in range(depth)]
    entries = [int(below * part / sum(parts)) for part in parts]
    entries[-1] += below - sum(entries)
    return (LevelShape(in_l0, l0_runs), *(LevelShape(n) for n in entries))


def weighted(levels: Sequence[LevelShape], absent: float) -> tuple[LevelShape, ...]:
    """Sets the levels' wasted probes from `absent`, the share of lookups for keys that are not there.

    A present key lies in each level in proportion to its entries. Its lookup wastes probes of the runs above, and of
    half of the other runs in its own level.
    """
    if not 0 <= absent <= 1:
        raise ValueError(f"the absent fraction must be between 0 and 1, not {absent}")
    total = sum(level.entries for level in levels)
    deeper = total
    result = []
    for level in levels:
        here = level.entries / total if total else 0.0
        deeper -= level.entries
        below = deeper / total if total else 0.0
        present = (1 - absent) * (below * level.runs + here * max(level.runs - 1, 0) / 2)
        result.append(replace(level, weight=absent * level.runs + present))
    return tuple(result)


@dataclass(frozen=True)
class LevelPlan:
    level: int
    entries: int
    runs: int
    wasted_probes: float  # per lookup
    filter: str  # "bloom" or "fuse"
    bits_per_key: float
    k: int  # bits set per key; of fuse filters the width of a fingerprint, rounded to the next
    fpr: float
    memory_bytes: int


@dataclass(frozen=True)
class FilterPlan:
    """The result of `plan`. Rates are per lookup of the given mix of present and absent keys. The tool's JSON documents
    have these field names.
    """

    n_keys: int
    absent: float
    levels: tuple[LevelPlan, ...]
    memory_bytes: int
    average_bits_per_key: float
    summed_fpr: float  # wasted reads per lookup of an absent key
    wasted_reads_per_lookup: float
    reads_avoided_per_lookup: float
    wasted_microseconds_per_lookup: float
    wasted_reads_per_second: float | None
    reads_avoided_per_second: float | None
    memory_given_back: int  # by leaving out the filters of the bottom level

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        head = ("level", "entries", "runs", "wasted probes", "filter", "bits per key", "FPR", "MiB")
        rows = [
            (
                *(f"L{each.level}", f"{each.entries:,}", each.runs, f"{each.wasted_probes:.3f}", each.filter),
                *(f"{each.bits_per_key:.2f}", f"{each.fpr:.3%}", f"{each.memory_bytes / (1 << 20):,.1f}"),
            )
            for each in self.levels
        ]
        found = (
            f"{self.memory_bytes / (1 << 20):,.1f} MiB, {self.average_bits_per_key:.2f} bits per key, "
            f"{self.wasted_reads_per_lookup:.4f} wasted reads per lookup"
        )
        return notebook.table(rows, head) + notebook.paragraph(found)


def plan(
    n_keys: int,
    *,
    bits_per_key: float | Sequence[float] | str = 10.0,
    filter_memory: int | None = None,
    target_fpr: float | None = None,
    latency_budget_us: float | None = None,
    filter: str | Sequence[str] = "bloom",
    read_cost_us: float = 100.0,
    absent: float = 1.0,
    reads_per_second: float | None = None,
    optimize_filters_for_hits: bool = False,
    size_ratio: float = 10,
    depth: int | None = None,
    l0_runs: int = 4,
    run_entries: int = 500_000,
) -> FilterPlan:
    """Compute what the filters of a tree of `n_keys` cost and save.

    Give at most one of
    - `bits_per_key`: a number, a list from L0 on whose last entry continues, or "auto" for the best split of an
      average of 10,
    - `filter_memory`: bytes, split in the best way,
    - `target_fpr`: the wasted reads per lookup to reach with the least memory,
    - `latency_budget_us`: the mean time a lookup may lose to wasted reads of `read_cost_us` each.

    `filter` is the option of `lsmkv.open`. `absent` is the share of lookups for keys that are not there. Raises
    `ValueError` for arguments that do not fit.

    >>> lsmkv.plan(1_000_000, bits_per_key=10).memory_bytes
    1250000
    """
    tree = shape(n_keys, size_ratio=size_ratio, depth=depth, l0_runs=l0_runs, run_entries=run_entries)
    levels = _with_curves(weighted(tree, absent), filter, run_entries)
    bits = list(_bits(levels, bits_per_key, filter_memory, target_fpr, latency_budget_us, read_cost_us))
    given_back = memory_bytes(levels[-1:], bits[-1:])
    if optimize_filters_for_hits:
        bits[-1] = 0.0
    return _describe(n_keys, absent, levels, bits, given_back, read_cost_us, reads_per_second)


def _with_curves(levels: Sequence[LevelShape], filter: str | Sequence[str], table_keys: int) -> tuple[LevelShape, ...]:
    bottom = max((i for i, level in enumerate(levels) if level.entries), default=0)
    kinds = kinds_of(filter, len(levels), bottom)
    return tuple(
        replace(level, curve=curve_for(kind.fuse, min(level.entries // max(level.runs, 1), table_keys)))
        for level, kind in zip(levels, kinds, strict=True)
    )


def _bits(
    levels: Sequence[LevelShape],
    bits_per_key: float | Sequence[float] | str,
    filter_memory: int | None,
    target_fpr: float | None,
    latency_budget_us: float | None,
    read_cost_us: float,
) -> Sequence[float]:
    if sum(value is not None for value in (filter_memory, target_fpr, latency_budget_us)) > 1:
        raise ValueError("give only one of filter_memory, target_fpr and latency_budget_us")
    if filter_memory is not None:
        return solve_memory(levels, filter_memory)
    if target_fpr is not None:
        return solve_rate(levels, target_fpr)
    if latency_budget_us is not None:
        return solve_rate(levels, latency_budget_us / read_cost_us)
    if isinstance(bits_per_key, int | float):
        return [level.curve.taken(float(bits_per_key)) for level in levels]
    if isinstance(bits_per_key, str):
        if bits_per_key != "auto":
            raise ValueError(f'bits_per_key must be a number, a list or "auto", not {bits_per_key!r}')
        return solve_memory(levels, sum(level.entries for level in levels) * 10 / 8)
    last = len(bits_per_key) - 1
    return [level.curve.taken(bits_per_key[min(i, last)]) for i, level in enumerate(levels)]


def _describe(
    n_keys: int,
    absent: float,
    levels: Sequence[LevelShape],
    bits: Sequence[float],
    given_back: int,
    read_cost_us: float,
    reads_per_second: float | None,
) -> FilterPlan:
    wasted = summed_fpr(levels, bits)
    avoided = math.fsum(level.wasted_probes for level in levels if level.entries) - wasted
    memory = memory_bytes(levels, bits)
    return FilterPlan(
        n_keys=n_keys,
        absent=absent,
        levels=tuple(
            LevelPlan(
                level=number,
                entries=level.entries,
                runs=level.runs,
                wasted_probes=level.wasted_probes,
                filter="fuse" if level.curve.width(b) else "bloom",
                bits_per_key=b,
                k=round(level.curve.width(b)) or (k_for(b) if b else 0),
                fpr=level.curve.rate(b),
                memory_bytes=memory_bytes([level], [b]),
            )
            for number, (level, b) in enumerate(zip(levels, bits, strict=True))
        ),
        memory_bytes=memory,
        average_bits_per_key=memory * 8 / n_keys if n_keys else 0.0,
        summed_fpr=summed_fpr([replace(level, weight=None) for level in levels], bits),
        wasted_reads_per_lookup=wasted,
        reads_avoided_per_lookup=avoided,
        wasted_microseconds_per_lookup=wasted * read_cost_us,
        wasted_reads_per_second=None if reads_per_second is None else wasted * reads_per_second,
        reads_avoided_per_second=None if reads_per_second is None else avoided * reads_per_second,
        memory_given_back=given_back,
    )

"""The false positive rate of a filter by its bits per key, for both kinds of filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from lsmkv_ext.filter.curve import bits_for_fpr, designed_fpr
from lsmkv_ext.filter.fuse import min_keys, slots_for, width_for

__all__ = ["BLOOM", "Curve", "bits_for_fpr", "curve_for", "designed_fpr"]

# Beyond this (a rate of 0.0009 %) a larger Bloom filter costs time and memory and saves nothing measurable.
MAX_SOLVED_BITS = 30.0
_STEP = 0.05
# Widths of the fingerprints in a fuse filter.
MIN_WIDTH, MAX_WIDTH = 4, 16
# Of a large fuse filter: `bits_per_key` of this many times a width asks for this width.
SLOTS_PER_KEY = 1.125

Point = tuple[float, float]  # bits per key, rate


@dataclass(frozen=True)
class Curve:
    """The filters of one level. `slots_per_key` is that of its fuse filters; None: Bloom filters."""

    slots_per_key: float | None = None

    @property
    def fuse(self) -> bool:
        return self.slots_per_key is not None

    def width(self, bits: float) -> float:
        """The mean width of the fingerprints in fuse filters of `bits` per key; 0: too few bits, so Bloom filters."""
        if self.slots_per_key is None or bits < MIN_WIDTH * self.slots_per_key - 1e-9:
            return 0.0
        return min(max(bits / self.slots_per_key, float(MIN_WIDTH)), float(MAX_WIDTH))

    def rate(self, bits: float) -> float:
        """The mean rate of filters that have `bits` per key on average: a fuse filter has a whole width."""
        width = self.width(bits)
        if not width:
            return designed_fpr(bits)
        below = int(width)
        return float((1 - (width - below) / 2) * 2.0**-below)

    def taken(self, bits: float) -> float:
        """What a filter of given bits per key really takes: as many as its width needs."""
        width = width_for(bits) if self.fuse else 0
        return bits if not width or self.slots_per_key is None else width * self.slots_per_key

    def given(self, bits: float) -> float:
        """The `bits_per_key` to ask for where `bits` would be best: given bits are not met on average."""
        width = int(self.width(bits))
        return width * SLOTS_PER_KEY if width else bits

    def bits_for(self, rate: float) -> float:
        """The fewest bits per key of a filter whose rate is at most `rate`."""
        bits = bits_for_fpr(rate)
        if not self.fuse or not width_for(bits):
            return bits
        return min(max(math.ceil(-math.log2(rate)), MIN_WIDTH), MAX_WIDTH) * SLOTS_PER_KEY

    def hull(self) -> tuple[Point, ...]:
        """The lower convex hull of (bits, rate): the points that are best at some price of memory.

        The curve is not convex below about 2 bits: there the memory saves more elsewhere.
        """
        return _hull(self.slots_per_key)

    def price_of(self, bits: float) -> float:
        """The gain per bit at which exactly `bits` are worth having."""
        for a, b in pairwise(self.hull()):
            if bits <= b[0]:
                return gain(a, b)
        return 0.0

    def best_bits(self, weight: float, price: float) -> float:
        """The bits per key worth having at `weight` wasted probes per lookup; 0: no filter."""
        bits = 0.0
        for a, b in pairwise(self.hull()):
            if weight * gain(a, b) < price:
                break
            bits = b[0]
        return bits


BLOOM = Curve()


def gain(a: Point, b: Point) -> float:
    """Rate saved per bit between two points of a curve."""
    return (a[1] - b[1]) / (b[0] - a[0])


def curve_for(fuse: bool, keys: int) -> Curve:
    """The curve of tables of `keys` keys each. The slots per key are rounded: they change a little with every table."""
    if not fuse or keys < min_keys():
        return BLOOM
    return Curve(round(slots_for(keys) / keys, 2))


@lru_cache(maxsize=64)
def _hull(slots_per_key: float | None) -> tuple[Point, ...]:
    hull: list[Point] = []
    for point in _points(slots_per_key):
        while len(hull) >= 2 and gain(hull[-2], hull[-1]) <= gain(hull[-1], point):
            hull.pop()
        hull.append(point)
    return tuple(hull)


def _points(slots_per_key: float | None) -> Sequence[Point]:
    last = MAX_SOLVED_BITS if slots_per_key is None else MIN_WIDTH * slots_per_key
    points = [(i * _STEP, designed_fpr(i * _STEP)) for i in range(round(last / _STEP) + 1) if i * _STEP <= last - 0.01]
    if slots_per_key is None:
        return [*points, (last, designed_fpr(last))]
    return [*points, *((w * slots_per_key, 2.0**-w) for w in range(MIN_WIDTH, MAX_WIDTH + 1))]

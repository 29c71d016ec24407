"""Keys on an axis from 0 to 1, for drawing tables over their key range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DIGITS = 12


def _shared_prefix(a: bytes, b: bytes) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class KeyAxis:
    """Maps keys between the smallest and the largest bound to 0..1, in order.

    Each byte position counts only the range of byte values that the bounds suggest for it. Thus `user00000` to
    `user99999` spread evenly, although they use ten of 256 byte values.
    """

    def __init__(self, bounds: Iterable[bytes]) -> None:
        keys = sorted(set(bounds))
        self.common = _shared_prefix(keys[0], keys[-1]) if len(keys) > 1 else 0
        tails = [key[self.common : self.common + DIGITS] for key in keys]
        self.ranges = [self._byte_range([tail[i] for tail in tails if len(tail) > i]) for i in range(DIGITS)]
        self.low = self._raw(keys[0]) if keys else 0.0
        self.high = self._raw(keys[-1]) if keys else 0.0

    @staticmethod
    def _byte_range(values: Sequence[int]) -> tuple[int, int]:
        if not values:
            return 0, 255
        # Digits in all bounds suggest digits in the keys between them; likewise letters.
        for low, high in ((48, 57), (97, 122), (48, 122)):
            if min(values) >= low and max(values) <= high:
                return low, high
        return 0, 255

    def _raw(self, key: bytes) -> float:
        x, scale = 0.0, 1.0
        for (low, high), byte in zip(self.ranges, key[self.common : self.common + DIGITS], strict=False):
            base = high - low + 2  # one more for keys that end before this byte
            x += scale * (min(max(byte, low), high) - low + 1) / base
            scale /= base
        return x

    def __call__(self, key: bytes) -> float:
        if self.high <= self.low:
            return 0.0
        return min(1.0, max(0.0, (self._raw(key) - self.low) / (self.high - self.low)))


def draw_spans(spans: Sequence[tuple[float, float]], width: int) -> str:
    """Draw spans as a line of text. Neighbours alternate # and =; a digit counts overlapping spans."""
    cells = [0] * width
    text = [" "] * width
    for i, (start, stop) in enumerate(sorted(spans)):
        first = min(width - 1, int(start * width))
        last = max(first, min(width - 1, int(stop * width - 1e-9)))
        for x in range(first, last + 1):
            cells[x] += 1
            if cells[x] == 1:
                text[x] = "#" if i % 2 == 0 else "="
            else:
                text[x] = str(cells[x]) if cells[x] < 10 else "+"
    return "".join(text)

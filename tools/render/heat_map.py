"""Heat maps of a filter: the share of set bits in each 512-bit block.

A cell averages neighbouring blocks, because a filter may have millions. The colour scale is fixed: a colour
means the same fill in every map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MAX_CELLS = 256 * 128
LOW, HIGH = 0.0, 0.75
SHADES = " .:-=+*#%@"
# Dark blue (empty) through green and yellow to red (overfull), evenly spaced over LOW..HIGH.
STOPS = (
    (13, 27, 62),
    (30, 91, 140),
    (38, 150, 132),
    (122, 196, 80),
    (240, 205, 60),
    (235, 120, 45),
    (190, 30, 45),
)


def colour(fill: float) -> tuple[int, int, int]:
    x = min(1.0, max(0.0, (fill - LOW) / (HIGH - LOW))) * (len(STOPS) - 1)
    i = min(int(x), len(STOPS) - 2)
    a, b, t = STOPS[i], STOPS[i + 1], x - i
    return (round(a[0] + (b[0] - a[0]) * t), round(a[1] + (b[1] - a[1]) * t), round(a[2] + (b[2] - a[2]) * t))


def shade(fill: float) -> str:
    x = min(1.0, max(0.0, (fill - LOW) / (HIGH - LOW)))
    return SHADES[min(len(SHADES) - 1, int(x * len(SHADES)))]


def cells(fills: Sequence[float], limit: int) -> list[float]:
    """Average equal runs of blocks, to at most `limit` cells."""
    n = len(fills)
    if n <= limit:
        return list(fills)
    out = []
    for i in range(limit):
        start, stop = i * n // limit, (i + 1) * n // limit
        out.append(sum(fills[start:stop]) / (stop - start))
    return out


def rows(values: Sequence[T], width: int) -> list[Sequence[T]]:
    return [values[i : i + width] for i in range(0, len(values), width)]


def plain(fills: Sequence[float], width: int = 64, height: int = 16) -> list[str]:
    return ["".join(shade(f) for f in row) for row in rows(cells(fills, width * height), width)]


def coloured(fills: Sequence[float], width: int = 64, height: int = 16) -> list[str]:
    """Draw two map rows per terminal line: an upper half block over a background colour."""
    grid = rows(cells(fills, width * height * 2), width)
    lines = []
    for y in range(0, len(grid), 2):
        upper, lower = grid[y], grid[y + 1] if y + 1 < len(grid) else ()
        line = []
        for x, fill in enumerate(upper):
            r, g, b = colour(fill)
            back = "\x1b[49m"
            if x < len(lower):
                back = "\x1b[48;2;{};{};{}m".format(*colour(lower[x]))
            line.append(f"\x1b[38;2;{r};{g};{b}m{back}▀")
        lines.append("".join(line) + "\x1b[0m")
    return lines


def grid(n: int) -> tuple[int, int]:
    """Return the (width, height) of a map of `n` blocks: up to four times as wide as high, with few cells lost."""
    n = min(n, MAX_CELLS)
    root = math.sqrt(n)
    widths = range(math.ceil(root), max(math.ceil(root), int(2 * root)) + 1)
    width = min(widths, key=lambda width: (n % width, width))
    return width, n // width


def png(fills: Sequence[float], size: int = 0) -> bytes:
    """Return a picture with a pixel per cell, or about `size` pixels wide with square cells."""
    from lsmkv_tool.render.png import encode

    width, height = grid(len(fills))
    scale = max(1, round(size / width))
    drawn = [colour(fill) for fill in cells(fills, width * height)]
    lines = [b"".join(bytes(each) * scale for each in row) * scale for row in rows(drawn, width)]
    return encode(width * scale, height * scale, b"".join(lines))

"""The ratios of a run as a bar chart in SVG, for the README."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from .results import Results
from .summary import Row, ratio, rows

Scale = Callable[[float], float]  # from a ratio to its x coordinate

NAMES = {"rocksdb": "RocksDB", "leveldb": "LevelDB", "lmdb": "LMDB"}
COLOURS = ("#3b82c4", "#d9822b", "#3a9d6e", "#9a6fc4", "#8a8f98")  # legible on white and on black
# The default greys are legible on white and on black, for viewers without media queries.
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #768390; }
.title { font-size: 15px; font-weight: 600; }
.value { font-size: 10px; }
line { stroke: #768390; stroke-opacity: 0.35; }
line.one { stroke-opacity: 1; }
@media (prefers-color-scheme: light) { text { fill: #59636e; } .strong { fill: #25292e; } }
@media (prefers-color-scheme: dark) { text { fill: #9198a1; } .strong { fill: #d1d7e0; } }
"""
WIDTH, LEFT, RIGHT, TOP = 860, 230, 44, 86
BAR, GAP = 10, 10  # heights of a bar and of the gap between workloads
LOWEST = 0.5  # lower ratios end in an arrow


def ratio_figure(results: Results) -> str:
    """A bar per workload and peer, from 1 to the peer's time per operation divided by ours, on a log scale."""
    ours, *peers = results.engines
    if not peers:
        raise ValueError(f"--figure needs an engine to compare {ours} with")
    table = {name: row for name, row in rows(results.results).items() if ours in row and len(row) > 1}
    highest = max((ratio(row, peer, ours) or 1 for row in table.values() for peer in peers), default=1) * 1.1
    group = BAR * len(peers) + GAP
    bottom = TOP + group * len(table)

    def x(value: float) -> float:
        share = math.log(max(value, LOWEST) / LOWEST) / math.log(highest / LOWEST)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    parts = [*_head(results, ours, peers), *_axis(x, highest, bottom)]
    for i, (workload, row) in enumerate(table.items()):
        parts += _group(row, workload, ours, peers, TOP + group * i + GAP / 2, x)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" width="{WIDTH}" role="img">\n'
        f"<title>Speed of {ours} relative to its peers</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _head(results: Results, ours: str, peers: list[str]) -> list[str]:
    s = results.settings
    runs = "one run" if s.runs == 1 else f"median of {s.runs} runs"
    facts = f"{s.num:,} records of {s.key_size} + {s.value_size} bytes, {runs}, {results.machine['date'][:10]}"
    parts = [
        _text(12, 24, f"Speed of {ours} relative to its peers", "strong title"),
        _text(12, 44, f"{facts}. Log scale; right of 1x {ours} is faster. Left: its time per operation."),
    ]
    at = LEFT
    for peer, colour in zip(peers, _colours(peers), strict=True):
        parts.append(f'<rect x="{at}" y="56" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(at + 18, 66, NAMES.get(peer, peer), "strong"))
        at += 96
    return parts


def _colours(peers: list[str]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(peers))]


def _axis(x: Scale, highest: float, bottom: float) -> list[str]:
    parts = []
    for power in range(math.ceil(math.log2(LOWEST)), math.floor(math.log2(highest)) + 1):
        value = 2.0**power
        kind = ' class="one"' if value == 1 else ""
        at = x(value)
        parts.append(f'<line x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}"{kind}/>')
        parts.append(_text(at, bottom + 18, f"{value:g}x", anchor="middle"))
    return parts


def _group(row: Row, workload: str, ours: str, peers: list[str], top: float, x: Scale) -> list[str]:
    middle = top + BAR * len(peers) / 2 + 4
    parts = [
        _text(LEFT - 80, middle, workload, "strong", "end"),
        _text(LEFT - 14, middle, _time(row[ours].micros.median), anchor="end"),
    ]
    one = x(1)
    for i, (peer, colour) in enumerate(zip(peers, _colours(peers), strict=True)):
        times, y = ratio(row, peer, ours), top + i * BAR
        end = x(times or 1)
        if times is not None:
            left, width = min(one, end), round(abs(end - one), 1)
            parts.append(f'<rect x="{left}" y="{y}" width="{width}" height="{BAR - 1}" fill="{colour}"/>')
            if times < LOWEST:
                parts.append(f'<path d="M{end} {y}l-6 {(BAR - 1) / 2}l6 {(BAR - 1) / 2}z" fill="{colour}"/>')
        label = "-" if times is None else f"{times:.2f}x" if times < 1 else f"{times:.1f}x"
        parts.append(_text(max(one, end) + 4, y + BAR - 1, label, "value"))
    return parts


def _time(micros: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if micros >= size:
            return f"{micros / size:.3g} {unit}"
    return f"{micros:.2g} µs"


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'

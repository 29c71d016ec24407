"""HTML fragments of the report: escaped text, tables, SVG charts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from lsmkv_tool.render import heat_map
from lsmkv_tool.render.columns import Column, Row

BLUE, LIGHT, GREEN, RED, GREY = "#1e5b8c", "#6fa3c8", "#26966f", "#be1e2d", "#dde4ea"
WIDTH = 1060


def page(**parts: str) -> str:
    return Template(files("lsmkv_tool.render").joinpath("report.html").read_text("utf-8")).substitute(parts)


def section(title: str, *body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(body)}</section>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def alarm(text: str) -> str:
    return f'<p class="alarm">{escape(text)}</p>'


def tile(value: str, name: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    def cell(tag: str, text: str, right: bool) -> str:
        return f"<{tag}{' class=r' if right else ''}>{escape(text)}</{tag}>"

    head = "".join(cell("th", column.title, column.right) for column in columns)
    body = "".join(
        "<tr>" + "".join(cell("td", column.cell(row), column.right) for column in columns) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def rect(x: float, y: float, w: float, h: float, fill: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.8):.1f}" height="{h:.1f}"'
    return f'<rect {box} rx="2" fill="{fill}">{inner}</rect>'


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def svg(height: float, *parts: str, width: float = WIDTH) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img">{"".join(parts)}</svg>'


def tree(levels: Sequence[dict[str, Any]]) -> str:
    """Draw each file as a bar over the key range. A level is {label, note, lanes of (start, stop, title)}."""
    left, right, lane_height, y = 70, 150, 15, 6.0
    span = WIDTH - left - right
    parts = []
    for level in levels:
        lanes = level["lanes"] or [[]]
        block = lane_height * len(lanes)
        parts.append(text(0, y + block / 2 + 4, level["label"]))
        parts.append(text(WIDTH, y + block / 2 + 4, level["note"], "end"))
        parts.append(rect(left, y, span, block, "#eef2f5"))
        for lane, files_ in enumerate(lanes):
            for i, (start, stop, title) in enumerate(files_):
                parts.append(
                    rect(
                        left + start * span + 0.5,
                        y + lane * lane_height + 1.5,
                        (stop - start) * span - 1,
                        lane_height - 3,
                        BLUE if i % 2 == 0 else LIGHT,
                        title,
                    )
                )
        y += block + 10
    return svg(y, *parts)


def bars(rows: Sequence[tuple[str, Sequence[tuple[float, str, str]]]]) -> str:
    """Draw horizontal bars on one scale, from (label, [(value, colour, text), ...]) per row."""
    top = max((value for _, values in rows for value, _, _ in values), default=0.0) or 1.0
    left, y, parts = 190, 4.0, []
    span = WIDTH - left - 170
    for label, values in rows:
        parts.append(text(0, y + 8 * len(values) + 4, label))
        for value, colour, words in values:
            width = span * value / top
            parts.append(rect(left, y, width, 12, colour))
            parts.append(text(left + max(width, 1) + 8, y + 10, words))
            y += 16
        y += 8
    return svg(y, *parts)


def heat_picture(fills: Sequence[float], title: str, detail: str) -> str:
    data = base64.b64encode(heat_map.png(fills, width=64, scale=1)).decode()
    image = f'<img alt="filter fill of {escape(title)}" src="data:image/png;base64,{data}">'
    return f'<div class="map">{image}<b>{escape(title)}</b>{escape(detail)}</div>'


def heat_scale() -> str:
    steps = ", ".join(
        "rgb({},{},{}) {}%".format(*stop, round(100 * i / (len(heat_map.STOPS) - 1)))
        for i, stop in enumerate(heat_map.STOPS)
    )
    return (
        f'<div class="scale" style="background:linear-gradient(to right, {steps})"></div>'
        f'<div class="ends"><span>{heat_map.LOW:.0%} full</span><span>{heat_map.HIGH:.0%}</span></div>'
    )


def maps(items: Sequence[str]) -> str:
    return f'<div class="maps">{"".join(items)}</div>'

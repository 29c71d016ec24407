"""HTML fragments of the report: escaped text, tables, charts.

Charts are boxes whose sizes are percentages, not pictures, so that their labels stay legible on a phone. Colours are
classes, which the style sheet defines for light and dark.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from lsmkv_tool.render import heat_map
from lsmkv_tool.render.columns import Column, Row

# On a phone, columns of this rank or more are left out.
PHONE_RANK = 1
_CODE = re.compile("`([^`]+)`")

Bar = tuple[float, str, str]  # value, class of the colour, text


def page(**parts: str) -> str:
    return Template(files("lsmkv_tool.render").joinpath("report.html").read_text("utf-8")).substitute(parts)


def section(title: str, *body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(body)}</section>"


def heading(title: str) -> str:
    return f"<h3>{escape(title)}</h3>"


def prose(text: str) -> str:
    """Escape a text. What stands in `backticks` is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def note(text: str) -> str:
    return f'<p class="note">{prose(text)}</p>'


def alarm(text: str) -> str:
    return f'<p class="alarm">{prose(text)}</p>'


def verdict(kind: str, title: str, text: str, items: Sequence[tuple[str, str]]) -> str:
    """The card on top. `kind` and those of the items (kind, text) are "good", "warning", "bad" or "note"."""
    listed = "".join(f'<li class="{each}">{prose(words)}</li>' for each, words in items)
    return (
        f'<div class="verdict {kind}"><h2>{escape(title)}</h2><p>{prose(text)}</p>'
        f"{f'<ul>{listed}</ul>' if listed else ''}</div>"
    )


def tile(value: str, name: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f"<dl>{listed}</dl>"


def columns(*parts: str) -> str:
    """Put parts beside each other, or below each other on a narrow screen."""
    return f'<div class="columns">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def details(title: str, *body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{''.join(body)}</details>"


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    shown = [c for c in columns if not c.hide_empty or any(row.get(c.name) is not None for row in rows)]

    def cell(tag: str, column: Column, text: str) -> str:
        classes = [name for name, wanted in (("r", column.right), ("more", column.rank >= PHONE_RANK)) if wanted]
        classes += ["prose"] if column.prose else []
        named = f' class="{" ".join(classes)}"' if classes else ""
        return f"<{tag}{named}>{escape(text)}</{tag}>"

    head = "".join(cell("th", column, column.title) for column in shown)
    by_column = [column.cells(rows) for column in shown]
    body = "".join(
        f"<tr>{''.join(cell('td', column, cells[i]) for column, cells in zip(shown, by_column, strict=True))}</tr>"
        for i in range(len(rows))
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def percent(part: float) -> str:
    return f"{100 * part:.2f}%"


def bars(rows: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Draw horizontal bars on one scale, from a label and its bars per row."""
    top = max((value for _, values in rows for value, _, _ in values), default=0.0) or 1.0
    parts = []
    for label, values in rows:
        drawn = "".join(
            f'<div class="track"><i class="{colour}" style="width:{percent(value / top)}"></i></div>'
            f'<div class="value">{escape(words)}</div>'
            for value, colour, words in values
        )
        parts.append(f'<div class="bar"><div class="label">{escape(label)}</div><div class="drawn">{drawn}</div></div>')
    return f'<div class="bars">{"".join(parts)}</div>'


def legend(*items: tuple[str, str]) -> str:
    """Explain colours, from (class, text) pairs."""
    listed = "".join(f'<span><i class="{colour}"></i>{escape(words)}</span>' for colour, words in items)
    return f'<p class="legend">{listed}</p>'


def tree(levels: Sequence[dict[str, Any]], ticks: Sequence[tuple[float, str]]) -> str:
    """Draw each file as a bar over the key range, with keys below.

    A level is {label, note, lanes of (start, stop, title)}; a tick is (place, key).
    """
    parts = []
    for level in levels:
        lanes = "".join(
            '<div class="lane">'
            + "".join(
                f'<i class="{("blue", "light")[i % 2]}" title="{escape(title)}" '
                f'style="left:{percent(start)};width:{percent(max(stop - start, 0.001))}"></i>'
                for i, (start, stop, title) in enumerate(bars_)
            )
            + "</div>"
            for bars_ in level["lanes"]
        )
        parts.append(
            f'<div class="level"><b>{escape(level["label"])}</b><div class="lanes">{lanes}</div>'
            f"<span>{escape(level['note'])}</span></div>"
        )
    keys = "".join(
        f'<code class="{"first" if not at else "last" if at == 1 else "middle"}" style="left:{percent(at)}">'
        f"{escape(key)}</code>"
        for at, key in ticks
    )
    return (
        f'<div class="tree">{"".join(parts)}<div class="level keys"><b></b><div class="ticks">{keys}</div></div></div>'
    )


def heat_picture(fills: Sequence[float], title: str, detail: str) -> str:
    data = base64.b64encode(heat_map.png(fills)).decode()
    image = f'<img alt="filter fill of {escape(title)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption><b>{escape(title)}</b> {escape(detail)}</figcaption></figure>"


def heat_scale() -> str:
    steps = ", ".join(
        "rgb({},{},{}) {}%".format(*stop, round(100 * i / (len(heat_map.STOPS) - 1)))
        for i, stop in enumerate(heat_map.STOPS)
    )
    return (
        f'<div class="scale" style="background:linear-gradient(to right, {steps})"></div>'
        f'<div class="ends"><span>{heat_map.LOW:.0%} of the bits set</span><span>{heat_map.HIGH:.0%}</span></div>'
    )


def maps(items: Sequence[str]) -> str:
    return f'<div class="maps">{"".join(items)}</div>'

"""Fits a table into the width of a terminal, without breaking a number or a name."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from lsmkv_tool.render.columns import Column, Row

GAP = 2
MIN_KEY, MIN_PROSE = 16, 16
ELLIPSIS = "…"
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[KMGT]?i?B|[num]?s|min|h)(?:[,;.)/\s]|$))")


@dataclass
class Fitted:
    """A table as lines: per row, and for the heading, the lines of each cell."""

    columns: list[Column]
    widths: list[int]
    heading: list[list[str]]
    rows: list[list[list[str]]]
    left_out: list[str] = field(default_factory=list)


def text_width(text: str) -> int:
    """Return the number of terminal columns of a text. East Asian characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """Replace the middle of a text by an ellipsis. Both ends of a key tell it from its neighbours."""
    if text_width(text) <= width:
        return text
    if not text.isascii():
        from rich.cells import set_cell_size

        return set_cell_size(text, width - 1).rstrip() + ELLIPSIS
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + text[len(text) - tail :]


def wrap(text: str, width: int) -> list[str]:
    """Break a text between words, but not between a number and its unit. A longer word gets a line of its own."""
    glued = _UNIT.sub("\xa0", text)
    wrapper = textwrap.TextWrapper(max(1, width), break_long_words=False, break_on_hyphens=False)
    lines = [line for paragraph in glued.split("\n") for line in wrapper.wrap(paragraph) or [""]]
    return [line.replace("\xa0", " ") for line in lines]


def fit(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> Fitted:
    """Lay out the rows in `width` terminal columns, or without a limit.

    Too wide a table gets two-line headings first, then shorter keys and wrapped prose, and then loses columns by
    rank.
    """
    shown = [c for c in columns if not c.hide_empty or any(row.get(c.name) is not None for row in rows)]
    cells = {column: column.cells(rows) for column in shown}
    full = {column: max([text_width(column.title), *map(text_width, cells[column])]) for column in shown}
    least = {column: _least(column, cells[column]) for column in shown}
    left_out = []
    while width is not None and _total([least[column] for column in shown]) > width:
        last = max(reversed(shown), key=lambda column: column.rank)
        if not last.rank:
            break
        shown.remove(last)
        left_out.append(last)
    widths = [full[column] for column in shown]
    if width is not None:
        _shrink(widths, [least[column] for column in shown], width)
    return Fitted(
        shown,
        widths,
        [wrap(column.title, size) for column, size in zip(shown, widths, strict=True)],
        [
            [_lines(column, cells[column][i], size) for column, size in zip(shown, widths, strict=True)]
            for i in range(len(rows))
        ],
        [column.title for column in columns if column in left_out],
    )


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _least(column: Column, cells: Sequence[str]) -> int:
    """Return how narrow a column may become."""
    needed = max(map(text_width, cells), default=0)
    if column.key:
        needed = min(needed, MIN_KEY)
    if column.prose:
        words = (text_width(word) for cell in cells for word in cell.split())
        needed = min(needed, max(MIN_PROSE, *words, 0))
    return max([needed, *map(text_width, column.title.split())])


def _shrink(widths: list[int], least: Sequence[int], width: int) -> None:
    """Take from the columns that have most to give until the table fits."""
    excess = _total(widths) - width
    while excess > 0:
        widest = max(range(len(widths)), key=lambda i: widths[i] - least[i])
        if widths[widest] <= least[widest]:
            return
        widths[widest] -= 1
        excess -= 1


def _lines(column: Column, cell: str, width: int) -> list[str]:
    if column.prose:
        return wrap(cell, width)
    return [shorten(cell, width) if column.key else cell]

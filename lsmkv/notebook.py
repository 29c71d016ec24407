"""HTML for notebooks: what `_repr_html_` of statistics, traces, plans, options and databases consists of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = Sequence[object]


def escape(text: object) -> str:
    from html import escape  # needed by notebooks alone

    return escape(str(text))


def table(rows: Iterable[Row], head: Row | None = None) -> str:
    """A table of plain text, below the headings if there are any."""
    lines = [_line(row, "td") for row in rows]
    headings = [] if head is None else [_line(head, "th")]
    return f"<table>{''.join([*headings, *lines])}</table>"


def paragraph(text: object) -> str:
    return f"<p>{escape(text)}</p>"


def _line(row: Row, tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"

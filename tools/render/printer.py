"""Text output: aligned columns in a pipe, rich tables on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from lsmkv_tool.render.columns import Column, Row


def to_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Printer:
    """Prints to stdout. `terminal` selects rich tables, `colour` escape sequences."""

    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal
        self.colour = terminal and not os.environ.get("NO_COLOR")

    def line(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")

    def heading(self, text: str) -> None:
        self.line(f"\x1b[1m{text}\x1b[0m" if self.colour else text)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        shown = [(name, to_text(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{name:<{width}}  {value}")

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        rows = list(rows)
        columns = [c for c in columns if not c.hide_empty or any(row.get(c.name) is not None for row in rows)]
        cells = [[column.cell(row) for column in columns] for row in rows]
        if self.terminal:
            self._rich(columns, cells)
        else:
            self._aligned(columns, cells)

    def _aligned(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
        grid = [[column.title for column in columns], *cells]
        widths = [max(len(row[i]) for row in grid) for i in range(len(columns))]
        for row in grid:
            parts = [
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(row, widths, columns, strict=True)
            ]
            self.line("  ".join(parts).rstrip())

    def _rich(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
        for row in cells:
            table.add_row(*[Text(cell) for cell in row])
        Console(file=sys.stdout).print(table)

"""Text output: aligned columns and wrapped sentences, with colours on a terminal."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from lsmkv_tool.render import fit
from lsmkv_tool.render.columns import Column, Row

MIN_WIDTH = 40


def to_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def output_width(terminal: bool) -> int | None:
    """Return the width of the terminal; in a pipe that of COLUMNS, or None for no limit."""
    if not terminal and not os.environ.get("COLUMNS", "").isdigit():
        return None
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


class Printer:
    """Prints to stdout. `colour` selects escape sequences, `wide` lifts the limit of the line length."""

    def __init__(self, terminal: bool, wide: bool = False) -> None:
        self.terminal = terminal
        self.colour = terminal and not os.environ.get("NO_COLOR")
        self.width = None if wide else output_width(terminal)

    def line(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")

    def sentence(self, text: str, first: str = "", indent: str | None = None) -> None:
        """Print a text wrapped between words: `first` before its first line, `indent` before the others."""
        indent = " " * len(first) if indent is None else indent
        lines = [text] if self.width is None else fit.wrap(text, self.width - max(len(first), len(indent)))
        for i, part in enumerate(lines):
            self.line((indent if i else first) + part)

    def heading(self, text: str) -> None:
        self.line(self._bold(text))

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        shown = [(name, to_text(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.sentence(value, f"{name:<{width}}  ")

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Print a table. On a terminal that is too narrow, say which columns are left out."""
        found = fit.fit(columns, list(rows), self.width)
        for line in _aligned(found, found.heading, bottom=True):
            self.heading(line)
        if self.terminal:
            self.line(self._dim("─" * (sum(found.widths) + fit.GAP * (len(found.widths) - 1))))
        for row in found.rows:
            for line in _aligned(found, row):
                self.line(line)
        if found.left_out:
            self.line(self._dim(f"({', '.join(found.left_out)}: with --wide)"))

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def _dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


def _aligned(found: fit.Fitted, cells: Sequence[Sequence[str]], bottom: bool = False) -> Iterable[str]:
    """Yield the lines of a row, whose cells may have several."""
    height = max(map(len, cells), default=0)
    padded = [[""] * (height - len(cell)) + list(cell) if bottom else cell for cell in cells]
    for parts in itertools.zip_longest(*padded, fillvalue=""):
        yield "  ".join(
            _justify(part, width, column.right)
            for part, width, column in zip(parts, found.widths, found.columns, strict=True)
        ).rstrip()


def _justify(text: str, width: int, right: bool) -> str:
    space = " " * (width - fit.text_width(text))
    return space + text if right else text + space

"""What a command prints: tables for people, one JSON document (`--json`), or JSON lines (`--jsonl`).

The document is {"schema", "command", "result", "error", "exit"}: `result` is absent when nothing was found
out, `error` unless something failed. With --jsonl each row is one line and errors go to stderr alone.
Adding a field keeps the schema's number; renaming, retyping or removing one raises it.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lsmkv_tool import exits, keys

SCHEMA = "lsmkv-tool/1"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a listing: its heading, the row's field, and how a person reads it."""

    title: str
    name: str
    show: Callable[[Any], str] = str
    right: bool = False
    rare: bool = False  # left out of the table where no row has it

    def cell(self, row: Row) -> str:
        value = row.get(self.name)
        return "-" if value is None else self.show(value)


def rare(title: str, name: str) -> Column:
    return Column(title, name, rare=True)


def num(title: str, name: str, show: Callable[[Any], str] = str) -> Column:
    return Column(title, name, show, right=True)


def clean(value: Any) -> Any:
    """JSON has no NaN and no infinity; bytes that reach this point are shown as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return keys.quote(value)
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(v) for v in value]
    return value


def dumps(value: Any) -> str:
    return json.dumps(clean(value), allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> str:
    """One value for a person who asked for no particular unit."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Human:
    """Plain aligned text when piped; rich tables on a terminal."""

    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def line(self, text: str = "") -> None:
        sys.stdout.write(text + "\n")

    def heading(self, text: str) -> None:
        self.line(f"\x1b[1m{text}\x1b[0m" if self.terminal and not os.environ.get("NO_COLOR") else text)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        shown = [(name, plain(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{name:<{width}}  {value}")

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        rows = list(rows)
        columns = [c for c in columns if not c.rare or any(row.get(c.name) is not None for row in rows)]
        cells = [[column.cell(row) for column in columns] for row in rows]
        if self.terminal:
            self._rich(columns, cells)
        else:
            self._plain(columns, cells)

    def _plain(self, columns: Sequence[Column], cells: list[list[str]]) -> None:
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


@dataclass
class Output:
    """One command's run: where its data goes, and the exit code it ends with."""

    command: str
    mode: str = "human"
    key_format: str = "quoted"
    value_format: str = "quoted"
    yes: bool = False
    exit: int = exits.FINE
    human: Human = field(init=False)
    _begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.human = Human(self.mode == "human" and sys.stdout.isatty())
        self.key = keys.formatter(self.key_format)
        self.value = keys.formatter(self.value_format)

    @property
    def is_human(self) -> bool:
        return self.mode == "human"

    def key_text(self, key: bytes | None) -> str:
        """A key as a cell of a table for people."""
        shown = self.key(key)
        return "-" if shown is None else str(shown)

    def result(self, data: Row, human: Callable[[Human], object], *, finding: bool = False) -> None:
        """One result. `finding` makes the command end with exit code 1."""
        if finding:
            self.exit = exits.FINDING
        if self.mode == "human":
            human(self.human)
        elif self.mode == "jsonl":
            print(dumps(data))
        else:
            self._envelope(result=data)

    def rows(
        self,
        rows: Iterable[Row],
        columns: Sequence[Column],
        *,
        finding: bool = False,
        empty: str = "",
        before: Callable[[Human], object] | None = None,
        after: Callable[[Human], object] | None = None,
        **more: Any,
    ) -> None:
        """A listing that fits in memory; `more` are fields beside the rows."""
        listed = list(rows)

        def show(human: Human) -> None:
            if before:
                before(human)
            if listed or not empty:
                human.table(columns, listed)
            else:
                human.line(empty)
            if after:
                after(human)

        if self.mode == "jsonl":
            if finding:
                self.exit = exits.FINDING
            for row in listed:
                print(dumps(row))
            return
        self.result({"rows": listed, **more}, show, finding=finding)

    def stream(
        self,
        rows: Iterable[Row],
        line: Callable[[Row], str],
        tail: Callable[[], Mapping[str, Any]] = dict,
    ) -> int:
        """A listing of any length, written as it comes; `tail` are fields known after the last row."""
        count = 0
        if self.mode == "human":
            write = sys.stdout.write
            for row in rows:
                write(line(row) + "\n")
                count += 1
        elif self.mode == "jsonl":
            for row in rows:
                print(dumps(row))
                count += 1
        else:
            self._begun = True
            sys.stdout.write(
                f'{{"schema": "{SCHEMA}", "command": {dumps(self.command)}, "result": {{"rows": ['
            )
            for row in rows:
                sys.stdout.write((",\n" if count else "\n") + dumps(row))
                count += 1
            self._begun = False
            more = "".join(f', "{name}": {dumps(value)}' for name, value in tail().items())
            sys.stdout.write(f'\n], "count": {count}{more}}}, "exit": {self.exit}}}\n')
        return count

    def note(self, text: str) -> None:
        """A diagnostic: stderr, never among the data."""
        sys.stderr.write(text + "\n")

    def fail(self, failure: exits.Failure) -> None:
        self.exit = failure.code
        self.note(f"lsmkv-tool: {failure.message}")
        if self.mode == "json":
            if self._begun:
                error = dumps(failure.as_json())
                sys.stdout.write(f'\n]}}, "error": {error}, "exit": {self.exit}}}\n')
            else:
                self._envelope(error=failure.as_json())

    def confirm(self, question: str) -> None:
        """Before anything changes: --yes, or a yes on the terminal."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise exits.Usage(f"{question} Nobody to ask: say --yes")
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise exits.Finding("nothing was changed")

    def _envelope(self, **parts: Any) -> None:
        document = {"schema": SCHEMA, "command": self.command, **parts, "exit": self.exit}
        print(json.dumps(clean(document), allow_nan=False, ensure_ascii=False, indent=2))

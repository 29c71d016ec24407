"""Output of a command as text, as one JSON document (`--json`) or as JSON lines (`--jsonl`).

The document is {"schema", "command", "result", "error", "exit"}. A command without a result leaves out
`result`; one that succeeds leaves out `error`. With --jsonl each row is one line, and errors go to stderr
only. Adding a field keeps the schema number; renaming, retyping or removing one raises it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lsmkv_tool import exits, keys
from lsmkv_tool.render.columns import Column, Row
from lsmkv_tool.render.printer import Printer

SCHEMA = "lsmkv-tool/1"


def to_json(value: Any) -> Any:
    """Convert to what JSON can hold: NaN and infinity become null, bytes become quoted text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return keys.quote(value)
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(v) for v in value]
    return value


def dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(to_json(value), allow_nan=False, ensure_ascii=False, indent=indent)


@dataclass
class Output:
    """The output of one command run, and its exit code."""

    command: str | None
    mode: str = "text"
    key_format: str = "quoted"
    value_format: str = "quoted"
    yes: bool = False
    wide: bool = False
    exit: int = exits.FINE
    printer: Printer = field(init=False)
    _streaming: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.printer = Printer(self.mode == "text" and sys.stdout.isatty(), self.wide)
        self.key = keys.formatter(self.key_format)
        self.value = keys.formatter(self.value_format)

    def key_text(self, key: bytes | None) -> str:
        """Format a key for a sentence or a table cell."""
        shown = self.key(key)
        return "-" if shown is None else str(shown)

    def result(self, data: Row, show: Callable[[Printer], object], *, finding: bool = False) -> None:
        """Print one result. `finding` sets exit code 1."""
        if finding:
            self.exit = exits.FINDING
        if self.mode == "text":
            show(self.printer)
        elif self.mode == "jsonl":
            print(dumps(data))
        else:
            self._document(result=data)

    def rows(
        self,
        rows: Iterable[Row],
        columns: Sequence[Column],
        *,
        finding: bool = False,
        empty: str = "",
        before: Callable[[Printer], object] | None = None,
        after: Callable[[Printer], object] | None = None,
        **more: Any,
    ) -> None:
        """Print a listing that fits in memory. `more` holds fields beside the rows."""
        listed = list(rows)

        def show(printer: Printer) -> None:
            if before:
                before(printer)
            if listed or not empty:
                printer.table(columns, listed)
            else:
                printer.line(empty)
            if after:
                after(printer)

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
    ) -> None:
        """Print a listing of any length row by row. `tail` returns fields known after the last row."""
        if self.mode != "json":
            show = line if self.mode == "text" else dumps
            for row in rows:
                print(show(row))
            return
        count = 0
        self._streaming = True
        sys.stdout.write(f'{{"schema": "{SCHEMA}", "command": {dumps(self.command)}, "result": {{"rows": [')
        for row in rows:
            sys.stdout.write((",\n" if count else "\n") + dumps(row))
            count += 1
        self._streaming = False
        more = "".join(f', "{name}": {dumps(value)}' for name, value in tail().items())
        sys.stdout.write(f'\n], "count": {count}{more}}}, "exit": {self.exit}}}\n')

    def note(self, text: str) -> None:
        """Print a diagnostic to stderr."""
        sys.stderr.write(text + "\n")

    def fail(self, failure: exits.Failure) -> None:
        self.note(f"lsmkv-tool: {failure.message}")
        self.print_error(failure)

    def print_error(self, failure: exits.Failure) -> None:
        """Set the exit code, and end the JSON document with the error."""
        self.exit = failure.code
        if self.mode != "json":
            return
        if self._streaming:
            sys.stdout.write(f'\n]}}, "error": {dumps(failure.as_json())}, "exit": {self.exit}}}\n')
        else:
            self._document(error=failure.as_json())

    def confirm(self, question: str) -> None:
        """Ask before a change, unless --yes was given."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise exits.Usage(f"{question} stdin is not a terminal; confirm with --yes")
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise exits.Finding("canceled; nothing was changed")

    def _document(self, **parts: Any) -> None:
        print(dumps({"schema": SCHEMA, "command": self.command, **parts, "exit": self.exit}, indent=2))

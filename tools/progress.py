"""A progress bar on stderr: appears after a second, only on a terminal, and leaves nothing behind."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TypeVar

from lsmkv_tool import units

T = TypeVar("T")

DELAY, EVERY = 1.0, 0.1


class Progress:
    """`with Progress("verifying", total) as p: p.step(n, "000012.sst")`; total 0 means unknown."""

    def __init__(self, label: str, total: float = 0, *, quiet: bool = False) -> None:
        self.label, self.total, self.done = label, total, 0.0
        self.enabled = not quiet and sys.stderr.isatty()
        self.shown = False

    def __enter__(self) -> Progress:
        self.start = time.monotonic()
        self.next = self.start + DELAY
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def step(self, amount: float = 1, what: str = "") -> None:
        self.done += amount
        if not self.enabled:
            return
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + EVERY
        self.shown = True
        sys.stderr.write(f"\r\x1b[K{self.render(now - self.start)} {what}"[:120])
        sys.stderr.flush()

    def did(self, result: T, what: str = "") -> T:
        """One step that gave `result`."""
        self.step(1, what)
        return result

    def render(self, elapsed: float) -> str:
        if not self.total:
            return f"{self.label} {self.done:,.0f}  {elapsed:.0f} s"
        part = min(1.0, self.done / self.total)
        left = f", {elapsed / part - elapsed:.0f} s left" if part > 0 else ""
        return f"{self.label} [{units.bar(self.done, self.total, 24)}] {part:4.0%}  {elapsed:.0f} s{left}"

"""A progress bar on stderr, drawn on a terminal only, after one second, and erased at the end.

A thread draws it, because the work may be one long call into the data plane.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from lsmkv_tool.render import units

T = TypeVar("T")

DELAY, EVERY = 1.0, 0.2


class Progress:
    """`with Progress("verifying", total) as p: p.step(n, "000012.sst")`. A total of 0 means unknown."""

    def __init__(self, label: str, total: float = 0, *, quiet: bool = False) -> None:
        self.label, self.total, self.done, self.what = label, total, 0.0, ""
        self.enabled = not quiet and sys.stderr.isatty()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Progress:
        self.start = time.monotonic()
        if self.enabled:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.enabled:
            self._stop.set()
            self._thread.join()

    def step(self, amount: float = 1, what: str = "") -> None:
        self.done += amount
        self.what = what

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and step once for each. Shows str(item)."""
        for item in items:
            yield item
            self.step(1, str(item))

    def advance_to(self, done: float, total: float, what: str = "") -> None:
        self.total = total
        self.step(done - self.done, what)

    def _draw(self) -> None:
        wait = DELAY
        while not self._stop.wait(wait):
            wait = EVERY
            line = f"{self.render(time.monotonic() - self.start)} {self.what}"
            sys.stderr.write(f"\r\x1b[K{line[:100]}")
            sys.stderr.flush()
        if wait == EVERY:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def render(self, elapsed: float) -> str:
        if not self.total:
            return f"{self.label} {f'{self.done:,.0f}, ' if self.done else ''}{elapsed:.0f} s"
        part = min(1.0, self.done / self.total)
        left = f", {elapsed / part - elapsed:.0f} s left" if part > 0 else ""
        return f"{self.label} [{units.bar(self.done, self.total, 24)}] {part:4.0%}  {elapsed:.0f} s{left}"

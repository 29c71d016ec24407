"""A progress bar on stderr, drawn on a terminal only, after one second, and erased at the end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

T = TypeVar("T")

DELAY = 1.0


class Progress:
    """`with Progress("verifying", total) as p: p.step(n, "000012.sst")`. A total of 0 means unknown.

    `sized` counts bytes. Threads of rich draw, because the work may be one long call into the data plane.
    """

    def __init__(self, label: str, total: float = 0, *, sized: bool = False, quiet: bool = False) -> None:
        self.label, self.total, self.done, self.what, self.sized = label, total, 0.0, "", sized
        self.enabled = not quiet and sys.stderr.isatty()
        self._bar: Bar | None = None
        self._ended = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(DELAY, self._start)
        self._timer.daemon = True

    def __enter__(self) -> Progress:
        if self.enabled:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.enabled:
            return
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def step(self, amount: float = 1, what: str = "") -> None:
        self.done += amount
        self.what = what
        if self._bar is not None:
            self._update(self._bar)

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and step once for each. Shows str(item)."""
        for item in items:
            yield item
            self.step(1, str(item))

    def advance_to(self, done: float, total: float, what: str = "") -> None:
        self.total = total
        self.step(done - self.done, what)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with self._lock:
            if self._ended:
                return
            bar = Bar(console=Console(stderr=True), transient=True)
            bar.add_task(self.label, what="", total=None)
            self._update(bar)
            bar.start()
            self._bar = bar

    def _columns(self) -> tuple[ProgressColumn, ...]:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        count = DownloadColumn(binary_units=True) if self.sized else MofNCompleteColumn()
        part = [TextColumn("{task.percentage:>3.0f} %"), count, TimeRemainingColumn()] if self.total else []
        columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), *part, TimeElapsedColumn()]
        return (*columns, TextColumn("{task.fields[what]}", markup=False))

    def _update(self, bar: Bar) -> None:
        bar.columns = self._columns()  # the total may have become known
        bar.update(bar.task_ids[0], completed=self.done, total=self.total or None, what=self.what)

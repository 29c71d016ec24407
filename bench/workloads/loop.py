"""When a workload is over: after its count of operations, or after its duration if it has one."""

from __future__ import annotations

import time

from ..settings import Settings


class Until:
    def __init__(self, cfg: Settings, ops: int) -> None:
        self.total = None if cfg.duration else ops  # None: nobody knows beforehand
        self._deadline = time.perf_counter() + cfg.duration

    def over(self, done: int) -> bool:
        return time.perf_counter() >= self._deadline if self.total is None else done >= self.total

    def room(self, done: int, size: int) -> int:
        """How many of a chunk of `size` operations are still to be done."""
        return size if self.total is None else min(size, self.total - done)

"""Memtables on their way to L0: rotations, flushes, and the callers that wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from lsmkv.background import Task
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.status import Status
from lsmkv.errors import Error
from lsmkv.log_supply import LogSupply
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import is_finalizing

# How often a waiting caller checks that somebody works for it.
WAIT_INTERVAL = 0.5


class Flusher:
    """The flushes of one database. A caller that waits for one runs it in its own thread if no other thread does: it
    depends on no thread of the background.
    """

    def __init__(self, status: Status, jobs: Jobs, logs: LogSupply) -> None:
        self.task: Task | None = None  # set while the database has tasks in the background
        self._status = status
        self._versions = status.versions
        self._engine = status.versions.engine
        self._jobs = jobs
        self._logs = logs

    @property
    def runs_here(self) -> bool:
        """Whether this thread runs a flush."""
        task = self.task
        return task is not None and task.runs_here

    # Rotation ----------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Called by the engine in the thread of a writer that met a full memtable; it holds its turn meanwhile."""
        self.wait_for_room(self._versions.options.max_write_buffers - 1)
        self.rotate()

    def rotate(self) -> None:
        """Rotates the active memtable and wakes the flush. The caller holds the writer's turn."""
        self._logs.rotate()
        self._status.rotated()

    def flush(self, wait: bool = True) -> None:
        """Rotates the active memtable unless it is empty. With `wait`, returns when all of them are in tables."""
        # Before the rotation: the error of the flush that it wakes must not be forgotten.
        self._status.forget("flush")
        with self._engine.exclusive():
            self._engine.require_writable()
            if not self._engine.active.empty:
                self.wait_for_room(self._versions.options.max_write_buffers)
                self.rotate()
        if wait:
            for memtable in self._engine.immutables[:1]:
                self._wait_until(partial(self._flushed, memtable))

    def sync(self) -> None:
        """Makes everything written so far survive a power cut: by the logs, or without logs by a flush."""
        self._engine.sync()
        if self._versions.options.wal is None:
            self.flush()

    # Waiting -----------------------------------------------------------------------------------------------

    def wait_flushed(self, memtable: Memtable) -> None:
        """Returns when `memtable` is in a table; raises the error that keeps it from getting there."""
        self._status.forget("flush")
        self._wait_until(partial(self._flushed, memtable))

    def _flushed(self, memtable: Memtable) -> bool:
        return memtable not in self._engine.immutables

    def wait_for_room(self, limit: int) -> None:
        """Stops a writer until fewer than `limit` memtables wait for their flush."""
        if len(self._engine.immutables) < limit:
            return
        began = time.monotonic_ns()
        self._status.forget("flush")
        try:
            self._wait_until(lambda: len(self._engine.immutables) < limit)
        finally:
            with self._versions.lock:
                self._status.counters.stops += 1
                self._status.counters.stop_ns += time.monotonic_ns() - began

    def _wait_until(self, done: Callable[[], bool]) -> None:
        task, patient = self.task, True
        if task is not None:
            task.hurry()
            patient = task.expected  # for one interval: it may be queued behind others that hang
        while not self._look(done):
            if patient or task is None or not task.help():
                self._wait_for_change(done)
            patient = False

    def _look(self, done: Callable[[], bool]) -> bool:
        if done():
            return True
        self._status.check("flush")
        if self.runs_here:
            # In a finalizer or a log handler.
            raise Error("a flush cannot wait for itself")
        if is_finalizing():
            # A thread that was at it has stopped for good.
            self._flush(list(self._engine.immutables))
        return done()

    def _wait_for_change(self, done: Callable[[], bool]) -> None:
        with self._versions.lock:
            if not done():
                # Bounded: a thread short of memory may fail before it notifies.
                self._status.condition.wait(WAIT_INTERVAL)

    # The task ----------------------------------------------------------------------------------------------

    def run(self, pause: float) -> float:
        """Flushes all immutable memtables into one table. Returns the seconds to wait before the next try."""
        with self._versions.lock:
            if self._engine.refusal is not None or not self._engine.immutables:
                return 0.0
            memtables = list(self._engine.immutables)
            self._status.flushing = True
        try:
            return self._status.attempt("flush", "flush", partial(self._flush, memtables), pause)
        finally:
            with self._versions.lock:
                self._status.flushing = False
                self._status.update_pressure()
                self._status.changed()

    def _flush(self, memtables: list[Memtable]) -> None:
        share_memory(self._versions)
        try:
            result = self._jobs.flush(memtables)
        finally:
            share_memory(self._versions)
        with self._versions.lock:
            self._status.counters.flushed(result)

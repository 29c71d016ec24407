"""Memtables on their way to L0: rotations, flushes, and the callers that wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from lsmkv.background import Task
from lsmkv.compaction.jobs import Jobs, Result
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.status import Status
from lsmkv.files import is_no_room
from lsmkv.log_supply import LogSupply
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import is_finalizing
from lsmkv_ext.port.uninterruptible import uninterruptible

# How often a waiting caller checks that a thread works for it.
WAIT_INTERVAL = 0.5


class Flusher:
    """The flushes of one database. A caller that waits for a flush runs it in its own thread if no background thread
    does: no caller depends on one.
    """

    def __init__(self, status: Status, jobs: Jobs, logs: LogSupply) -> None:
        self.task: Task | None = None  # from the scheduler's start to its stop
        self._status = status
        self._versions = status.versions
        self._engine = status.versions.engine
        self._jobs = jobs
        self._logs = logs

    # Rotation ----------------------------------------------------------------------------------------------

    def make_room(self, frees: bool) -> None:
        """Called by the engine when the memtable is full. Runs in the writer's thread, which holds its turn until this
        returns. `frees`: the writer only deletes.
        """
        limit = self._versions.options.max_write_buffers - 1
        uninterruptible(lambda: self._rotate_at(limit, frees), defer_interrupt=True)

    def _rotate_at(self, limit: int, frees: bool) -> None:
        """Rotates once fewer than `limit` memtables wait for their flush. On a full disk deletes do not wait: flushed
        together with what they delete, they take less space. The caller holds the writer's turn.
        """
        if not frees:
            self.wait_for_room(limit)
            self.rotate()
        else:
            with _suppress_no_room():
                self.wait_for_room(limit)
            self._versions.reserve.spend(self.rotate)

    def rotate(self) -> None:
        """Rotates the active memtable and wakes the flush. The caller holds the writer's turn."""
        self._logs.rotate()
        self._status.rotated()

    def flush(self, wait: bool = True, *, last: bool = False) -> None:
        """Rotates the active memtable unless it is empty. With `wait`, returns when all memtables are in tables. `last`
        refuses writes from now on: the database closes.
        """
        # Before the rotation, which wakes a flush: its error must not be forgotten.
        self._status.forget("flush")
        with self._engine.exclusive():
            self._engine.require_writable()
            if not self._engine.active.empty:
                self._rotate_at(self._versions.options.max_write_buffers, frees=True)
            if last:
                self._engine.seal()
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
        task, expected = self.task, True
        if task is not None:
            task.hurry()
            # Waits for the thread one interval only: the task may be queued behind others that hang.
            expected = task.expected
        while not self._check_done(done):
            if expected or task is None or not task.help():
                self._wait_for_change(done)
            expected = False

    def _check_done(self, done: Callable[[], bool]) -> bool:
        if done():
            return True
        self._status.check("flush")
        if is_finalizing():
            # The thread that ran the flush has stopped for good.
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
        # Before the new table takes the space.
        self._versions.keep_reserve()
        share_memory(self._versions)
        try:
            result = self._flush_what_fits(memtables)
        finally:
            share_memory(self._versions)
        with self._versions.lock:
            self._status.counters.flushed(result)

    def _flush_what_fits(self, memtables: list[Memtable]) -> Result:
        try:
            return self._jobs.flush(memtables)
        except OSError as error:
            if not is_no_room(error):
                raise
            waiting = list(self._engine.immutables)
            if waiting != memtables:
                # Newer memtables may hold deletes, which make the table smaller.
                return self._flush_what_fits(waiting)
            if len(memtables) == 1:
                raise
        # One memtable takes the least space. The oldest first: its log can then be removed.
        return self._jobs.flush(memtables[-1:])


@contextmanager
def _suppress_no_room() -> Iterator[None]:
    """Like `contextlib.suppress`, for the errors of a full disk."""
    try:
        yield
    except OSError as error:
        if not is_no_room(error):
            raise

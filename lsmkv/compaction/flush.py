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
from lsmkv.errors import SyncError
from lsmkv.files import NO_ROOM
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

    # Rotation ----------------------------------------------------------------------------------------------

    def make_room(self, frees: bool) -> None:
        """Called by the engine in the thread of a writer that met a full memtable; it holds its turn meanwhile. With
        `frees` it only deletes.
        """
        self._rotate_at(self._versions.options.max_write_buffers - 1, frees)

    def _rotate_at(self, limit: int, frees: bool) -> None:
        """Rotates once fewer than `limit` memtables wait for their flush. On a full disk, deletes do not wait: flushed
        together with what they delete, they free space. The caller holds the writer's turn.
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
        """Rotates the active memtable unless it is empty. With `wait`, returns when all of them are in tables. No write
        follows the `last` flush.
        """
        # Before the rotation: the error of the flush that it wakes must not be forgotten.
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
            expected = task.expected  # for one interval: it may be queued behind others that hang
        while not self._look(done):
            if expected or task is None or not task.help():
                self._wait_for_change(done)
            expected = False

    def _look(self, done: Callable[[], bool]) -> bool:
        if done():
            return True
        self._status.check("flush")
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
        # Before the tables take the space.
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
            if error.errno not in NO_ROOM:
                raise
            waiting = list(self._engine.immutables)
            if waiting != memtables:
                # Perhaps with deletes, which make the table smaller.
                return self._flush_what_fits(waiting)
            if len(memtables) == 1:
                raise
        # The oldest takes the least space, and its log goes with it.
        return self._jobs.flush(memtables[-1:])


@contextmanager
def _suppress_no_room() -> Iterator[None]:
    """Ends the block at an error of a full disk."""
    try:
        yield
    except SyncError:
        raise
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise

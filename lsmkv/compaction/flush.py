"""Memtables on their way to L0: rotations, flushes, and the callers that wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from lsmkv.background import Task
from lsmkv.compaction.flush_job import JobsOf, flush
from lsmkv.compaction.jobs import Result
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.status import Status
from lsmkv.files import is_no_room
from lsmkv.log_supply import LogSupply
from lsmkv_ext.port.finalization import is_finalizing
from lsmkv_ext.port.uninterruptible import uninterruptible

# How often a waiting caller checks that a thread works for it.
WAIT_INTERVAL = 0.5


class Flusher:
    """The flushes of one database. A caller that waits for a flush runs it in its own thread if no background thread
    does: no caller depends on one.
    """

    def __init__(self, status: Status, jobs_of: JobsOf, logs: LogSupply) -> None:
        self.task: Task | None = None  # from the scheduler's start to its stop
        self._status = status
        self._versions = status.versions
        self._engine = status.versions.engine
        self._jobs_of = jobs_of
        self._logs = logs

    # Rotation ----------------------------------------------------------------------------------------------

    def make_room(self, frees: bool) -> None:
        """Called by the engine when the memtable is full. Runs in the writer's thread, which holds its turn until this
        returns. `frees`: the writer only deletes.
        """
        limit = self._versions.options.max_write_buffers - 1
        uninterruptible(lambda: self._rotate_at(limit, frees), defer_interrupt=True)

    def _rotate_at(self, limit: int, frees: bool) -> None:
        """Rotates once the memtables of fewer than `limit` logs wait for their flush. On a full disk deletes do not
        wait: flushed together with what they delete, they take less space. The caller holds the writer's turn.
        """
        if not frees:
            self.wait_for_room(limit)
            self.rotate()
        else:
            with _suppress_no_room():
                self.wait_for_room(limit)
            self._versions.reserve.spend(self.rotate)

    def rotate(self) -> None:
        """Rotates the active memtables and wakes the flush. The caller holds the writer's turn."""
        self._logs.rotate()
        self._status.rotated()

    def flush(self, wait: bool = True, *, last: bool = False) -> None:
        """Rotates the active memtables unless all are empty. With `wait`, returns when all memtables are in tables.
        `last` refuses writes from now on: the database closes.
        """
        # Before the rotation, which wakes a flush: its error must not be forgotten.
        self._status.forget("flush")
        with self._engine.exclusive():
            self._engine.require_writable()
            if not self._engine.empty:
                self._rotate_at(self._versions.options.max_write_buffers, frees=True)
            if last:
                self._engine.seal()
        if wait:
            for number in self._engine.unflushed[:1]:
                self._wait_until(partial(self._flushed, number))

    def flush_in_turn(self) -> None:
        """Flushes everything written so far. The caller holds the writer's turn, so nothing follows."""
        self._status.forget("flush")
        if not self._engine.empty:
            self.rotate()
        for number in self._engine.unflushed[:1]:
            self._wait_until(partial(self._flushed, number))

    def sync(self) -> None:
        """Makes everything written so far survive a power cut: by the logs, or without logs by a flush."""
        self._engine.sync()
        if self._versions.options.wal is None:
            self.flush()

    # Waiting -----------------------------------------------------------------------------------------------

    def _flushed(self, log: int) -> bool:
        """Whether the memtables of `log` and of all older logs are in tables."""
        return all(number > log for number in self._engine.unflushed)

    def wait_for_room(self, limit: int) -> None:
        """Stops a writer until the memtables of fewer than `limit` logs wait for their flush."""
        if len(self._engine.unflushed) < limit:
            return
        began = time.monotonic_ns()
        self._status.forget("flush")
        try:
            self._wait_until(lambda: len(self._engine.unflushed) < limit)
        finally:
            self._status.waited(time.monotonic_ns() - began)

    def _wait_until(self, done: Callable[[], bool]) -> None:
        task = self.task
        # Waits for the thread one interval only: the task may be queued behind others that hang.
        expected = task is None or task.expected
        while not self._check_done(done):
            if task is not None:
                task.hurry()  # in every round: a run that is failing begins its pause at its end
            if expected or task is None or not task.help():
                self._wait_for_change(done)
            expected = False

    def _check_done(self, done: Callable[[], bool]) -> bool:
        if done():
            return True
        self._status.check("flush")
        if is_finalizing():
            # The thread that ran the flush has stopped for good.
            self._flush(self._engine.unflushed)
        return done()

    def _wait_for_change(self, done: Callable[[], bool]) -> None:
        with self._versions.lock:
            if not done():
                # Bounded: a thread short of memory may fail before it notifies.
                self._status.condition.wait(WAIT_INTERVAL)

    # The task ----------------------------------------------------------------------------------------------

    def run(self, pause: float) -> float:
        """Flushes all immutable memtables. Returns the seconds to wait before the next try."""
        with self._versions.lock:
            if self._engine.refusal is not None or not self._engine.immutables:
                return 0.0
            logs = self._engine.unflushed
            self._status.flushing = True
        try:
            return self._status.attempt("flush", "flush", partial(self._flush, logs), pause)
        finally:
            with self._versions.lock:
                self._status.flushing = False
                self._status.update_pressure()
                self._status.changed()

    def _flush(self, logs: list[int]) -> None:
        # Before the new table takes the space.
        self._versions.keep_reserve()
        share_memory(self._versions)
        try:
            result = self._flush_what_fits(logs)
        finally:
            share_memory(self._versions)
        self._status.flushed(result)

    def _flush_what_fits(self, logs: list[int]) -> Result:
        try:
            return self._write(logs)
        except OSError as error:
            if not is_no_room(error):
                raise
            waiting = self._engine.unflushed
            if waiting != logs:
                # Newer memtables may hold deletes, which make the tables smaller.
                return self._flush_what_fits(waiting)
            if len(logs) == 1:
                raise
        # The memtables of one log take the least space. The oldest first: that log can then be removed.
        return self._write(logs[-1:])

    def _write(self, logs: list[int]) -> Result:
        return flush(self._versions, self._jobs_of, logs)


@contextmanager
def _suppress_no_room() -> Iterator[None]:
    """Like `contextlib.suppress`, for the errors of a full disk."""
    try:
        yield
    except OSError as error:
        if not is_no_room(error):
            raise

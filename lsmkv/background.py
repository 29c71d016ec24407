"""The background threads of the process, shared by all open databases.

A database has tasks (`Task`) in three lanes: flushes, compactions, and housekeeping (logs made in advance, periodic
work). Each lane has threads of its own, so a flush never waits for a compaction. A lane starts a thread when a task is
due and no thread is idle, up to its limit, and keeps one idle thread. One more thread, the timer, wakes tasks after a
delay. An idle database wakes no thread. The threads end with the last database.

`lsmkv_ext.port.lanes` has the queues, which take no lock.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from lsmkv_ext.port.finalization import ThreadStillborn, is_finalizing, start_thread
from lsmkv_ext.port.lanes import Lane, TaskState, Timer, Users, Worker
from lsmkv_ext.port.section import section

log = logging.getLogger("lsmkv")

# Most threads of the lanes for short work. While fewer databases than this hang on a bad disk, the others go on.
SHORT_LIMIT = 8
# Compaction threads, unless there are more cores or a database asks for more.
COMPACTION_LIMIT = 4
# The shortest pause after a failure.
FIRST_PAUSE = 0.05
# After this pause the timer wakes a task again for which no thread could be started.
START_PAUSE = 1.0
# No thread is started for this long after one that did not begin: each attempt takes seconds.
STILLBORN_PAUSE = 10.0


class Pool:
    """Three lanes, a timer, and their threads. `enter` returns the pool of the process."""

    def __init__(self) -> None:
        self.timer = Timer()
        self.flush = Lane(self.timer, SHORT_LIMIT)
        self.compaction = Lane(self.timer, max(COMPACTION_LIMIT, os.cpu_count() or 1))
        self.housekeeping = Lane(self.timer, SHORT_LIMIT)
        self.databases = Users()
        self.threads: list[threading.Thread] = []
        self._timer_started = False
        self._none_before = 0.0  # no thread is started earlier

    def start_worker(self, lane: Lane, name: str) -> None:
        """Starts a thread that `lane` has counted. Raises RuntimeError if that fails and the lane has no other."""
        try:
            self.start_timer()
            self._start(name, partial(section, _work, lane))
        except BaseException as error:
            lane.not_started()
            if lane.workers and isinstance(error, RuntimeError):
                return
            raise

    def start_timer(self) -> None:
        """Starts the timer's thread if it does not run. Raises RuntimeError if no thread can be started."""
        if not self._timer_started:
            self._timer_started = True
            try:
                self._start("timer", partial(section, _ring, self.timer))
            except BaseException:
                self._timer_started = False
                raise

    def _start(self, name: str, target: Callable[[], None]) -> None:
        if time.monotonic() < self._none_before:
            raise RuntimeError("the last thread did not begin")
        # Daemon: the interpreter's exit must not wait for it before our exit hook closes the databases.
        thread = threading.Thread(target=target, name=f"lsmkv-{name}", daemon=True)
        self._forget_ended()
        # Before the start: `end` must know every thread that runs.
        self.threads.append(thread)
        try:
            start_thread(thread)
        except BaseException as error:
            if isinstance(error, ThreadStillborn):
                self._none_before = time.monotonic() + STILLBORN_PAUSE
            self.threads.remove(thread)
            raise

    def _forget_ended(self) -> None:
        for thread in list(self.threads):
            if thread.ident is not None and not thread.is_alive():
                with suppress(ValueError):  # another thread has removed it
                    self.threads.remove(thread)

    def end(self) -> None:
        """Ends the threads and joins all but the calling one. All tasks are closed."""
        for each in (self.flush, self.compaction, self.housekeeping, self.timer):
            each.end()
        for thread in list(self.threads):
            if thread.ident not in (None, threading.get_ident()):
                thread.join()


class Task(TaskState):
    """Work of one database. A thread of the lane runs it after each `wake`.

    `run(pause)` returns the seconds to pause before the next run, 0.0 for none; `pause` is what the last run returned.
    A wake does not shorten a pause. If `run` raises, `failed(error, pause)` reports the error and returns the pause.
    """

    def __init__(
        self,
        pool: Pool,
        lane: Lane,
        name: str,
        run: Callable[[float], float],
        failed: Callable[[BaseException, float], float],
        limit: int = 1,
    ) -> None:
        super().__init__(lane, limit)
        self._pool = pool
        self._name = name
        self._run = run
        self._failed = failed
        self._pause = 0.0

    def wake(self) -> None:
        """Asks for a run. Raises RuntimeError if no thread can be started for it; the next wake tries again."""
        self._call_thread(woken=True)

    def _call_thread(self, woken: bool) -> None:
        if not is_finalizing() and self.offer(woken):
            self._pool.start_worker(self.lane, self._name)

    def help(self) -> bool:
        """Runs the task in this thread, unless it is paused or running elsewhere. Returns whether it did."""
        if not self.begin():
            return False
        self.perform()
        with suppress(RuntimeError):  # the next wake tries again
            self._call_thread(woken=False)
        return True

    def perform(self) -> None:
        """Runs the task; this thread is already one of its runners. Raises no error, only KeyboardInterrupt."""
        pause = FIRST_PAUSE
        try:
            pause = self._attempt()
        finally:
            self._pause = pause
            self.finish(pause)

    def _attempt(self) -> float:
        try:
            return self._run(self._pause)
        except KeyboardInterrupt:  # in the main thread, which runs the task if no thread can be started
            raise
        except BaseException as error:
            return self._report(error)

    def _report(self, error: BaseException) -> float:
        try:
            return max(self._failed(error, self._pause), FIRST_PAUSE)
        except BaseException:
            return FIRST_PAUSE  # not even memory for the report


def _work(lane: Lane) -> None:
    """The body of a lane's thread. It survives every exception, because callers wait for its work."""
    worker = task = None
    while True:
        try:
            worker = worker or Worker()
            task = lane.take(worker)
            if task is None:
                return
            if isinstance(task, Task):
                task.perform()
            else:
                worker.wait()
        except BaseException:
            # Not even memory for a call.
            if isinstance(task, Task):
                task.finish(FIRST_PAUSE)
            time.sleep(FIRST_PAUSE)
        task = None  # an idle thread keeps nothing alive


def _ring(timer: Timer) -> None:
    """The body of the timer's thread."""
    while not timer.ended:
        try:
            task = timer.ring()
            if isinstance(task, Task):
                _wake(task)
            else:
                timer.sleep()
        except BaseException:
            time.sleep(FIRST_PAUSE)  # not even memory for a call


def _wake(task: Task) -> None:
    try:
        task.wake()
    except BaseException as error:
        task.wake_after(START_PAUSE)
        log.warning("background work waits: %s", error)


# GIL-protected: _pool
_pool = Pool()


def enter(compactions: int) -> Pool:
    """Returns the pool, for a database that runs up to `compactions` at once. It calls `leave` when it closes."""
    global _pool
    pool = _pool
    while not pool.databases.enter():
        pool = _pool = Pool()
    pool.compaction.raise_limit(compactions)
    return pool


def leave(pool: Pool) -> None:
    """Called after the tasks of a database are closed. The last database ends the threads."""
    if pool.databases.leave():
        pool.end()


def _start_over() -> None:
    """In a forked child: the threads are those of the parent."""
    global _pool
    _pool = Pool()


os.register_at_fork(after_in_child=_start_over)

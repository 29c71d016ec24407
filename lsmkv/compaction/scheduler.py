"""The background threads: one flushes, one prepares logs, the others compact; a timer runs where an option asks for it.

The threads hold the Scheduler, never the database, so an abandoned database is collected and closes itself. All state
is guarded by the version set's `lock`, and all waiting happens on one condition of that lock: never in the main thread,
where an interrupt could strike inside it. `claims` says which plans run, `stalls` how much writers are held back.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from lsmkv.compaction.claims import Claim, Claims
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.jobs import Jobs, Superseded
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.picker import CompactionPlan, Hints, l0_worth_merging
from lsmkv.compaction.stalls import Pressure, Stalls, pressure
from lsmkv.errors import ClosedError, CorruptionError, Error, IOError, ReadOnlyError
from lsmkv.log_supply import LogSupply
from lsmkv.options import Options
from lsmkv.version.version import Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.engine import Engine
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import Condition, is_finalizing, start_thread
from lsmkv_ext.port.section import section
from lsmkv_ext.port.uninterruptible import uninterruptible

log = logging.getLogger("lsmkv")

# Errors after which the same work may succeed later: nothing was lost, only refused.
TRANSIENT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# How often dropped tables are checked while readers hold some of them.
GARBAGE_INTERVAL = 0.5
IDLE_SECONDS = 0.1
STATS_INTERVAL = 0.5
# How often a waiting caller checks that somebody works for it.
WAIT_INTERVAL = 0.5
# How the names of the threads begin that do the work, by its kind.
THREADS = {"flush": "flush", "compaction": "compact-"}


class Scheduler:
    def __init__(
        self,
        versions: VersionSet,
        jobs: Jobs,
        logs: LogSupply,
        hints: Callable[[Version, Options], Hints],
        export: Callable[[Counters], None],
    ) -> None:
        """`export` writes the statistics; the timer calls it."""
        self.versions = versions
        self.engine = versions.engine
        self.jobs = jobs
        self.logs = logs
        self.condition = Condition(versions.lock)
        self.claims: Claims = Claims(versions, self.condition)
        self.stalls = Stalls(partial(_hold_back, versions.engine))
        self.counters: Counters = Counters()
        self.errors: dict[str, BaseException] = {}  # the last error of "flush" and "compaction", until one succeeds
        self._hints = hints
        self._export = export
        self._flushing = False
        self._hurry = False  # a caller waits for a flush: no pause before the next try
        self._stopping = False
        self._callers = 0  # callers whose work `stop` waits for
        self._unattended = 0  # tasks nobody awaits
        self._threads: list[threading.Thread] = []

    @property
    def options(self) -> Options:
        return self.versions.options

    # Threads -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        share_memory(self.versions)
        # The debt of earlier opens counts, or many short ones would grow L0 without bound.
        self.update_pressure()
        self._serve("flush", self._flush_loop, partial(self._failed, "flush", "flush"))
        if self.options.wal is not None:
            self._serve("log", self._log_loop, partial(self._helper_failed, "log"))
        # The flush thread counts as one of the jobs; compaction always has a thread of its own.
        compaction = partial(self._failed, "compaction", "compaction")
        for i in range(max(1, self.options.max_background_jobs - 1)):
            self._serve(f"compact-{i}", self._compact_loop, compaction)
        if self.options.stats_export or self.options.sync_interval_ms:
            self.ensure_timer()

    def _serve(self, name: str, loop: Callable[[], None], failed: Callable[[BaseException, float], float]) -> None:
        self._spawn(name, partial(section, self._keep_running, loop, failed))

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        # Daemon: the interpreter's exit must not wait for these threads before our exit hook closes the database.
        thread = threading.Thread(target=target, name=f"lsmkv-{name}", daemon=True)
        with self.versions.lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            start_thread(thread)
            # After the start: a thread that could not be started cannot be joined.
            self._threads.append(thread)

    def ensure_timer(self) -> None:
        if not any(thread.name == "lsmkv-timer" for thread in self._threads):
            self._serve("timer", self._timer_loop, partial(self._helper_failed, "timer"))

    def stop(self) -> None:
        """Cancels the running jobs and joins the threads, except the calling one."""
        with self.versions.lock:
            self._stopping = True
            self.condition.notify_all()
        self.jobs.cancel()
        for thread in list(self._threads):
            if thread.ident != threading.get_ident():
                thread.join()
        self._threads.clear()
        with self.versions.lock:
            self.condition.wait_for(lambda: not self._callers)

    @contextmanager
    def enlisted(self) -> Iterator[None]:
        """`stop` waits until the block has ended. Raises ClosedError after `stop`."""
        with self.versions.lock:
            if self._stopping:
                raise ClosedError("the database is being closed")
            self._callers += 1
        try:
            yield
        finally:
            with self.versions.lock:
                self._callers -= 1
                self.condition.notify_all()

    def in_background(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work` in a thread of its own; its error is counted and logged."""
        uninterruptible(lambda: self._start_unattended(name, work))

    def _start_unattended(self, name: str, work: Callable[[], None]) -> None:
        with self.versions.lock:
            self._spawn(name, lambda: self._run_unattended(name, work))
            self._unattended += 1

    def _run_unattended(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except IOError as error:
            # It may be a failed fsync, which is final for every caller.
            self._failed("compaction", name, error, 0.0)
        except BaseException as error:
            if not self.jobs.cancelled and not isinstance(error, ReadOnlyError):
                with self.versions.lock:
                    self.counters.failed(name, error)
                log.error("%s failed", name, exc_info=error)
        finally:
            with self.versions.lock:
                self._unattended -= 1
                self.condition.notify_all()

    def reset_counters(self) -> None:
        with self.versions.lock:
            self.counters = Counters()

    def wake(self) -> None:
        with self.versions.lock:
            self.condition.notify_all()

    # Loops -------------------------------------------------------------------------------------------------

    def _keep_running(self, loop: Callable[[], None], failed: Callable[[BaseException, float], float]) -> None:
        """Runs `loop` until it returns, and again after each exception: callers wait for what the thread does. `failed`
        reports the exception and returns the seconds to wait.
        """
        pause = 0.0
        while True:
            try:
                loop()
                return
            except BaseException as error:
                pause = self._back_off(failed, error, pause)

    def _back_off(self, failed: Callable[[BaseException, float], float], error: BaseException, pause: float) -> float:
        try:
            pause = max(failed(error, pause), FIRST_PAUSE)
            with self.versions.lock:
                self.condition.wait_for(lambda: self._stopping, pause)
        except BaseException:
            # Too little memory even for the report. The loop tries again, and fails again if nothing has changed.
            time.sleep(FIRST_PAUSE)
        return pause

    def _flush_loop(self) -> None:
        pause = 0.0
        while True:
            with self.versions.lock:
                if pause:
                    self.condition.wait_for(lambda: self._stopping or self._hurry, pause)
                self.condition.wait_for(lambda: self._stopping or bool(self.engine.immutables))
                self._hurry = False
                if self._stopping or self.engine.refusal is not None:
                    return
                memtables = list(self.engine.immutables)
                self._flushing = True
            try:
                pause = self._attempt("flush", "flush", partial(self._flush, memtables), pause)
            finally:
                with self.versions.lock:
                    self._flushing = False
                    self.condition.notify_all()
                    self._update_pressure()
            del memtables

    def _flush(self, memtables: list[Memtable]) -> None:
        share_memory(self.versions)
        try:
            result = self.jobs.flush(memtables)
        finally:
            share_memory(self.versions)
        with self.versions.lock:
            self.counters.flushed(result)

    def _log_loop(self) -> None:
        """Keeps a log ready. If that fails, the next rotation creates its own in the writer's thread."""
        while True:
            with self.versions.lock:
                self.condition.wait_for(lambda: self._stopping or self.logs.short)
                if self._stopping or self.engine.refusal is not None:
                    return
            self.logs.prepare()

    def _compact_loop(self) -> None:
        pause = 0.0
        while True:
            with self.versions.lock:
                if pause:
                    self.condition.wait_for(lambda: self._stopping, pause)
                try:
                    claim = self._claim_next()
                except Exception as error:
                    pause = self._failed("compaction", "picking a compaction", error, pause)
                    continue
                if claim is None:
                    return
            try:
                pause = self._attempt("compaction", str(claim.plan), partial(self.run_claimed, claim), pause)
            finally:
                # Again: the attempt may have failed before it ran the plan.
                with self.versions.lock:
                    self.claims.remove(claim)
            del claim

    def _claim_next(self) -> Claim | None:
        """Waits for a plan and claims it; None when the thread should end. The lock is held."""
        while True:
            if self._stopping or self.engine.refusal is not None:
                return None
            self.versions.collect_garbage()
            plan = None if self.claims.suspended else self._choose()
            if plan is None and self._wait_for_work():
                plan = self._pick_idle()
            if plan is not None:
                return self.claims.add(plan)

    def _choose(self) -> CompactionPlan | None:
        return self.claims.choose(self._hints(self.versions.current, self.options))

    def _wait_for_work(self) -> bool:
        """Waits for a change. True if none came for a while and L0 is worth merging."""
        if l0_worth_merging(self.versions.current, self.options) and not self.claims.suspended:
            return not self.condition.wait(IDLE_SECONDS)
        self.condition.wait(GARBAGE_INTERVAL if self.versions.waiting_for_readers else None)
        return False

    def _pick_idle(self) -> CompactionPlan | None:
        if self._stopping or self.engine.refusal is not None or self.engine.immutables or self.claims.suspended:
            return None
        return self.claims.choose_idle()

    def run_claimed(self, claim: Claim, parts: int = 1) -> None:
        """Runs a plan in up to `parts` threads and removes its claim."""
        try:
            result = self.jobs.run(claim.plan, claim.shifts, parts)
            with self.versions.lock:
                self.counters.done(claim.plan, result)
        except CorruptionError as error:
            with self.versions.lock:
                self.claims.mark_damaged(claim.plan, error)
            raise
        except Error as error:
            if self.jobs.cancelled:
                raise ClosedError("the database is being closed") from error
            raise
        finally:
            with self.versions.lock:
                self.claims.remove(claim)
                self.jobs.forget(claim.plan)
                self._update_pressure()
                self.condition.notify_all()

    def _timer_loop(self) -> None:
        while True:
            interval = STATS_INTERVAL
            if self.options.sync_interval_ms:
                interval = min(interval, self.options.sync_interval_ms / 1000)
            with self.versions.lock:
                self.condition.wait_for(lambda: self._stopping, interval)
                if self._stopping:
                    return
            self._tick()

    def _tick(self) -> None:
        try:
            if self.options.sync_interval_ms:
                self.sync()
            if self.options.stats_export:
                self._export(self.counters)
        except (ClosedError, ReadOnlyError):
            return
        except OSError as error:
            log.error("%s: background sync failed: %s", self.versions.directory, error)

    # Rotation ----------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Called by the engine in the thread of a writer that met a full memtable; it holds its turn meanwhile."""
        self.wait_for_room(self.options.max_write_buffers - 1)
        self.rotate()

    def rotate(self) -> None:
        """Rotates the active memtable. The caller holds the writer's turn."""
        self.logs.rotate()
        self.wake()

    def flush(self, wait: bool = True, *, last: bool = False) -> None:
        """Rotates the active memtable unless it is empty. With `wait`, returns when all of them are in tables. No write
        follows the `last` flush.
        """
        with self.engine.exclusive():
            self.engine.require_writable()
            if not self.engine.active.empty:
                self.wait_for_room(self.options.max_write_buffers)
                self.rotate()
            if last:
                self.engine.seal()
        if wait:
            for memtable in self.engine.immutables[:1]:
                self.wait_flushed(memtable)

    def sync(self) -> None:
        """Makes everything written so far survive a power cut: by the logs, or without logs by a flush."""
        self.engine.sync()
        if self.options.wal is None:
            self.flush()

    # Errors ------------------------------------------------------------------------------------------------

    def _attempt(self, kind: str, what: str, work: Callable[[], None], pause: float) -> float:
        """Runs `work`. Returns the seconds to wait before the next try, 0 if it succeeded or must not be retried."""
        try:
            work()
        except Superseded as superseded:
            log.debug("%s", superseded)
            return 0.0
        except BaseException as error:
            return self._failed(kind, what, error, pause)
        with self.versions.lock:
            if self.errors.pop(kind, None) is not None:
                self._update_pressure()
        return 0.0

    def _failed(self, kind: str, what: str, error: BaseException, pause: float) -> float:
        if self.jobs.cancelled or isinstance(error, ReadOnlyError):
            return 0.0
        corrupt = isinstance(error, CorruptionError)
        transient = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in TRANSIENT)
        if not corrupt and not transient:
            # Before the error is published: a caller that sees it must find writes refused.
            self.engine.refuse(error)
        with self.versions.lock:
            self.counters.failed(what, error)
            self.errors[kind] = error
            self._update_pressure()
            self.condition.notify_all()
        if corrupt:
            log.error("%s failed: %s", what, error)
            return LONGEST_PAUSE
        if transient:
            pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            log.warning("%s failed, next try in %.2f s: %s", what, pause, error)
            return pause
        log.error("%s failed", what, exc_info=error)
        return 0.0

    def _helper_failed(self, name: str, error: BaseException, pause: float) -> float:
        """For threads whose work a caller can do without."""
        log.warning("the %s thread failed, next try in %.2f s: %r", name, LONGEST_PAUSE, error)
        with self.versions.lock:
            self.counters.failed(name, error)
        return LONGEST_PAUSE

    # Waiting -----------------------------------------------------------------------------------------------

    def wait_flushed(self, memtable: Memtable) -> None:
        """Returns when `memtable` is in a table; raises the error that keeps it from getting there."""
        self._wait_until(lambda: memtable not in self.engine.immutables, "flush")

    def wait_for_room(self, limit: int) -> None:
        """Stops a writer until fewer than `limit` memtables wait for their flush."""
        with self.versions.lock:
            if len(self.engine.immutables) < limit:
                return
            began = time.monotonic_ns()
            self.counters.stops += 1
            try:
                self._wait_until(lambda: len(self.engine.immutables) < limit, "flush")
            finally:
                self.counters.stop_ns += time.monotonic_ns() - began

    def wait_idle(self) -> None:
        """Returns when nothing runs and there is nothing to flush or compact."""
        uninterruptible(lambda: self._wait_until(self._idle, "flush", "compaction"))

    def _idle(self) -> bool:
        working = self.engine.immutables or self.claims.running or self._flushing or self._unattended
        return not working and (self.claims.suspended > 0 or self._choose() is None)

    def wait_change(self) -> None:
        """Returns after the next change of the tree or of the running plans, or after a short while. Not for the main
        thread: `ManualWork.wait_change` is.
        """
        with self.versions.lock:
            self._check_failed(())
            self.condition.wait(GARBAGE_INTERVAL)

    def _wait_until(self, done: Callable[[], bool], *kinds: str) -> None:
        with self.versions.lock:
            # An old error may be over: the next try decides.
            for kind in kinds:
                self.errors.pop(kind, None)
            self._hurry = True
            self.condition.notify_all()
            while not done():
                self._check_failed(kinds)
                if is_finalizing() and self.engine.immutables:
                    # The flush thread has stopped for good.
                    self._flush(list(self.engine.immutables))
                    continue
                self._require_workers(kinds)
                # Bounded: a thread short of memory may fail before it notifies.
                self.condition.wait(WAIT_INTERVAL)

    def _require_workers(self, kinds: Iterable[str]) -> None:
        """Raises Error if the thread that the caller waits for has ended."""
        for kind in kinds:
            name = f"lsmkv-{THREADS[kind]}"
            if not any(thread.name.startswith(name) and thread.is_alive() for thread in self._threads):
                raise Error(f"no {kind} thread is alive")

    def _check_failed(self, kinds: Iterable[str]) -> None:
        self.engine.require_writable()
        for kind in kinds:
            if kind in self.errors:
                raise _copy_of(self.errors[kind])
        if self._stopping:
            raise ClosedError("the database is being closed")

    # Back pressure -----------------------------------------------------------------------------------------

    def update_pressure(self) -> None:
        with self.versions.lock:
            self._update_pressure()

    def _update_pressure(self) -> None:
        now = pressure(self.versions.current, self.options)
        if self.claims.damaged or "compaction" in self.errors:
            # L0 may never shrink again: stopped writers would wait for ever.
            now = Pressure(now.delay_ns, False)
        self.stalls.update(now, self.counters)


def _hold_back(engine: Engine, pressure: Pressure) -> None:
    engine.set_delay(pressure.delay_ns)
    engine.set_stopped(pressure.stopped)


def _copy_of(error: BaseException) -> BaseException:
    """A fresh exception of the same type: one object must not be raised in several threads."""
    if isinstance(error, OSError):
        return IOError(error.errno, error.strerror, error.filename)
    if isinstance(error, CorruptionError):
        return CorruptionError(str(error))
    return error

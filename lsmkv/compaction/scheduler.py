"""Background work: one thread that flushes, others that compact, a timer where an option asks for one; and
back pressure.

The threads hold the Scheduler, never the database object, so a database that nobody refers to any more can be
collected and
closes itself. All waiting happens on one condition, whose lock is the VersionSet's, and never in the main
thread, where an interrupt could strike inside it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from lsmkv import filenames
from lsmkv.compaction.jobs import Jobs, Result, Superseded
from lsmkv.compaction.picker import (
    MANUAL,
    NO_HINTS,
    CompactionPlan,
    Hints,
    Kind,
    choose,
    conflict,
    l0_worth_merging,
    pending_bytes,
)
from lsmkv.errors import ClosedError, CorruptionError, Error, IOError, ReadOnlyError
from lsmkv.log_supply import LogSupply
from lsmkv.options import Options
from lsmkv.version.version import KeyRange, Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import Condition, is_finalizing, start_thread
from lsmkv_ext.port.uninterruptible import uninterruptible

log = logging.getLogger("lsmkv")

T = TypeVar("T")

# Errors after which the same work may succeed later: nothing was lost, only refused.
HEALING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# How often the files of dropped tables are looked at while readers hold some.
GARBAGE_INTERVAL = 0.5
IDLE_SECONDS = 0.1
EARLY_FROM = 8 << 20
SHRINK_STEP = 1 << 20
STATS_INTERVAL = 0.5

# Slow-down: the delay per KiB written grows from the first to the last as the debt nears the stop.
FIRST_DELAY_NS = 500
LAST_DELAY_NS = 500_000


@dataclass
class Counters:
    """What background work did since the database was opened. Written under the scheduler's lock."""

    flushes: int = 0
    flush_bytes: int = 0
    flush_ns: int = 0
    flush_entries: int = 0
    compactions: int = 0
    compaction_bytes_in: int = 0
    compaction_bytes_out: int = 0
    compaction_ns: int = 0
    compaction_entries_in: int = 0
    compaction_entries_out: int = 0
    moves: int = 0
    shifts: int = 0
    filter_rebuilds: int = 0
    filter_rebuild_bytes: int = 0
    filter_rebuild_ns: int = 0
    filter_build_ns: int = 0
    filter_verify_ns: int = 0
    errors: int = 0
    last_error: str | None = None
    stops: int = 0
    stop_ns: int = 0
    slowdowns: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    level_bytes_written: Counter[int] = field(default_factory=Counter)
    level_bytes_read: Counter[int] = field(default_factory=Counter)

    def flushed(self, result: Result) -> None:
        self.flushes += 1
        self.flush_bytes += result.bytes_written
        self.flush_entries += result.entries_out
        self.flush_ns += result.ns
        self.level_bytes_written[0] += result.bytes_written
        self._filters(result)

    def done(self, plan: CompactionPlan, result: Result) -> None:
        self.reasons[plan.reason] += 1
        if plan.kind is Kind.MOVE:
            self.moves += 1
        elif plan.kind is Kind.SHIFT:
            self.shifts += 1
        elif plan.kind is Kind.FILTERS:
            self.filter_rebuilds += 1
            self.filter_rebuild_bytes += result.bytes_written
            self.filter_rebuild_ns += result.ns
        else:
            self.compactions += 1
            self.compaction_bytes_in += result.bytes_read
            self.compaction_bytes_out += result.bytes_written
            self.compaction_entries_in += result.entries_in
            self.compaction_entries_out += result.entries_out
            self.compaction_ns += result.ns
            self.level_bytes_read[plan.level] += result.bytes_read
            self.level_bytes_written[plan.output_level] += result.bytes_written
        self._filters(result)

    def to_dict(self) -> dict[str, Any]:
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def _filters(self, result: Result) -> None:
        self.filter_build_ns += result.filter_build_ns
        self.filter_verify_ns += result.filter_verify_ns


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Counter) else value


# Back pressure --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pressure:
    delay_ns: int  # per KiB written
    stopped: bool


def pressure(version: Version, options: Options) -> Pressure:
    """How much writers are held back. Grows smoothly with L0 and with the bytes that compaction is behind."""
    count = len(version.levels[0])
    span = options.l0_stop_trigger - options.l0_slowdown_trigger + 1
    by_count = (count - options.l0_slowdown_trigger + 1) / span
    # The debt of a tree in good order is below one merge of L0 into a level of the wanted ratio.
    soft = options.l0_slowdown_trigger * options.write_buffer_size * options.level_size_ratio
    by_debt = pending_bytes(version, options) / soft - 1.0
    share = min(max(by_count, by_debt, 0.0), 1.0)
    stopped = count >= options.l0_stop_trigger
    if share <= 0.0:
        return Pressure(0, stopped)
    return Pressure(int(FIRST_DELAY_NS * (LAST_DELAY_NS / FIRST_DELAY_NS) ** share), stopped)


# The threads ----------------------------------------------------------------------------------------------


class Scheduler:
    def __init__(self, versions: VersionSet, jobs: Jobs, logs: LogSupply) -> None:
        self.versions = versions
        self.jobs = jobs
        self.logs = logs
        self.condition = Condition(versions.lock)
        self.counters: Counters = Counters()
        self.busy: list[tuple[CompactionPlan, int]] = []  # running plans, with the shift counter when they were made
        self.suspended = 0  # > 0: no new automatic compaction
        self.wanted: dict[
            int, tuple[CompactionPlan, int]
        ] = {}  # blocked manual plans, as in `busy`, by their CompactionPause
        self.errors: dict[str, BaseException] = {}  # of "flush" and "compaction": the last one, until it goes well
        self.hints: Callable[[Version, Options], Hints] = lambda version, options: NO_HINTS
        self.set_pressure: Callable[[Pressure], None] = lambda pressure: None
        self.tick: Callable[[], None] = lambda: None
        self._flushing = False
        self._hurry = False  # somebody waits for a flush: no pause before the next try
        self._stopping = False
        self._manual = 0  # pieces of work that callers wait for
        self._unattended = 0  # and of such that they do not wait for
        self._damaged: set[int] = set()  # tables that a compaction found corrupt: left alone
        self._pressure = Pressure(0, False)
        self._stopped_since = 0
        self._threads: list[threading.Thread] = []

    @property
    def options(self) -> Options:
        return self.versions.options

    def start(self) -> None:
        self.share_memory()
        # What earlier opens left undone holds writers back too: many short ones would pile up L0 without end.
        self.update_pressure()
        self._spawn("flush", self._flush_loop)
        if self.options.wal is not None:
            self._spawn("log", self._log_loop)
        # The flush thread counts as one of the jobs; compaction always has a thread of its own.
        for i in range(max(1, self.options.max_background_jobs - 1)):
            self._spawn(f"compact-{i}", self._compact_loop)
        if self.options.stats_export or self.options.sync_interval_ms:
            self._spawn("timer", self._timer_loop)

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        # Daemon: the interpreter's exit must not wait for these threads before our own exit hook closes the
        # database.
        thread = threading.Thread(target=target, name=f"lsmkv-{name}", daemon=True)
        with self.versions.lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            start_thread(thread)
            # Only now: one that could not be started cannot be joined.
            self._threads.append(thread)

    def ensure_timer(self) -> None:
        if not any(thread.name == "lsmkv-timer" for thread in self._threads):
            self._spawn("timer", self._timer_loop)

    def stop(self) -> None:
        """Cancels what runs and joins the threads. A thread that closes the database from within is not
        joined.
        """
        with self.versions.lock:
            self._stopping = True
            self.condition.notify_all()
        self.jobs.cancel()
        for thread in list(self._threads):
            if thread.ident != threading.get_ident():
                thread.join()
        self._threads.clear()
        with self.versions.lock:
            self.condition.wait_for(lambda: not self._manual)

    def owns_this_thread(self) -> bool:
        ident = threading.get_ident()
        return any(thread.ident == ident for thread in self._threads) or self.jobs.run_in(ident)

    def in_background(self, name: str, work: Callable[[], None]) -> None:
        """A piece of work manually in a thread of its own; its error is counted and logged."""
        uninterruptible(lambda: self._begin_unattended(name, work))

    def _begin_unattended(self, name: str, work: Callable[[], None]) -> None:
        with self.versions.lock:
            self._spawn(name, lambda: self._report(name, work))
            self._unattended += 1

    def _report(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except IOError as error:
            # It may be a failed fsync, which is final whoever asked for it.
            self._failed("compaction", name, error, 0.0)
        except BaseException as error:
            if not self.jobs.cancelled and not isinstance(error, ReadOnlyError):
                self._count_error(name, error)
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

    # Flush -------------------------------------------------------------------------------------------------

    def _flush_loop(self) -> None:
        pause = 0.0
        while True:
            with self.versions.lock:
                if pause:
                    self.condition.wait_for(lambda: self._stopping or self._hurry, pause)
                self.condition.wait_for(lambda: self._stopping or bool(self.versions.immutables))
                self._hurry = False
                if self._stopping or self.versions.poisoned is not None:
                    return
                memtables = list(self.versions.immutables)
                self._flushing = True
            pause = self._attempt("flush", "flush", lambda m=memtables: self._flush(m), pause)  # type: ignore[misc]
            with self.versions.lock:
                self._flushing = False
                self._update_pressure()
                self.condition.notify_all()
            del memtables

    def share_memory(self) -> None:
        """While no memtable waits for its flush, the cache may use the memory of an idle write buffer.

        It gives it back in small steps, so that nobody waits long for the GIL.
        """
        cache, size = self.versions.cache, self.options.block_bytes
        if size and not self.versions.immutables:
            size += self.options.write_buffer_size
        while cache.capacity > size:
            cache.set_capacity(max(size, cache.capacity - SHRINK_STEP))
        cache.set_capacity(size)
        self._let_rotate_early()

    def _let_rotate_early(self) -> None:
        """While nothing is being flushed, half a write buffer is enough to begin: writers that outrun the
        flush then hold less memory, and the second processor has work sooner. Beside a flush an eighth is left to what
        that takes on top: arrays to sort by, hashes, the table in the making.
        """
        with self.versions.lock:
            active, size = self.versions.active, self.options.write_buffer_size
            if active is not None and size >= EARLY_FROM:
                active.capacity = size - size // 8 if self.versions.immutables else size // 2

    def _flush(self, memtables: list[Memtable]) -> None:
        self.share_memory()
        try:
            result = self.jobs.flush(memtables)
        finally:
            self.share_memory()
        with self.versions.lock:
            self.counters.flushed(result)

    # Logs --------------------------------------------------------------------------------------------------

    def _log_loop(self) -> None:
        """Keeps a log ready. Where that fails, the next rotation makes its own, in the writer's thread."""
        pause = 0.0
        while True:
            with self.versions.lock:
                self.condition.wait_for(lambda: self._stopping, pause)
                self.condition.wait_for(lambda: self._stopping or self.logs.short)
                if self._stopping or self.versions.poisoned is not None:
                    return
            pause = 0.0
            try:
                self.logs.prepare()
            except OSError as error:
                pause = LONGEST_PAUSE
                log.warning("no log could be made ahead: %s", error)

    # Compaction --------------------------------------------------------------------------------------------

    def _compact_loop(self) -> None:
        pause = 0.0
        while True:
            with self.versions.lock:
                if pause:
                    self.condition.wait_for(lambda: self._stopping, pause)
                try:
                    claimed = self._claim_next()
                except Exception as error:
                    # A thread that dies here would leave writers waiting at the stop for ever.
                    pause = self._failed("compaction", "choosing a compaction", error, pause)
                    continue
            if claimed is None:
                return
            plan, shifts = claimed
            work = lambda p=plan, s=shifts: self.run_claimed(p, s)  # noqa: E731
            pause = self._attempt("compaction", str(plan), work, pause)

    def _claim_next(self) -> tuple[CompactionPlan, int] | None:
        """Waits for a plan and claims it; None when the thread should end. The lock is held."""
        while True:
            if self._stopping or self.versions.poisoned is not None:
                return None
            self.versions.collect_garbage()
            plan = None if self.suspended else self._choose()
            if plan is not None:
                return self._claim(plan)
            if self._wait_for_work():
                plan = self._pick_idle()
                if plan is not None:
                    return self._claim(plan)

    def _wait_for_work(self) -> bool:
        """Waits until something happens. True where L0 could be tidied up and nothing did for a while."""
        if l0_worth_merging(self.versions.current, self.options) and not self.suspended:
            return not self.condition.wait(IDLE_SECONDS)
        self.condition.wait(GARBAGE_INTERVAL if self.versions.waiting_for_readers else None)
        return False

    def _pick_idle(self) -> CompactionPlan | None:
        """The database is quiet: reads may as well look into one sorted run instead of the tables of L0."""
        if self._stopping or self.versions.poisoned is not None or self.versions.immutables or self.suspended:
            return None
        version = self.versions.current
        return self._choose(Hints(seek_heavy=frozenset(f.number for f in version.levels[0])))

    def _choose(self, hints: Hints | None = None) -> CompactionPlan | None:
        version = self.versions.current
        # A plan that a caller waits to run counts as running, or its tables might never be free.
        busy = self.busy_now() + self._renumbered(self.wanted.values())
        damaged = tuple(f for f in version.files() if f.number in self._damaged)
        if damaged:
            # Taken for good, in a level that does not exist, so that no range is.
            busy.append(CompactionPlan(Kind.COMPACT, -1, -1, upper=damaged))
        return choose(version, self.options, busy, hints or self.hints(version, self.options))

    def busy_now(self) -> list[CompactionPlan]:
        """The running plans, their levels as they are numbered now."""
        return self._renumbered(self.busy)

    def _renumbered(self, plans: Iterable[tuple[CompactionPlan, int]]) -> list[CompactionPlan]:
        return [plan.shifted(self.versions.shifts - shifts) for plan, shifts in plans]

    def _claim(self, plan: CompactionPlan) -> tuple[CompactionPlan, int]:
        claimed = (plan, self.versions.shifts)
        self.busy.append(claimed)
        return claimed

    def run_claimed(self, plan: CompactionPlan, shifts: int, parts: int = 1) -> None:
        try:
            result = self.jobs.run(plan, shifts, parts)
            with self.versions.lock:
                self.counters.done(plan, result)
        except CorruptionError as error:
            with self.versions.lock:
                self._damaged.update(_blamed(plan, error))
            raise
        except Error as error:
            if self.jobs.cancelled:
                raise ClosedError("the database is being closed") from error
            raise
        finally:
            with self.versions.lock:
                self.busy.remove((plan, shifts))
                self.jobs.forget(plan)
                self._update_pressure()
                self.condition.notify_all()

    def pause_compaction(self) -> CompactionPause:
        """No new automatic compaction until the caller has picked its own, or given up."""
        return uninterruptible(lambda: CompactionPause(self), defer_interrupt=True)

    def run_manual(
        self, pick: Callable[[Version, list[CompactionPlan]], CompactionPlan | None]
    ) -> CompactionPlan | None:
        """Picks with `pick`, claims and runs while the caller waits; None where there was nothing to pick."""

        def work() -> CompactionPlan | None:
            with self.versions.lock:
                plan = pick(self.versions.current, self.busy_now())
                if plan is None:
                    return None
                claimed = self._claim(plan)
            self.run_claimed(*claimed, parts=self.versions.options.max_background_jobs)
            return plan

        return self.call(work)

    def call(self, work: Callable[[], T]) -> T:
        """Runs `work` while the caller waits; an interrupt ends the wait and never a commit halfway."""

        def enlisted() -> T:
            with self.versions.lock:
                if self._stopping:
                    raise ClosedError("the database is being closed")
                self._manual += 1
            try:
                return work()
            finally:
                with self.versions.lock:
                    self._manual -= 1
                    self.condition.notify_all()

        return uninterruptible(enlisted)

    # Errors ------------------------------------------------------------------------------------------------

    def _attempt(self, kind: str, what: str, work: Callable[[], None], pause: float) -> float:
        """Runs `work`; returns how long to wait before the next try (0: it went well or will not be tried
        again).
        """
        try:
            work()
        except Superseded as given_up:
            log.debug("%s", given_up)
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
        heals = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in HEALING)
        if not corrupt and not heals:
            # Before anyone hears of the error: who heard of it must find the writes refused.
            self.versions.poison(error)
        with self.versions.lock:
            self._count_error(what, error)
            self.errors[kind] = error
            self._update_pressure()
            self.condition.notify_all()
        if corrupt:
            log.error("%s failed: %s", what, error)
            return LONGEST_PAUSE
        if heals:
            pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            log.warning("%s failed, next try in %.2f s: %s", what, pause, error)
            return pause
        log.error("%s failed", what, exc_info=error)
        return 0.0

    def _count_error(self, what: str, error: BaseException) -> None:
        with self.versions.lock:
            self.counters.errors += 1
            self.counters.last_error = f"{what}: {error}"

    # Waiting -----------------------------------------------------------------------------------------------

    def wait_flushed(self, memtable: Memtable) -> None:
        """Returns when `memtable` is in a table; raises what keeps it from getting there."""
        self._wait_until(lambda: memtable not in self.versions.immutables, "flush")

    def wait_for_room(self, limit: int) -> None:
        """Returns when fewer than `limit` memtables wait: the hard stop of a writer, counted and timed."""
        with self.versions.lock:
            if len(self.versions.immutables) < limit:
                return
            began = time.monotonic_ns()
            self.counters.stops += 1
            try:
                self._wait_until(lambda: len(self.versions.immutables) < limit, "flush")
            finally:
                self.counters.stop_ns += time.monotonic_ns() - began

    def wait_idle(self) -> None:
        """Returns when there is nothing to flush or compact and nothing running."""
        uninterruptible(lambda: self._wait_until(self._idle, "flush", "compaction"))

    def _idle(self) -> bool:
        working = self.versions.immutables or self.busy or self._flushing or self._unattended
        return not working and (self.suspended > 0 or self._choose() is None)

    def wait_change(self) -> None:
        """Returns after the next change of the tree or of what runs (or soon, to look again)."""
        uninterruptible(self._wait_change)

    def _wait_change(self) -> None:
        with self.versions.lock:
            self._check_failed(())
            self.condition.wait(GARBAGE_INTERVAL)

    def wait_unblocked(self, wanted: CompactionPlan, span: KeyRange) -> None:
        """The same for a caller who compacts all of `span` and found `wanted`, its next step, blocked.

        Automatic compactions that block it and lie within `span` are given up: the caller does their work anyway,
        in more threads. The caller's `CompactionPause` keeps them from beginning again.
        """
        uninterruptible(lambda: self._wait_unblocked(wanted, span))

    def _wait_unblocked(self, wanted: CompactionPlan, span: KeyRange) -> None:
        with self.versions.lock:
            pairs = zip(self.busy, self.busy_now(), strict=True)
            blocking = [plan for (plan, _), now in pairs if conflict(now, wanted)]
            for plan in blocking:
                if self._may_give_up(plan, span):
                    self.jobs.supersede(plan)
            if blocking:
                self._wait_change()

    def _may_give_up(self, plan: CompactionPlan, span: KeyRange) -> bool:
        if plan.kind is not Kind.COMPACT or plan.reason == MANUAL:
            return False
        # Stopped writers wait for the merge of L0.
        return span.covers(plan.span) and not (plan.level == 0 and self.writers_stopped)

    def _wait_until(self, done: Callable[[], bool], *kinds: str) -> None:
        with self.versions.lock:
            # An old error may be over: what counts is how the next try goes.
            for kind in kinds:
                self.errors.pop(kind, None)
            self._hurry = True
            self.condition.notify_all()
            while not done():
                self._check_failed(kinds)
                if is_finalizing() and self.versions.immutables:
                    # The flush thread has stopped for good.
                    self._flush(list(self.versions.immutables))
                else:
                    self.condition.wait()

    def _check_failed(self, kinds: Iterable[str]) -> None:
        self.versions.require_writable()
        for kind in kinds:
            if kind in self.errors:
                raise _again(self.errors[kind])
        if self._stopping:
            raise ClosedError("the database is being closed")

    # Back pressure -----------------------------------------------------------------------------------------

    @property
    def writers_stopped(self) -> bool:
        return self._pressure.stopped

    def update_pressure(self) -> None:
        with self.versions.lock:
            self._update_pressure()

    def _update_pressure(self) -> None:
        before, now = self._pressure, pressure(self.versions.current, self.options)
        if self._damaged or "compaction" in self.errors:
            # L0 may never shrink again: writers who waited for that would wait for ever.
            now = Pressure(now.delay_ns, False)
        if now == before:
            return
        self._pressure = now
        if now.delay_ns and not before.delay_ns:
            self.counters.slowdowns += 1
        if now.stopped and not before.stopped:
            self.counters.stops += 1
            self._stopped_since = time.monotonic_ns()
        if before.stopped and not now.stopped:
            self.counters.stop_ns += time.monotonic_ns() - self._stopped_since
        self.set_pressure(now)

    # The timer ---------------------------------------------------------------------------------------------

    def _timer_loop(self) -> None:
        while True:
            interval = STATS_INTERVAL
            if self.options.sync_interval_ms:
                interval = min(interval, self.options.sync_interval_ms / 1000)
            with self.versions.lock:
                self.condition.wait_for(lambda: self._stopping, interval)
                if self._stopping:
                    return
            self.tick()


class CompactionPause:
    """Keeps automatic compactions out of the way of a manual one: all of them until it has picked its first step, for
    one thread of theirs would begin what several of the caller's can do; later those that conflict with a step it
    waits for.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._suspends = False
        self._released = False
        with scheduler.versions.lock:
            scheduler.suspended += 1
            self._suspends = True

    def narrow(self, wanted: CompactionPlan) -> None:
        """Keeps back only what conflicts with `wanted`. The lock is held."""
        self.lift()
        # A caller whose wait was interrupted may have left a thread behind that comes here late.
        if not self._released:
            self._scheduler.wanted[id(self)] = (wanted, self._scheduler.versions.shifts)

    def lift(self) -> None:
        """Keeps nothing back, until the next `narrow`. The lock is held."""
        scheduler = self._scheduler
        wanted = scheduler.wanted.pop(id(self), None)
        if self._suspends:
            self._suspends = False
            scheduler.suspended -= 1
        elif wanted is None:
            return
        scheduler.condition.notify_all()

    def release(self) -> None:
        """Keeps nothing back any more."""
        uninterruptible(self._release, defer_interrupt=True)

    def _release(self) -> None:
        with self._scheduler.versions.lock:
            self._released = True
            self.lift()

    def __del__(self) -> None:
        self.release()  # Ctrl-C may come before its holder has a chance to


def _blamed(plan: CompactionPlan, error: CorruptionError) -> list[int]:
    """The inputs that the error is about; where it names no table at all, the only one there is."""
    named = filenames.parse(os.path.basename(error.file or ""))
    if named is None or named[0] is not filenames.Kind.TABLE:
        return [f.number for f in plan.inputs] if len(plan.inputs) == 1 else []
    return [f.number for f in plan.inputs if f.number == named[1]]


def _again(error: BaseException) -> BaseException:
    """A fresh exception of the same kind: one object must not be raised in several threads."""
    if isinstance(error, OSError):
        return IOError(error.errno, error.strerror, error.filename)
    if isinstance(error, CorruptionError):
        return CorruptionError(str(error))
    return error

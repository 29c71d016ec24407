"""The state of one database's background work: its errors and counters, the pressure on writers, and the condition on
which callers wait.

All fields are guarded by the version set's `lock`. The main thread never waits here itself (`port/uninterruptible`): an
interrupt could end the wait and leave the lock taken.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from functools import partial

from lsmkv.compaction import news
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.jobs import Result
from lsmkv.compaction.picker import CompactionPlan
from lsmkv.compaction.running import RunningJobs, Superseded
from lsmkv.compaction.stalls import Pressure, Stalls, pressure
from lsmkv.errors import ClosedError, CorruptionError, IOError, KeyspaceError, ReadOnlyError
from lsmkv.events import Events
from lsmkv.options import Options
from lsmkv.version.version import Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.engine import Engine
from lsmkv_ext.port.finalization import Condition

log = logging.getLogger("lsmkv")

# After these errors the same work may succeed later: the system refused a call, and nothing was lost.
TRANSIENT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Status:
    def __init__(self, versions: VersionSet, running: RunningJobs) -> None:
        self.versions = versions
        self.condition = Condition(versions.lock)
        self.counters: Counters = Counters()
        self.events = Events(versions.directory)
        self.stalls = Stalls(partial(_hold_back, versions.engine), self.events)
        # The last error of "flush" and "compaction", until one succeeds; of "damage", the last table found corrupt.
        self.errors: dict[str, BaseException] = {}
        self.flushing = False
        self.stopping = False
        self.changed_at = time.monotonic()
        # Wake the tasks. Set by the scheduler's start; None before it and once the database closes.
        self.wake_flush: Callable[[], None] | None = None
        self.wake_compaction: Callable[[], None] | None = None
        self.wake_idle_flush: Callable[[], None] | None = None
        self._running = running
        self._pressures: dict[int, tuple[Version, Options, Pressure]] = {}  # by keyspace; of its tree as it was

    def rotated(self) -> None:
        """There is a memtable to flush: wakes the flush."""
        self.changed_at = time.monotonic()
        self._wake(self.wake_flush)

    def value_log_created(self) -> None:
        """Its values are flushed once nothing is written any more."""
        self._wake(self.wake_idle_flush)

    def changed(self) -> None:
        """The tree or the running plans changed: wakes waiting callers and automatic compaction."""
        with self.versions.lock:
            self.changed_at = time.monotonic()
            self.condition.notify_all()
            self._wake(self.wake_compaction)

    def _wake(self, wake: Callable[[], None] | None) -> None:
        if wake is None or self.versions.engine.refusal is not None:
            return
        try:
            wake()
        except (RuntimeError, MemoryError) as error:
            self._no_thread(error)

    def quiesce(self) -> None:
        """Wakes no task from now on: the database closes."""
        self.wake_flush = self.wake_compaction = self.wake_idle_flush = None

    def stop(self) -> None:
        """Makes waiting callers raise ClosedError, now and later."""
        self.quiesce()
        with self.versions.lock:
            self.stopping = True
            self.condition.notify_all()

    def reset_counters(self) -> None:
        with self.versions.lock:
            self.counters = Counters()

    # What was done -----------------------------------------------------------------------------------------

    def flushed(self, result: Result) -> None:
        with self.versions.lock:
            self.counters.flushed(result)
        news.flushed(self.events, result)

    def compacted(self, keyspace: str, plan: CompactionPlan, result: Result) -> None:
        with self.versions.lock:
            self.counters.done(plan, result)
        news.compacted(self.events, keyspace, plan, result)

    def waited(self, ns: int) -> None:
        """A writer was stopped until memtables were flushed."""
        with self.versions.lock:
            self.counters.stopped(ns)
        news.waited(self.events, ns)

    def refused(self) -> None:
        """The database has become read-only."""
        error = self.versions.engine.refusal
        if error is not None:
            news.failed(self.events, "writing", error, read_only=True)
        self.changed()

    # Errors ------------------------------------------------------------------------------------------------

    def attempt(self, kind: str, what: str, work: Callable[[], None], pause: float) -> float:
        """Runs `work`. Returns the seconds to wait before a retry; 0 if it succeeded or must not be retried."""
        try:
            work()
        except (Superseded, KeyspaceError) as gone:
            log.debug("%s: %s", what, gone)
            return 0.0
        except Exception as error:
            return self.failed(kind, what, error, pause)
        with self.versions.lock:
            if self.errors.pop(kind, None) is not None:
                self.update_pressure()
        return 0.0

    def failed(self, kind: str, what: str, error: BaseException, pause: float) -> float:
        """Reports an error. Refuses writes unless it is transient or corruption. Returns the seconds before a retry."""
        if self._running.cancelled or isinstance(error, ReadOnlyError):
            return 0.0
        corrupt = isinstance(error, CorruptionError)
        transient = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in TRANSIENT)
        if not corrupt and not transient:
            # Before the error is published: a caller that sees it must find writes refused.
            self.versions.engine.refuse(error)
        self._publish(kind, what, error)
        if corrupt:
            log.error("%s failed: %s", what, error)
            return LONGEST_PAUSE
        if transient:
            pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
            log.warning("%s failed, retry in %.2f s: %s", what, pause, error)
            return pause
        log.error("%s failed", what, exc_info=error)
        return 0.0

    def helper_failed(self, what: str, error: BaseException, pause: float) -> float:
        """Reports an error of work that callers can do without."""
        log.warning("%s failed, retry in %.2f s: %r", what, LONGEST_PAUSE, error)
        with self.versions.lock:
            self.counters.failed(what, error)
        news.failed(self.events, what, error)
        return LONGEST_PAUSE

    def _no_thread(self, error: BaseException) -> None:
        """No thread can be started for a task. Waiting callers run the flush; compactions do not stop writers."""
        if "compaction" not in self.errors:
            log.warning("%s: background work waits: %s", self.versions.directory, error)
            self._publish("compaction", "starting a thread", error)

    def _publish(self, kind: str, what: str, error: BaseException) -> None:
        with self.versions.lock:
            self.counters.failed(what, error)
            self.errors[kind] = error
            self.update_pressure()
            self.condition.notify_all()
        news.failed(self.events, what, error)

    def check(self, *kinds: str) -> None:
        """Raises the last error of these kinds of work, or the reason why none is done any more."""
        self.versions.engine.require_writable()
        for kind in kinds:
            if kind in self.errors:
                raise _copy_of(self.errors[kind])
        if self.stopping:
            raise ClosedError("the database is being closed")

    def forget(self, *kinds: str) -> None:
        """Drops old errors: their cause may be gone, and the next attempt decides."""
        with self.versions.lock:
            for kind in kinds:
                self.errors.pop(kind, None)

    # Back pressure -----------------------------------------------------------------------------------------

    def update_pressure(self) -> None:
        with self.versions.lock:
            now = self._highest_pressure()
            if "damage" in self.errors or "compaction" in self.errors:
                # L0 may never shrink again, and stopped writers would wait forever.
                now = Pressure(now.delay_ns, False)
            self.stalls.update(now, self.counters)

    def _highest_pressure(self) -> Pressure:
        """The pressure that the keyspaces together call for. Those that have not changed are not computed again."""
        known, self._pressures = self._pressures, {}
        for keyspace, tree in self.versions.trees.items():
            version, options = tree.current, tree.options
            found = known.get(keyspace)
            if found is None or found[0] is not version or found[1] is not options:
                found = version, options, pressure(version, options)
            self._pressures[keyspace] = found
        each = [found[2] for found in self._pressures.values()]
        return Pressure(max((p.delay_ns for p in each), default=0), any(p.stopped for p in each))


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

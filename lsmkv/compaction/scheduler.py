"""The background work of one database, as tasks for the threads that all databases share (`lsmkv.background`): flushes,
automatic compactions, logs made in advance, and periodic syncs and statistics.

The tasks hold the Scheduler, never the database, so an abandoned database is collected and closes itself. All fields
are guarded by the version set's `lock`. `claims` has the running plans, `status` the errors and counters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from lsmkv import background
from lsmkv.background import Pool, Task
from lsmkv.compaction.claims import Claim
from lsmkv.compaction.counters import Counters
from lsmkv.compaction.flush import WAIT_INTERVAL, Flusher
from lsmkv.compaction.idle_flush import IdleFlush
from lsmkv.compaction.memory import share_memory
from lsmkv.compaction.running import RunningJobs
from lsmkv.compaction.status import Status
from lsmkv.compaction.tree_work import TreeWork, TreeWorks
from lsmkv.compaction.unattended import Unattended
from lsmkv.errors import ClosedError, ReadOnlyError
from lsmkv.log_supply import LogSupply
from lsmkv.options import Options
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.values.writer import ValueWriter

log = logging.getLogger("lsmkv")

STATS_INTERVAL = 0.5
# How long `wait_change` waits at most.
CHANGE_INTERVAL = 0.5


class Tasks:
    """The tasks of one database in the pool of the process."""

    def __init__(self, scheduler: Scheduler, pool: Pool, compactions: int) -> None:
        status = scheduler.status
        failed = partial(status.failed, "flush", "flush")
        self.flush = Task(pool, pool.flush, "flush", scheduler.flusher.run, failed)
        failed = partial(status.failed, "compaction", "compaction")
        self.compaction = Task(pool, pool.compaction, "compact", scheduler.compact, failed, compactions)
        failed = partial(status.helper_failed, "a flush of an idle database")
        self.idle_flush = Task(pool, pool.housekeeping, "housekeeping", scheduler.idle_flush.run, failed)
        failed = partial(status.helper_failed, "a log made in advance")
        self.log = Task(pool, pool.housekeeping, "housekeeping", scheduler.prepare_log, failed)
        failed = partial(status.helper_failed, "periodic work")
        self.tick = Task(pool, pool.housekeeping, "housekeeping", scheduler.tick, failed)

    def close(self) -> None:
        """Lets no run begin any more, and waits for those in other threads."""
        tasks = (self.flush, self.compaction, self.idle_flush, self.log, self.tick)
        for task in tasks:
            task.close()
        for task in tasks:
            task.join()


class Caller:
    """A caller that `stop` waits for. It leaves by setting `left`, which allocates nothing and so cannot fail."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False


class Scheduler:
    def __init__(self, versions: VersionSet, logs: LogSupply, export: Callable[[Scheduler], None]) -> None:
        """`export` writes the statistics."""
        self.versions = versions
        self.running = RunningJobs()
        self.status = Status(versions, self.running)
        self._works = TreeWorks(self.status, self.running)
        self.flusher = Flusher(self.status, self._works.jobs_of, logs)
        self.idle_flush = IdleFlush(versions, self.flusher)
        self.unattended = Unattended(self.status, self.running)
        self._logs = logs
        self._export = export
        self._pool: Pool | None = None
        self._tasks: Tasks | None = None  # from `start` to `stop`
        self._callers: list[Caller] = []

    def work_of(self, tree: StoredTree) -> TreeWork:
        return self._works.of(tree)

    def works(self) -> list[TreeWork]:
        """Of all keyspaces, those with the most tables in L0 first: they slow down reads, and at last writers."""
        trees = sorted(self.versions.trees.values(), key=lambda tree: -len(tree.current.levels[0]))
        return [self.work_of(tree) for tree in trees]

    @property
    def options(self) -> Options:
        return self.versions.options

    @property
    def counters(self) -> Counters:
        return self.status.counters

    # Start and stop ----------------------------------------------------------------------------------------

    def start(self) -> None:
        share_memory(self.versions)
        # Before the first write: many short sessions would otherwise grow L0 without bound.
        self.status.update_pressure()
        # One of the jobs is for the flush; there is always one for compactions.
        compactions = max(1, self.options.max_background_jobs - 1)
        self._pool = background.enter(compactions)
        self._tasks = Tasks(self, self._pool, compactions)
        self.flusher.task = self._tasks.flush
        self.status.wake_flush = partial(self._wake_flush, self._tasks)
        self.status.wake_compaction = self._tasks.compaction.wake
        self.status.wake_idle_flush = self._tasks.idle_flush.wake
        self.schedule_tick()
        if self.versions.tables:
            self.wake()

    def stop(self) -> None:
        """Cancels the running jobs and waits for them, except one in the calling thread."""
        self.status.stop()
        self.running.cancel()
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.close()
        self.flusher.task = None
        self.unattended.join()
        pool, self._pool = self._pool, None
        if pool is not None:
            background.leave(pool)
        with self.versions.lock:
            while not all(caller.left for caller in self._callers):
                # Bounded: a caller short of memory may fail before it notifies.
                self.status.condition.wait(WAIT_INTERVAL)

    def enlist(self, caller: Caller) -> None:
        """`stop` waits until `caller` has left. Raises ClosedError after `stop`."""
        with self.versions.lock:
            if self.status.stopping:
                raise ClosedError("the database is being closed")
            self._callers = [*(each for each in self._callers if not each.left), caller]

    # Tasks -------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """The tree or the options changed."""
        self.status.changed()

    def _wake_flush(self, tasks: Tasks) -> None:
        tasks.flush.wake()
        if self._logs.short:
            tasks.log.wake()

    def new_value_log(self) -> ValueWriter:
        """A value log for puts. Called in the writer's thread, which holds its turn until this returns."""
        writer = self.versions.new_value_log()
        self.status.value_log_created()
        return writer

    def compact(self, pause: float) -> float:
        """Runs the next automatic compaction, if any."""
        found = self._claim_next()
        if found is not None:
            work, claim = found
            return work.compactions.run(claim, pause)
        with self.versions.lock:
            pauses = [work.compactions.look_again_in() for work in self.works()]
        again, tasks = min((each for each in pauses if each is not None), default=None), self._tasks
        if again is not None and tasks is not None:
            tasks.compaction.wake_after(again)
        return 0.0

    def _claim_next(self) -> tuple[TreeWork, Claim] | None:
        with self.versions.lock:
            for work in self.works():
                plan, tasks = work.compactions.next_plan(), self._tasks
                if tasks is None:
                    return None
                if plan is not None:
                    # Another thread may find a second plan. Before the claim, because the wake may fail.
                    tasks.compaction.wake()
                    return work, work.claims.add(plan)
        return None

    def prepare_log(self, pause: float) -> float:
        """Creates a log in advance. If that fails, the next rotation creates one in the writer's thread."""
        if self.versions.engine.refusal is None:
            self._logs.prepare()
        return 0.0

    def schedule_tick(self) -> None:
        """Sets the alarm of the next `tick`, if an option asks for periodic work."""
        intervals = [self.options.sync_interval_ms / 1000] if self.options.sync_interval_ms else []
        if self.options.stats_export:
            intervals.append(STATS_INTERVAL)
        pool, tasks = self._pool, self._tasks
        if intervals and pool is not None and tasks is not None:
            pool.start_timer()
            tasks.tick.wake_after(min(intervals))

    def tick(self, pause: float) -> float:
        """Syncs the log and exports the statistics, as the options say."""
        try:
            if self.options.sync_interval_ms:
                self.flusher.sync()
            if self.options.stats_export:
                self._export(self)
        except (ClosedError, ReadOnlyError):
            return 0.0
        except OSError as error:
            log.error("%s: background sync failed: %s", self.versions.directory, error)
        self.schedule_tick()
        return 0.0

    # Waiting -----------------------------------------------------------------------------------------------

    def wait_idle(self) -> None:
        """Returns when nothing runs and there is nothing to flush or compact."""
        uninterruptible(self._wait_idle)

    def _wait_idle(self) -> None:
        with self.versions.lock:
            self.status.forget("flush", "compaction")
            self.status.rotated()
            self.wake()
            while not self._idle():
                self.status.check("flush", "compaction")
                self.status.condition.wait(WAIT_INTERVAL)

    def _idle(self) -> bool:
        works = self.works()
        if self.versions.engine.immutables or self.status.flushing or self.unattended.running:
            return False
        return not any(work.claims.running or work.compactions.choose() is not None for work in works)

    def wait_change(self) -> None:
        """Returns after the next change of the tree or of the running plans, or after a short while. The main thread
        calls `ManualWork.wait_change` instead.
        """
        with self.versions.lock:
            self.status.check()
            self.status.condition.wait(CHANGE_INTERVAL)

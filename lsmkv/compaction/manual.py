"""Work that a caller waits for: `compact_range`, `rebuild_filters`, `ingest`.

`ManualWork` runs plans in the caller's thread, beside the scheduler's threads; `CompactRange` drives one
`compact_range`. The version set's `lock` guards what they share with the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lsmkv.compaction.claims import CompactionPause
from lsmkv.compaction.picker import MANUAL, CompactionPlan, PlanKind, choose_range, files_to_compact
from lsmkv.compaction.scheduler import Caller, Scheduler
from lsmkv.compaction.status import Status
from lsmkv.compaction.tree_work import TreeWork
from lsmkv.compaction.watched import watched
from lsmkv.options import MAX_LEVELS
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import KeyRange, Version
from lsmkv_ext.port.uninterruptible import uninterruptible

T = TypeVar("T")

Progress = Callable[[int, int], None]
Pick = Callable[[Version, list[CompactionPlan]], CompactionPlan | None]


class ManualWork:
    """The manual work on one keyspace."""

    def __init__(self, scheduler: Scheduler, work: TreeWork) -> None:
        self._scheduler = scheduler
        self._work = work
        self._lock = scheduler.versions.lock
        self.tree = work.tree

    def call(self, work: Callable[[], T]) -> T:
        """Runs `work`, which a `close` waits for. An interrupt ends the wait of the caller, not the work."""

        def enlisted() -> T:
            caller = Caller()
            try:
                self._scheduler.enlist(caller)
                return work()
            finally:
                caller.left = True
                self._scheduler.wake()

        return uninterruptible(enlisted)

    def run(self, pick: Pick) -> CompactionPlan | None:
        """Claims and runs the plan that `pick` returns; None if there is none. `pick` gets the version and the running
        plans, with the lock held.
        """
        return self.call(lambda: self._run(pick))

    def _run(self, pick: Pick) -> CompactionPlan | None:
        with self._lock:
            plan = pick(self.tree.current, self._work.claims.plans())
            if plan is None:
                return None
            claim = self._work.claims.add(plan)
        try:
            self._work.compactions.run_claimed(claim, self.tree.options.max_background_jobs)
        finally:
            # `run_claimed` does it too, but may have failed before.
            with self._lock:
                self._work.claims.remove(claim)
        return plan

    def pause_compaction(self) -> CompactionPause:
        """Starts no automatic compaction until the caller has picked its own."""
        return uninterruptible(lambda: CompactionPause(self._work.claims), defer_interrupt=True)

    def share_done(self, plan: CompactionPlan) -> float:
        """How much of a running plan is done, from 0 to 1."""
        return self._scheduler.running.share_done(plan)

    def wait_change(self) -> None:
        """Returns after the next change of the tree or of the running plans, or after a short while."""
        uninterruptible(self._scheduler.wait_change)

    def wait_unblocked(self, wanted: CompactionPlan, span: KeyRange) -> None:
        """Waits for a change while `wanted`, the next step of a caller that compacts all of `span`, is blocked.

        Automatic compactions that block it and lie within `span` are superseded: the caller does their work anyway, in
        more threads. The caller's `CompactionPause` keeps them from starting again.
        """
        uninterruptible(lambda: self._wait_unblocked(wanted, span))

    def _wait_unblocked(self, wanted: CompactionPlan, span: KeyRange) -> None:
        with self._lock:
            blocking = self._work.claims.blocking(wanted)
            for plan in blocking:
                if self._may_supersede(plan, span):
                    self._scheduler.running.supersede(plan)
            if blocking:
                self._scheduler.wait_change()

    def _may_supersede(self, plan: CompactionPlan, span: KeyRange) -> bool:
        if plan.kind is not PlanKind.COMPACT or plan.reason == MANUAL:
            return False
        # Stopped writers wait for the merge of L0.
        return span.covers(plan.span) and not (plan.level == 0 and self._scheduler.status.stalls.stopped)

    def compact_range(self, span: KeyRange, pause: CompactionPause, progress: Progress | None = None) -> None:
        """Compacts `span`, then releases `pause`."""
        try:
            work = uninterruptible(lambda: CompactRange(self._scheduler.status, self.tree, span, pause))
            work.run(self, progress)
        finally:
            pause.release()


class CompactRange:
    """One `compact_range`: its plans, level by level from the top. It ignores tables that reach L0 meanwhile."""

    def __init__(self, status: Status, tree: StoredTree, span: KeyRange, pause: CompactionPause) -> None:
        with tree.versions.lock:
            version, self._shifts = tree.current, tree.shifts
        self._status = status
        self._tree = tree
        self._span = span
        self._pause = pause
        self._now = tree.versions.judge_time(tree.versions.engine.format_2)
        self._l0_at_start = {f.number for f in version.levels[0]}
        self._level = 0
        self._after = b""  # the level is compacted up to this key
        self._relieved = False  # the last plan merged L0 for stopped writers
        self._total = sum(f.size for level in range(MAX_LEVELS) for f in version.overlapping(level, span))
        self._running: CompactionPlan | None = None  # the last step that was picked
        self.wanted: CompactionPlan | None = None  # the next step, which may be blocked; None: all is done

    def run(self, manual: ManualWork, progress: Progress | None) -> None:
        done = 0

        def report() -> None:
            plan = self._running
            part = 0.0 if plan is None else plan.input_bytes * manual.share_done(plan)
            assert progress is not None
            progress(min(done + int(part), self._total), self._total)

        while True:
            step = partial(manual.run, self.pick)
            plan = step() if progress is None else watched(step, report)
            self._running = None
            if plan is not None:
                done += plan.input_bytes
                if progress is not None:
                    report()
            elif self.wanted is not None:
                manual.wait_unblocked(self.wanted, self._span)
            else:
                break
        if progress is not None:
            progress(self._total, self._total)

    def pick(self, version: Version, running: Sequence[CompactionPlan]) -> CompactionPlan | None:
        """The next step. None: it is blocked, or all is done. The lock is held."""
        self._running = self._pick(version, running)
        return self._running

    def _pick(self, version: Version, running: Sequence[CompactionPlan]) -> CompactionPlan | None:
        self._descend(version)
        self.wanted = self._step(version)
        if self.wanted is None:
            return None
        step = self._step(version, running)
        if self._status.stalls.stopped and (step is None or not self._relieved):
            # This step may keep others from merging L0, so this caller merges it. Every second plan is still a step.
            relief = choose_range(version, self._tree.options, 0, busy=running)
            if relief is not None:
                self._relieved = True
                self._pause.narrow(self.wanted)
                return relief
        if step is None:
            self._pause.narrow(self.wanted)
            return None
        self._pause.lift()
        self._relieved = False
        if self._level:
            self._after = max(f.largest for f in step.upper) + b"\0"
        return step

    def _descend(self, version: Version) -> None:
        """Moves to the next level with files to compact, or past the last one."""
        shifts = self._tree.shifts
        if self._level:
            self._level += shifts - self._shifts
        self._shifts = shifts
        while self._level <= version.last_level and not self._left(version):
            self._level, self._after = self._level + 1, b""

    def _left(self, version: Version) -> bool:
        files = files_to_compact(version, self._level, self._span, self._after, self._now)
        return any(self._level or f.number in self._l0_at_start for f in files)

    def _step(self, version: Version, running: Sequence[CompactionPlan] = ()) -> CompactionPlan | None:
        if self._level > version.last_level:
            return None
        return choose_range(version, self._tree.options, self._level, self._span, running, self._after, self._now)

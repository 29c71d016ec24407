"""Claims: the running plans, and what automatic compaction may pick beside them.

All fields are guarded by the version set's `lock`; every method but `CompactionPause.release` is called with it held.
"""

from __future__ import annotations

import os
from _thread import interrupt_main
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from lsmkv import filenames
from lsmkv.compaction.picker import CompactionPlan, Hints, PlanKind, choose, conflict
from lsmkv.errors import CorruptionError
from lsmkv.version.stored_tree import StoredTree
from lsmkv_ext.port.uninterruptible import uninterruptible


class Claim(NamedTuple):
    plan: CompactionPlan
    shifts: int  # the tree's counter when the plan was made


class Claims:
    """The running plans of one keyspace. `changed` is called when automatic compaction may pick again."""

    def __init__(self, tree: StoredTree, changed: Callable[[], None]) -> None:
        self.tree = tree
        self.lock = tree.versions.lock
        self.changed = changed
        self.running: list[Claim] = []
        self.suspended = 0  # > 0: no new automatic compaction
        self.wanted: dict[int, Claim] = {}  # blocked steps of manual compactions, by their CompactionPause
        self.damaged: set[int] = set()  # tables that a compaction found corrupt: left alone

    def add(self, plan: CompactionPlan) -> Claim:
        claim = Claim(plan, self.tree.shifts)
        self.running.append(claim)
        return claim

    def remove(self, claim: Claim) -> None:
        """By identity: another thread may have claimed an equal plan since. Removing a claim twice is no error."""
        for i, running in enumerate(self.running):
            if running is claim:
                del self.running[i]
                return

    def plans(self) -> list[CompactionPlan]:
        """The running plans, with the current level numbers."""
        return self._renumbered(self.running)

    def blocking(self, wanted: CompactionPlan) -> list[CompactionPlan]:
        """The running plans, as they were claimed, that conflict with `wanted`."""
        pairs = zip(self.running, self.plans(), strict=True)
        return [claim.plan for claim, now in pairs if conflict(now, wanted)]

    def _renumbered(self, claims: Iterable[Claim]) -> list[CompactionPlan]:
        return [plan.shifted(self.tree.shifts - shifts) for plan, shifts in claims]

    def choose(self, hints: Hints) -> CompactionPlan | None:
        """The next automatic plan, or None. The caller checks `suspended`."""
        version = self.tree.current
        # A plan that a caller waits for counts as running, or new plans could block it forever.
        busy = self.plans() + self._renumbered(self.wanted.values())
        damaged = tuple(f for f in version.files() if f.number in self.damaged)
        if damaged:
            # A plan that never ends, in no level: it keeps the files out of other plans, but no key range.
            busy.append(CompactionPlan(PlanKind.COMPACT, -1, -1, upper=damaged))
        return choose(version, self.tree.options, busy, hints)

    def choose_idle(self, hints: Hints) -> CompactionPlan | None:
        """A merge of L0 for an idle database: reads then probe one sorted run instead of several tables."""
        l0 = frozenset(f.number for f in self.tree.current.levels[0])
        return self.choose(replace(hints, seek_heavy=l0))

    def mark_damaged(self, plan: CompactionPlan, error: CorruptionError) -> None:
        """Keeps the input that the error names out of later plans. If it names no table, the input is to blame if it is
        the only one.
        """
        numbers = [f.number for f in plan.inputs]
        named = filenames.parse(os.path.basename(error.file or ""))
        if named is not None and named[0] is filenames.FileKind.TABLE:
            numbers = [number for number in numbers if number == named[1]]
        elif len(numbers) > 1:
            numbers = []
        self.damaged.update(numbers)


class CompactionPause:
    """Keeps automatic compactions out of the way of a manual one. Until the manual one has picked its first step, none
    starts: one background thread would begin what the caller can do in several. Later only those do not start that
    conflict with a blocked step.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._suspends = False
        self._released = False
        with claims.lock:
            claims.suspended += 1
            self._suspends = True

    def narrow(self, wanted: CompactionPlan) -> None:
        """Holds back only what conflicts with `wanted`. The lock is held."""
        self.lift()
        # After an interrupt, the thread that worked for the caller may come here after the release.
        if not self._released:
            self._claims.wanted[id(self)] = Claim(wanted, self._claims.tree.shifts)

    def lift(self) -> None:
        """Holds nothing back until the next `narrow`. The lock is held."""
        claims = self._claims
        wanted = claims.wanted.pop(id(self), None)
        if self._suspends:
            self._suspends = False
            claims.suspended -= 1
        elif wanted is None:
            return
        claims.changed()

    def release(self) -> None:
        """Holds nothing back any more."""
        uninterruptible(self._release, defer_interrupt=True)

    def _release(self) -> None:
        with self._claims.lock:
            self._released = True
            self.lift()

    def __del__(self) -> None:
        if self._released:
            return
        try:
            self.release()  # an interrupt may come before the holder can release it
        except KeyboardInterrupt:
            # Python ignores what a finalizer raises: interrupt again, outside of it.
            interrupt_main()

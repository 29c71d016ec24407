"""Automatic compaction: picks the next plan, runs it, and reports how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from lsmkv.compaction.claims import Claim, Claims
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.picker import CompactionPlan, Hints, l0_worth_merging, next_expiry
from lsmkv.compaction.status import TRANSIENT, Status
from lsmkv.errors import ClosedError, CorruptionError, Error, IOError
from lsmkv.options import Options
from lsmkv.version.version import Version

# How often dropped tables are checked while readers still hold some of them.
GARBAGE_INTERVAL = 0.5
IDLE_SECONDS = 0.1
# How long at most until the next look at the expiries.
LONGEST_PAUSE = 3600.0


class AutomaticCompaction:
    def __init__(self, status: Status, jobs: Jobs, claims: Claims, hints: Callable[[Version, Options], Hints]) -> None:
        self._status = status
        self._tree = jobs.tree
        self._versions = status.versions
        self._jobs = jobs
        self._claims = claims
        self._hints = hints

    # Picking -----------------------------------------------------------------------------------------------

    def choose(self) -> CompactionPlan | None:
        """The next plan, or None; none while a manual compaction suspends automatic ones. The lock is held."""
        if self._claims.suspended:
            return None
        return self._claims.choose(self._read_hints())

    def _read_hints(self) -> Hints:
        return self._hints(self._tree.current, self._tree.options)

    def next_plan(self) -> CompactionPlan | None:
        """The plan to run now, an idle compaction included, or None. The lock is held."""
        if self._status.stopping or self._versions.engine.refusal is not None:
            return None
        self._versions.collect_garbage()
        return self.choose() or self._choose_idle()

    def _choose_idle(self) -> CompactionPlan | None:
        idle = self._idle_in()
        # Not idle: a running flush has not changed the tree yet, but it will.
        if idle is None or idle > 0.0 or self._versions.engine.immutables or self._status.flushing:
            return None
        return self._claims.choose_idle(self._read_hints())

    def _idle_in(self) -> float | None:
        """Seconds until an idle compaction may run if nothing changes; None if L0 is not worth merging."""
        if self._claims.suspended:
            return None
        if not l0_worth_merging(self._tree.current, self._tree.options, self._read_hints().covered):
            return None
        return self._status.changed_at + IDLE_SECONDS - time.monotonic()

    def look_again_in(self) -> float | None:
        """Seconds until `next_plan` may find something even if nothing changes; None if it will not."""
        with self._versions.lock:
            if self._versions.engine.refusal is not None:
                return None
            pauses = [
                GARBAGE_INTERVAL if self._versions.waiting_for_readers else None,
                self._idle_in(),
                self._expiry_in(),
            ]
            return min((pause for pause in pauses if pause is not None and pause > 0.0), default=None)

    def _expiry_in(self) -> float | None:
        """Seconds until enough entries of a table are expired for a plan, at most LONGEST_PAUSE, which keeps the timer
        from overflowing; None if that will not happen.
        """
        now = self._tree.judge_time()
        moment = next_expiry(self._tree.current, now) if now else None
        return None if moment is None else min((moment - now) / 1000, LONGEST_PAUSE)

    # Running -----------------------------------------------------------------------------------------------

    def run(self, claim: Claim, pause: float) -> float:
        """Runs a claimed plan. Returns the seconds to wait before the next one."""
        try:
            return self._status.attempt("compaction", str(claim.plan), partial(self.run_claimed, claim), pause)
        finally:
            # `run_claimed` does it too, but the attempt may have failed before it.
            with self._versions.lock:
                self._claims.remove(claim)

    def run_claimed(self, claim: Claim, max_subcompactions: int = 1) -> None:
        """Runs a plan in up to `max_subcompactions` threads and removes its claim."""
        try:
            result = self._jobs.run(claim.plan, claim.shifts, max_subcompactions)
            self._status.compacted(self._tree.state.name, claim.plan, result)
        except CorruptionError as error:
            with self._versions.lock:
                self._claims.mark_damaged(claim.plan, error)
                if self._claims.damaged:
                    self._status.errors["damage"] = error
            raise
        except IOError as error:
            # It may be a failed fsync, which is final even if the caller of a manual plan handles the error.
            if error.errno not in TRANSIENT:
                self._versions.engine.refuse(error)
            raise
        except Error as error:
            if self._jobs.running.cancelled:
                raise ClosedError("the database is being closed") from error
            raise
        finally:
            with self._versions.lock:
                self._claims.remove(claim)
                self._jobs.running.forget(claim.plan)
                self._status.update_pressure()
                self._status.changed()

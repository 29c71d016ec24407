"""The running jobs of one database. All can be cancelled at once, and a single compaction superseded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lsmkv.compaction.picker import CompactionPlan
from lsmkv.errors import Error
from lsmkv_ext.port.finalization import RLock


class Superseded(Error):
    """A compaction that was cancelled because a manual one does its work."""


class RunningJobs:
    """Any thread may call it. `_lock` guards the fields; no other lock is taken while it is held."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._jobs: list[Any] = []
        self._plans: dict[int, Any] = {}  # the job of each running compaction, by the id of its plan
        self._superseded: dict[int, CompactionPlan] = {}  # by id; some may not have started yet
        self.cancelled = False

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            for job in self._jobs:
                job.cancel()

    def supersede(self, plan: CompactionPlan) -> None:
        """Cancels a compaction: running it raises `Superseded`, unless its job has just ended."""
        with self._lock:
            self._superseded[id(plan)] = plan
            job = self._plans.get(id(plan))
            if job is not None:
                job.cancel()

    def forget(self, plan: CompactionPlan) -> None:
        """Called when `plan` has ended."""
        with self._lock:
            self._superseded.pop(id(plan), None)

    def share_done(self, plan: CompactionPlan) -> float:
        """How much of a plan its job has read, from 0 to 1; 0 if no job runs for it."""
        with self._lock:
            job = self._plans.get(id(plan))
            found = None if job is None else job.progress
        return 0.0 if found is None or not found["entries_total"] else found["entries_done"] / found["entries_total"]

    def progress(self) -> list[dict[str, int]]:
        with self._lock:
            return [job.progress for job in self._jobs]

    @contextmanager
    def _registered(self, job: Any) -> Iterator[None]:
        with self._lock:
            self._jobs.append(job)
            if self.cancelled:
                job.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._jobs.remove(job)

    def run(self, job: Any) -> dict[str, Any]:
        with self._registered(job):
            result: dict[str, Any] = job.run()
            return result

    def run_plan(self, plan: CompactionPlan, job: Any) -> dict[str, Any]:
        with self._lock:
            self._plans[id(plan)] = job
            if id(plan) in self._superseded:
                job.cancel()
        try:
            return self.run(job)
        except Error as error:
            # `Error` itself means cancelled. Corruption or a failed sync is a subclass and is raised as it is.
            if type(error) is Error and id(plan) in self._superseded and not self.cancelled:
                raise Superseded(f"{plan} was superseded") from error
            raise
        finally:
            with self._lock:
                del self._plans[id(plan)]

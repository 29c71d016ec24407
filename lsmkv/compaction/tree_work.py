"""The background work of one keyspace: what runs, what comes next, and why."""

from __future__ import annotations

from lsmkv.compaction.automatic import AutomaticCompaction
from lsmkv.compaction.claims import Claims
from lsmkv.compaction.filter_debt import FilterDebt
from lsmkv.compaction.hints import ReadHints
from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.running import RunningJobs
from lsmkv.compaction.status import Status
from lsmkv.version.stored_tree import StoredTree


class TreeWork:
    """The work of one keyspace."""

    def __init__(self, tree: StoredTree, status: Status, running: RunningJobs) -> None:
        self.tree = tree
        self.jobs = Jobs(tree, running)
        self.claims = Claims(tree, status.changed)
        self.filters = FilterDebt(tree, self.jobs)
        self.hints = ReadHints(tree, self.filters)
        self.compactions = AutomaticCompaction(status, self.jobs, self.claims, self.hints.read)


class TreeWorks:
    """The work of all keyspaces of one database. It does not hold the scheduler, which holds it."""

    def __init__(self, status: Status, running: RunningJobs) -> None:
        self._status = status
        self._running = running
        self._known: dict[StoredTree, TreeWork] = {}  # of the trees that had work so far

    def of(self, tree: StoredTree) -> TreeWork:
        versions = self._status.versions
        with versions.lock:
            if tree not in self._known:
                # Without those of dropped keyspaces.
                self._known = {t: work for t, work in self._known.items() if versions.trees.get(t.keyspace) is t}
                self._known[tree] = TreeWork(tree, self._status, self._running)
            return self._known[tree]

    def jobs_of(self, tree: StoredTree) -> Jobs:
        return self.of(tree).jobs

"""Filter debt: which tables have a filter that no longer suits them. `filters.policy` decides what suits a table."""

from __future__ import annotations

from lsmkv.compaction.jobs import Jobs
from lsmkv.filters import policy
from lsmkv.options import Options
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import Version


class FilterDebt:
    """The filter debt of one keyspace, by file number."""

    def __init__(self, tree: StoredTree, jobs: Jobs) -> None:
        self._tree = tree
        self._jobs = jobs
        # The last answer of `due`, which is asked for at every pick. Guarded by the version set's lock.
        self._due: tuple[Version, Options, frozenset[int]] | None = None

    def all(self) -> dict[int, str]:
        """File number -> why its filter should be rebuilt."""
        tree = self._tree
        with tree.versions.lock:
            version = tree.current
            infos = tree.filter_infos()
        return policy.debts(version, self._jobs.policy(version), infos, tree.versions.state.seed)

    def payable(self) -> dict[int, str]:
        """The debt that a rebuild can pay: not of empty tables, nor of another seed, which is in the blocks too. A fuse
        filter that could not be built is not tried again until the next open.
        """
        unpayable = {f.number for f in self._tree.current.files() if not f.entries} | self._jobs.unfusable
        return {n: why for n, why in self.all().items() if why != "seed" and n not in unpayable}

    def due(self, version: Version, options: Options) -> frozenset[int]:
        """The tables to rebuild in the background: none until the debt passes `filter_debt_ratio`."""
        if options.filter_debt_ratio is None:
            return frozenset()
        if self._due is None or self._due[0] is not version or self._due[1] is not options:
            owed = self.payable()
            over = policy.debt_ratio(version, owed) > options.filter_debt_ratio
            self._due = (version, options, frozenset(owed) if over else frozenset())
        return self._due[2]

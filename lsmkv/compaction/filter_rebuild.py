"""Filter debt: which tables have a filter that no longer suits them, and the driver of `rebuild_filters`.

`filters.policy` decides what suits a table, `jobs` writes the new filter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from lsmkv.compaction.jobs import Jobs
from lsmkv.compaction.manual import ManualWork
from lsmkv.compaction.picker import MANUAL, CompactionPlan, PlanKind, conflict
from lsmkv.filters import policy
from lsmkv.options import Options
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.port.finalization import start_thread
from lsmkv_ext.port.section import section


class FilterDebt:
    """The filter debt of one database, by file number."""

    def __init__(self, versions: VersionSet, jobs: Jobs) -> None:
        self._versions = versions
        self._jobs = jobs
        # The last answer of `due`, which is asked for at every pick. Guarded by the version set's lock.
        self._due: tuple[Version, Options, frozenset[int]] | None = None

    def all(self) -> dict[int, str]:
        """File number -> why its filter should be rebuilt."""
        versions = self._versions
        with versions.lock:
            version = versions.current
            infos = versions.filter_infos()
        return policy.debts(version, self._jobs.policy(version), infos, versions.state.seed)

    def payable(self) -> dict[int, str]:
        """The debt that a rebuild can pay: not of empty tables, nor of another seed, which is in the blocks too."""
        empty = {f.number for f in self._versions.current.files() if not f.entries}
        return {n: why for n, why in self.all().items() if why != "seed" and n not in empty}

    def due(self, version: Version, options: Options) -> frozenset[int]:
        """The tables to rebuild in the background: none until the debt passes `filter_debt_ratio`."""
        if options.filter_debt_ratio is None:
            return frozenset()
        if self._due is None or self._due[0] is not version or self._due[1] is not options:
            owed = self.payable()
            over = policy.debt_ratio(version, owed) > options.filter_debt_ratio
            self._due = (version, options, frozenset(owed) if over else frozenset())
        return self._due[2]


class FilterRebuild:
    """One `rebuild_filters`: the tables that owe at its start, shared among several threads. A table that owes again
    afterwards is left alone, or the call might never end.
    """

    def __init__(self, manual: ManualWork, waiting: set[int], level: int | None) -> None:
        self._manual = manual
        self._versions = manual.versions
        self._waiting = waiting  # not yet picked; guarded by the version set's lock
        self._level = level
        self._errors: list[BaseException] = []
        self._rebuilt: list[int] = []  # one count per thread

    def run(self) -> int:
        helpers: list[threading.Thread] = []
        # As many as can be started: none while the interpreter finalizes.
        with suppress(RuntimeError):
            for i in range(1, self._versions.options.max_background_jobs):
                helper = threading.Thread(target=section, args=(self._share,), name=f"lsmkv-filters-{i}", daemon=True)
                start_thread(helper)
                helpers.append(helper)
        self._share()
        for helper in helpers:
            helper.join()
        if self._errors:
            raise self._errors[0]
        return sum(self._rebuilt)

    def _share(self) -> None:
        try:
            self._rebuilt.append(self._rebuild())
        except BaseException as error:
            self._errors.append(error)

    def _rebuild(self) -> int:
        rebuilt = 0
        while next(self._left(self._versions.current), None) is not None:
            if self._manual.run(self._pick) is None:
                self._manual.wait_change()
            else:
                rebuilt += 1
        return rebuilt

    def _pick(self, version: Version, running: Sequence[CompactionPlan]) -> CompactionPlan | None:
        """Called with the version set's lock held: no table is picked twice."""
        for level, f in self._left(version):
            plan = CompactionPlan(PlanKind.FILTERS, level, level, upper=(f,), reason=MANUAL)
            if not any(conflict(plan, other) for other in running):
                self._waiting.discard(f.number)
                return plan
        return None

    def _left(self, version: Version) -> Iterator[tuple[int, TableMeta]]:
        """Level and file of the tables that wait and are still in the tree."""
        for level, files in enumerate(version.levels):
            if self._level in (None, level):
                yield from ((level, f) for f in files if f.number in self._waiting)

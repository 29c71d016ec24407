"""The driver of `rebuild_filters`. `filter_debt` says which tables need a new filter, `jobs` writes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from lsmkv.compaction.manual import ManualWork
from lsmkv.compaction.picker import MANUAL, CompactionPlan, PlanKind, conflict
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.port.finalization import start_thread
from lsmkv_ext.port.section import section


class FilterRebuild:
    """One `rebuild_filters`: the tables that owe at its start, shared among several threads. A table that owes again
    afterwards is left alone, or the call might never end.
    """

    def __init__(self, manual: ManualWork, waiting: set[int], level: int | None) -> None:
        self._manual = manual
        self._tree = manual.tree
        self._waiting = waiting  # not yet picked; guarded by the version set's lock
        self._level = level
        self._errors: list[BaseException] = []
        self._rebuilt: list[int] = []  # one count per thread

    def run(self) -> int:
        helpers: list[threading.Thread] = []
        # As many as can be started: none while the interpreter finalizes.
        with suppress(RuntimeError):
            for i in range(1, self._tree.options.max_background_jobs):
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
        while next(self._left(self._tree.current), None) is not None:
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

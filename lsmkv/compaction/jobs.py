"""Carries out a CompactionPlan: builds the data plane's Job, runs it, and turns the result into a VersionEdit."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from lsmkv import filenames
from lsmkv.compaction import subcompaction
from lsmkv.compaction.picker import GRANDPARENT_FILES, CompactionPlan, PlanKind
from lsmkv.errors import Error
from lsmkv.filters import policy
from lsmkv.options import Options
from lsmkv.version.edit import VersionEdit
from lsmkv.version.version import KeyRange, TableMeta, Version
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.compaction.job import Job
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import RLock
from lsmkv_ext.table.rebuild import rebuild_table_filter


@dataclass(frozen=True)
class Result:
    """What one job did, for the counters."""

    reason: str
    level: int
    output_level: int
    bytes_read: int = 0
    bytes_written: int = 0
    entries_in: int = 0
    entries_out: int = 0
    ns: int = 0
    filter_build_ns: int = 0
    filter_verify_ns: int = 0
    outputs: int = 0


class Superseded(Error):
    """A compaction that was cancelled because a manual one does its work."""


class Jobs:
    """Runs the flushes and plans of one VersionSet, in any thread. All running jobs can be cancelled at once, and a
    single compaction superseded. `_lock` guards the fields; no other lock is taken while it is held.
    """

    def __init__(self, versions: VersionSet, read_counters: Callable[[], Mapping[str, Any]] = dict) -> None:
        """`read_counters` returns the engine's counters, for filters that follow the reads."""
        self.versions = versions
        self._read_counters = read_counters
        self._lock = RLock()
        self._running: list[Any] = []
        self._plans: dict[int, Any] = {}  # the job of each running compaction, by the id of its plan
        self._superseded: dict[int, CompactionPlan] = {}  # by id; some may not have started yet
        self._cancelled = False

    # Cancelling ---------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            for job in self._running:
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
        self._superseded.pop(id(plan), None)

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def running(self) -> bool:
        return bool(self._running)

    def progress(self) -> list[dict[str, int]]:
        with self._lock:
            return [job.progress for job in self._running]

    @contextmanager
    def _registered(self, job: Any) -> Any:
        with self._lock:
            self._running.append(job)
            if self._cancelled:
                job.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(job)

    def _run(self, job: Any) -> dict[str, Any]:
        with self._registered(job):
            result: dict[str, Any] = job.run()
            return result

    def _run_plan(self, plan: CompactionPlan, job: Any) -> dict[str, Any]:
        with self._lock:
            self._plans[id(plan)] = job
            if id(plan) in self._superseded:
                job.cancel()
        try:
            return self._run(job)
        except Error as error:
            # `Error` itself means cancelled. Corruption or a failed sync is a subclass and is raised as it is.
            if type(error) is Error and id(plan) in self._superseded and not self._cancelled:
                raise Superseded(f"{plan} was superseded") from error
            raise
        finally:
            with self._lock:
                del self._plans[id(plan)]

    # Flush -------------------------------------------------------------------------------------------------

    def flush(self, memtables: Sequence[Memtable], reason: str = "flush") -> Result:
        """Writes `memtables`, newest first and older than all others, into one table of L0. If the disk is full, it
        uses up the reserve.
        """
        # Without older tables the tombstones hide nothing: on a full disk they are dropped.
        bare = None if self.versions.tables else partial(self._flush, memtables, reason, keep_deletes=False)
        return self.versions.reserve.spend(partial(self._flush, memtables, reason), bare)

    def _flush(self, memtables: Sequence[Memtable], reason: str, keep_deletes: bool = True) -> Result:
        versions = self.versions
        if all(m.empty for m in memtables):
            versions.apply(VersionEdit(reason=reason), flushed=memtables)
            return Result(reason, 0, 0)
        outcome = self.write_memtables(memtables, keep_deletes=keep_deletes)
        added = self._commit(outcome, 0, lambda files: VersionEdit(added=files, reason=reason), flushed=memtables)
        return _result(outcome, reason, 0, 0, len(added))

    def write_memtables(
        self, memtables: Sequence[Memtable], directory: str | None = None, keep_deletes: bool = True
    ) -> dict[str, Any]:
        """Runs the job of a flush without committing its table, which goes to `directory` if given."""
        return self._write_l0(list(memtables), directory or self.versions.directory, keep_deletes)

    def merge_l0(self, files: Sequence[TableMeta]) -> dict[str, Any]:
        """Merges `files`, adjacent in L0 and newest first, into one table of L0, without committing it."""
        return self._write_l0(self.versions.tables_of(files), self.versions.directory)

    def _write_l0(self, inputs: list[Any], directory: str, keep_deletes: bool = True) -> dict[str, Any]:
        options = self._table_options(self.versions.options, self.versions.current, 0, None)
        options["directory"] = directory
        return self._run(Job(inputs, single_output=True, below=None if keep_deletes else [], **options))

    def policy(self, version: Version) -> policy.FilterPolicy:
        options = self.versions.options
        return policy.FilterPolicy.of(options, policy.observe(version, options, self._read_counters()))

    def millibits(self, version: Version, level: int, span: KeyRange | None) -> int:
        """Bits per key x 1000 of the outputs in `level` that cover `span`, which is None for a flush."""
        bottommost = span is not None and level > 0 and not version.below(level, span)
        # With True the job decides for each output: it drops the filter if no older table overlaps its keys.
        by_output = self.versions.options.optimize_filters_for_hits is True
        return self.policy(version).millibits_for(level, bottommost=bottommost and not by_output)

    def _table_options(self, options: Options, version: Version, level: int, span: KeyRange | None) -> dict[str, Any]:
        return {
            "directory": self.versions.directory,
            "numbers": self.versions.numbers,
            "output_level": level,
            "target_file_size": options.target_file_size,
            "compression": options.compression_at(level),
            "block_size": options.block_size,
            "millibits": self.millibits(version, level, span),
            "seed": self.versions.state.seed,
            "verify_filters": options.verify_filters,
            "prefix": options.prefix,
        }

    # Plans -------------------------------------------------------------------------------------------------

    def run(self, plan: CompactionPlan, shifts: int, max_subcompactions: int = 1) -> Result:
        """Runs `plan`. `shifts` is the version set's counter when the plan was made: the output level moves with later
        shifts. If the disk is full, it uses up the reserve.
        """
        try:
            return self._run_kind(plan, shifts, max_subcompactions)
        except BaseException as error:
            # The frames of the traceback would keep the tables, and so their files, as long as the error lives.
            traceback.clear_frames(error.__traceback__)
            raise

    def _run_kind(self, plan: CompactionPlan, shifts: int, max_subcompactions: int) -> Result:
        if plan.kind is PlanKind.MOVE:
            return self._move(plan, shifts)
        if plan.kind is PlanKind.SHIFT:
            return self._shift(plan)
        if plan.kind is PlanKind.DROP:
            return self._drop(plan)
        if plan.kind is PlanKind.FILTERS:
            return self._rebuild_filter(plan, shifts)
        whole = partial(self._compact, plan, shifts, max_subcompactions)
        pieces = partial(self._compact_in_pieces, plan, shifts)
        return self.versions.reserve.spend(whole, pieces if len(plan.lower) > 1 else None)

    def _shift(self, plan: CompactionPlan) -> Result:
        with self.versions.commit:
            # An ingest may have added a file to the level that would vanish.
            vanishing = self.versions.current.levels[1 if plan.shift < 0 else -1]
            if not vanishing:
                self.versions.apply(VersionEdit(shift=plan.shift, reason=plan.reason))
        return Result(plan.reason, 0, 0)

    def _output_level(self, plan: CompactionPlan, shifts: int) -> int:
        return plan.shifted(self.versions.shifts - shifts).output_level

    def _move(self, plan: CompactionPlan, shifts: int) -> Result:
        with self.versions.commit:
            level = self._output_level(plan, shifts)
            moved = tuple((f.number, level) for f in plan.upper)
            self.versions.apply(VersionEdit(moved=moved, reason=f"move: {plan.reason}"))
        return Result(plan.reason, plan.level, plan.output_level)

    def _drop(self, plan: CompactionPlan) -> Result:
        removed = tuple(f.number for f in plan.upper)
        self.versions.apply(VersionEdit(removed=removed, reason=f"drop: {plan.reason}"))
        return Result(plan.reason, plan.level, plan.output_level)

    def _compact(self, plan: CompactionPlan, shifts: int, max_subcompactions: int) -> Result:
        keys = subcompaction.cuts(self.versions.tables_of(plan.inputs), max_subcompactions)
        make = self._job_maker(plan, plan.lower, shifts)
        job = subcompaction.SubcompactionJob(make, keys, self.versions.discard_outputs) if keys else make(None, None)
        outcome = self._run_plan(plan, job)
        self._replace(plan.inputs, outcome, plan, shifts)
        return _result(outcome, plan.reason, plan.level, plan.output_level, len(outcome["outputs"]))

    def _compact_in_pieces(self, plan: CompactionPlan, shifts: int) -> Result:
        """Replaces the lower tables a few at a time, which takes little space. The upper tables stay until the last
        piece. Until then their entries are in both levels.
        """
        outcomes = []
        pieces = subcompaction.pieces(plan.lower, self.versions.options.target_file_size)
        cuts = [None, *(lower[0].smallest for lower in pieces[1:]), None]
        for lower, (start, stop) in zip(pieces, pairwise(cuts), strict=True):
            make = self._job_maker(plan, lower, shifts)
            outcomes.append(self._run_plan(plan, make(start, stop)))
            replaced = lower if stop is not None else (*plan.upper, *lower)
            self._replace(replaced, outcomes[-1], plan, shifts)
        outcome = subcompaction.together(outcomes, sum(each["ns"] for each in outcomes))
        return _result(outcome, plan.reason, plan.level, plan.output_level, len(outcome["outputs"]))

    def _job_maker(
        self, plan: CompactionPlan, lower: Sequence[TableMeta], shifts: int
    ) -> Callable[[bytes | None, bytes | None], Job]:
        """Returns a function of `start` and `stop` that makes the job of these keys: a merge of the upper tables and
        `lower`.
        """
        versions = self.versions
        options = versions.options
        with versions.lock:  # both at once: after a shift in between, `level` would not fit `version`
            version, level = versions.current, self._output_level(plan, shifts)
        inputs: list[Any] = []
        if plan.level == 0:
            inputs += versions.tables_of(plan.upper)
        else:
            inputs.append(versions.tables_of(plan.upper))
        if lower:
            inputs.append(versions.tables_of(lower))
        make = partial(
            Job,
            inputs,
            below=[(f.smallest, f.largest) for f in version.below(level, plan.span)],
            grandparents=[(f.smallest, f.largest, f.size) for f in plan.grandparents],
            max_grandparent_overlap=GRANDPARENT_FILES * options.target_file_size,
            drop_filter_if_bottom=options.optimize_filters_for_hits is True,
            **self._table_options(options, version, level, plan.span),
        )
        return lambda start, stop: make(start=start, stop=stop)

    def _replace(self, inputs: Sequence[TableMeta], outcome: dict[str, Any], plan: CompactionPlan, shifts: int) -> None:
        removed = tuple(f.number for f in inputs)
        with self.versions.commit:
            level = self._output_level(plan, shifts)
            self._commit(outcome, level, lambda files: VersionEdit(removed=removed, added=files, reason=plan.reason))

    def _rebuild_filter(self, plan: CompactionPlan, shifts: int) -> Result:
        versions = self.versions
        options = versions.options
        (old,) = plan.upper
        (table,) = versions.tables_of(plan.upper)
        with versions.lock:
            version, level = versions.current, self._output_level(plan, shifts)
        number = versions.numbers.next()
        kind, argument = options.prefix
        outcome = rebuild_table_filter(
            table,
            filenames.table_path(versions.directory, number),
            millibits=self._wanted_millibits(version, level, old),
            level=level,
            number=number,
            verify=options.verify_filters,
            prefix_kind=kind,
            prefix_arg=argument,
        )
        versions.sync_directory()
        with versions.commit:
            level = self._output_level(plan, shifts)
            edit = lambda files: VersionEdit(removed=(old.number,), added=files, reason=plan.reason)  # noqa: E731
            added = self._commit(outcome, level, edit)
        return _result(outcome, plan.reason, level, level, len(added))

    def _wanted_millibits(self, version: Version, level: int, f: TableMeta) -> int:
        bottommost = policy.is_bottommost(version, level, f)
        return self.policy(version).millibits_for(level, bottommost=bottommost)

    # Results -----------------------------------------------------------------------------------------------

    def _commit(
        self,
        outcome: dict[str, Any],
        level: int,
        make_edit: Callable[[tuple[tuple[int, TableMeta], ...]], VersionEdit],
        *,
        flushed: Sequence[Memtable] = (),
    ) -> list[TableMeta]:
        """Opens the outputs, which checks them, and applies the edit."""
        versions = self.versions
        files: list[TableMeta] = outcome["outputs"]
        with Outputs(filenames.table_path(versions.directory, f.number) for f in files) as outputs:
            tables = [versions.open_table(f.number, f.global_seq) for f in files]
            versions.apply(make_edit(tuple((level, f) for f in files)), tables, flushed, outputs)
        return files


def _result(outcome: dict[str, Any], reason: str, level: int, output_level: int, outputs: int) -> Result:
    return Result(
        reason,
        level,
        output_level,
        bytes_read=outcome["bytes_read"],
        bytes_written=outcome["bytes_written"],
        entries_in=outcome["entries_in"],
        entries_out=outcome["entries_out"],
        ns=outcome["ns"],
        filter_build_ns=outcome["filter_build_ns"],
        filter_verify_ns=outcome["filter_verify_ns"],
        outputs=outputs,
    )

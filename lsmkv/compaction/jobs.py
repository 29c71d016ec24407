"""Carries out a CompactionPlan: builds the data plane's Job, runs it, and turns the result into a VersionEdit."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from lsmkv import filenames
from lsmkv.compaction import subcompaction
from lsmkv.compaction.picker import EXPIRED, GRANDPARENT_FILES, MANUAL, CompactionPlan, PlanKind
from lsmkv.compaction.running import RunningJobs
from lsmkv.files import free_space
from lsmkv.filters import policy
from lsmkv.options import Options
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import KeyRange, TableMeta, Version
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.compaction.job import Job
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table


def _takes_oldest_first(plan: CompactionPlan) -> bool:
    """Whether a part of the upper tables may be merged down, and the next plan has the rest."""
    return plan.level == 0 and plan.reason != MANUAL


def _oldest(files: Sequence[TableMeta], room: int) -> tuple[TableMeta, ...]:
    """The oldest of some tables of L0 that take at most `room` bytes, and at least one."""
    sizes = accumulate(f.size for f in reversed(files))
    return tuple(files[-max(1, sum(size <= room for size in sizes)) :])


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
    expired_bytes: int = 0  # of the expired entries that it dropped
    values_copied: int = 0  # out of value logs that are collected


class Jobs:
    """Runs the plans of one keyspace, and the jobs of its flushes, in any thread."""

    def __init__(self, tree: StoredTree, running: RunningJobs | None = None) -> None:
        self.tree = tree
        self.versions = tree.versions
        self.running = RunningJobs() if running is None else running
        # Tables that a rebuild gave a Bloom filter because no fuse filter could be built. Numbers are never used again.
        self.unfusable: set[int] = set()

    # Flush -------------------------------------------------------------------------------------------------

    def write_memtables(
        self, memtables: Sequence[Memtable], directory: str | None = None, keep_deletes: bool = True
    ) -> dict[str, Any]:
        """Runs the job of a flush without committing its table, which goes to `directory` if given."""
        return self._write_l0(list(memtables), directory or self.versions.directory, keep_deletes)

    def flush(self, memtables: Sequence[Memtable], keep_deletes: bool) -> dict[str, Any]:
        """The same with large values in a value log. A synced put has left them in the log and the memtable."""
        return self._write_l0(list(memtables), self.versions.directory, keep_deletes, self._large_values())

    def _large_values(self) -> tuple[int, int] | None:
        return self.tree.large_values if self.versions.state.format_version >= 2 else None

    def merge_l0(self, files: Sequence[TableMeta]) -> dict[str, Any]:
        """Merges `files`, adjacent in L0 and newest first, into one table of L0, without committing it."""
        return self._write_l0(self.tree.tables_of(files), self.versions.directory)

    def _write_l0(
        self,
        inputs: list[Any],
        directory: str,
        keep_deletes: bool = True,
        large_values: tuple[int, int] | None = None,
    ) -> dict[str, Any]:
        options = self._table_options(self.tree.options, self.tree.current, 0, None)
        options.update(directory=directory, large_values=large_values)
        options["now"] = self.versions.judge_time(any(each.expiring for each in inputs))
        return self.running.run(Job(inputs, single_output=True, below=None if keep_deletes else [], **options))

    def policy(self, version: Version) -> policy.FilterPolicy:
        options = self.tree.options
        if self.versions.state.format_version < 2 and options.needs_fuse:
            options = options.replace(filter="bloom")  # until the upgrade
        found = policy.FilterPolicy.of(options, policy.observe(version, options, self.tree.live.counters()))
        limit = options.filter_limit
        if limit is None:
            return found
        with self.versions.lock:
            entries = sum(f.entries for tree in self.versions.trees.values() for f in tree.current.files())
        return found.within(limit, entries)

    def filter_options(self, version: Version, level: int, span: KeyRange | None) -> dict[str, int]:
        """The filters of the outputs in `level` that cover `span`, which is None for a flush."""
        bottommost = span is not None and level > 0 and not version.below(level, span)
        # With True the job decides for each output: it drops the filter if no older table overlaps its keys.
        by_output = self.tree.options.optimize_filters_for_hits is True
        return _filter_options(self.policy(version), level, bottommost and not by_output)

    def _table_options(self, options: Options, version: Version, level: int, span: KeyRange | None) -> dict[str, Any]:
        return {
            "directory": self.versions.directory,
            "numbers": self.versions.numbers,
            "output_level": level,
            "target_file_size": options.target_file_size,
            "compression": self.tree.compression_at(level),
            "block_size": options.block_size,
            **self.filter_options(version, level, span),
            "seed": self.versions.state.seed,
            "verify_filters": options.verify_filters,
            "prefix": options.prefix,
            "keyspace": self.tree.label,
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
        cut = len(plan.lower) > 1 or (plan.lower and _takes_oldest_first(plan))
        return self.versions.reserve.spend(whole, pieces if cut else None)

    def _shift(self, plan: CompactionPlan) -> Result:
        with self.versions.commit:
            # An ingest may have added a file to the level that would vanish.
            vanishing = self.tree.current.levels[1 if plan.shift < 0 else -1]
            if not vanishing:
                self.tree.apply(shift=plan.shift, reason=plan.reason)
        return Result(plan.reason, 0, 0)

    def _output_level(self, plan: CompactionPlan, shifts: int) -> int:
        return plan.shifted(self.tree.shifts - shifts).output_level

    def _move(self, plan: CompactionPlan, shifts: int) -> Result:
        with self.versions.commit:
            level = self._output_level(plan, shifts)
            moved = tuple((f.number, level) for f in plan.upper)
            self.tree.apply(moved=moved, reason=f"move: {plan.reason}")
        return Result(plan.reason, plan.level, plan.output_level)

    def _drop(self, plan: CompactionPlan) -> Result:
        removed = tuple(f.number for f in plan.upper)
        now = self.versions.judge_time(plan.reason == EXPIRED)
        self.tree.apply(removed=removed, clock=now or None, reason=f"drop: {plan.reason}")
        reclaimed = sum(f.expired_bytes(now) for f in plan.upper)
        return Result(plan.reason, plan.level, plan.output_level, expired_bytes=reclaimed)

    def _compact(self, plan: CompactionPlan, shifts: int, max_subcompactions: int) -> Result:
        keys = subcompaction.cuts(self.tree.tables_of(plan.inputs), max_subcompactions)
        make = self._job_maker(plan, plan.lower, shifts)
        job = subcompaction.SubcompactionJob(make, keys, self.versions.discard_outputs) if keys else make(None, None)
        outcome = self.running.run_plan(plan, job)
        self._replace(plan.inputs, outcome, plan, shifts)
        return as_result(outcome, plan.reason, plan.level, plan.output_level, len(outcome["outputs"]))

    def _compact_in_pieces(self, plan: CompactionPlan, shifts: int) -> Result:
        """Replaces the lower tables a few at a time, which takes little space. The upper tables stay until the last
        piece. Until then their entries are in both levels, so of L0 only the oldest tables are merged that have room.
        """
        part = plan
        if _takes_oldest_first(plan):
            part = replace(plan, upper=_oldest(plan.upper, free_space(self.versions.directory) // 2))
        outcomes = []
        pieces = subcompaction.pieces(part.lower, self.tree.options.target_file_size)
        cuts = [None, *(lower[0].smallest for lower in pieces[1:]), None]
        for lower, (start, stop) in zip(pieces, pairwise(cuts), strict=True):
            make = self._job_maker(part, lower, shifts)
            outcomes.append(self.running.run_plan(plan, make(start, stop)))
            replaced = lower if stop is not None else (*part.upper, *lower)
            self._replace(replaced, outcomes[-1], part, shifts)
        outcome = subcompaction.together(outcomes, sum(each["ns"] for each in outcomes))
        return as_result(outcome, plan.reason, plan.level, plan.output_level, len(outcome["outputs"]))

    def _job_maker(
        self, plan: CompactionPlan, lower: Sequence[TableMeta], shifts: int
    ) -> Callable[[bytes | None, bytes | None], Job]:
        """Returns a function of `start` and `stop` that makes the job of these keys: a merge of the upper tables and
        `lower`.
        """
        versions, tree = self.versions, self.tree
        options = tree.options
        with versions.lock:  # both at once: after a shift in between, `level` would not fit `version`
            version, level = tree.current, self._output_level(plan, shifts)
            collect = versions.values_to_collect()
        inputs: list[Any] = []
        if plan.level == 0:
            inputs += tree.tables_of(plan.upper)
        else:
            inputs.append(tree.tables_of(plan.upper))
        if lower:
            inputs.append(tree.tables_of(lower))
        make = partial(
            Job,
            inputs,
            below=[(f.smallest, f.largest) for f in version.below(level, plan.span)],
            grandparents=[(f.smallest, f.largest, f.size) for f in plan.grandparents],
            max_grandparent_overlap=GRANDPARENT_FILES * options.target_file_size,
            drop_filter_if_bottom=options.optimize_filters_for_hits is True,
            now=versions.judge_time(any(f.expiring for f in (*plan.upper, *lower))),
            collect=collect,
            large_values=self._large_values(),
            **self._table_options(options, version, level, plan.span),
        )
        return lambda start, stop: make(start=start, stop=stop)

    def _replace(self, inputs: Sequence[TableMeta], outcome: dict[str, Any], plan: CompactionPlan, shifts: int) -> None:
        removed = tuple(f.number for f in inputs)
        with self.versions.commit:
            self.versions.values.damaged.update(outcome["damaged_values"])
            level = self._output_level(plan, shifts)
            self._commit(outcome, level, removed, plan.reason)

    def _rebuild_filter(self, plan: CompactionPlan, shifts: int) -> Result:
        versions, tree = self.versions, self.tree
        options = tree.options
        (old,) = plan.upper
        (table,) = tree.tables_of(plan.upper)
        with versions.lock:
            version, level = tree.current, self._output_level(plan, shifts)
        number = versions.numbers.next()
        kind, argument = options.prefix
        wanted = _filter_options(self.policy(version), level, policy.is_bottommost(version, level, old))
        outcome = rebuild_table_filter(
            table,
            filenames.table_path(versions.directory, number),
            **wanted,
            level=level,
            number=number,
            verify=options.verify_filters,
            prefix_kind=kind,
            prefix_arg=argument,
            keyspace=tree.label,
        )
        versions.sync_directory()
        with versions.commit:
            level = self._output_level(plan, shifts)
            added = self._commit(outcome, level, (old.number,), plan.reason)
        if wanted["milliwidth"] and added[0].filter_kind != policy.FUSE:
            self.unfusable.add(number)
        return as_result(outcome, plan.reason, level, level, len(added))

    # Results -----------------------------------------------------------------------------------------------

    def _commit(
        self, outcome: dict[str, Any], level: int, removed: tuple[int, ...], reason: str
    ) -> Sequence[TableMeta]:
        """Opens the outputs, which checks them, and replaces the tables in `removed` by them."""
        files: list[TableMeta] = outcome["outputs"]
        with Outputs() as outputs:
            tables = open_outputs(self.versions, files, outputs)
            added = tuple((level, f) for f in files)
            clock = judged(outcome)
            self.tree.apply(tables, outputs, removed=removed, added=added, clock=clock, reason=reason)
        return files


def _filter_options(wanted: policy.FilterPolicy, level: int, bottommost: bool) -> dict[str, int]:
    return {
        "millibits": wanted.millibits_for(level, bottommost=bottommost),
        "milliwidth": wanted.milliwidth_for(level, bottommost=bottommost),
    }


def judged(outcome: dict[str, Any]) -> int | None:
    """The time that the edit of a job has to store: entries that were expired then are gone."""
    return outcome["now"] if outcome.get("expired") else None


def open_outputs(versions: VersionSet, files: Sequence[TableMeta], outputs: Outputs) -> list[Table]:
    """Opens tables that a job wrote, which checks them. Syncs the value logs that they point into."""
    outputs.paths += versions.paths_of(files)
    versions.sync_values(files)
    return [versions.open_table(f.number, f.global_seq, f.own_log) for f in files]


def as_result(outcome: dict[str, Any], reason: str, level: int, output_level: int, outputs: int) -> Result:
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
        expired_bytes=outcome.get("expired_bytes", 0),
        values_copied=outcome.get("values_copied", 0),
    )

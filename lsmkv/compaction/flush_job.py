"""A flush: the memtables of one or more logs become tables of L0, with one edit for all keyspaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from lsmkv.compaction import subcompaction
from lsmkv.compaction.jobs import Jobs, Result, as_result, judged, open_outputs
from lsmkv.version.edit import TreeEdit, VersionEdit
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.memtable.memtable import Memtable

# The jobs of a keyspace.
JobsOf = Callable[[StoredTree], Jobs]


def flush(versions: VersionSet, jobs_of: JobsOf, logs: Collection[int], reason: str = "flush") -> Result:
    """Flushes the immutable memtables of `logs`, which are older than all other logs. A full disk may cost the
    reserve.
    """
    # Without older tables, a full disk need not take the tombstones.
    bare = None if versions.tables else partial(_flush, versions, jobs_of, logs, reason, keep_deletes=False)
    return versions.reserve.spend(partial(_flush, versions, jobs_of, logs, reason), bare)


def _flush(
    versions: VersionSet, jobs_of: JobsOf, logs: Collection[int], reason: str, keep_deletes: bool = True
) -> Result:
    began = time.monotonic_ns()
    with versions.lock:
        waiting = {tree: _memtables(tree, logs) for tree in versions.trees.values()}
    flushed = [memtable for memtables in waiting.values() for memtable in memtables]
    outcomes, edits, tables = [], [], []
    with Outputs() as outputs:
        for tree, memtables in waiting.items():
            if all(memtable.empty for memtable in memtables):
                continue
            outcome = jobs_of(tree).flush(memtables, keep_deletes)
            tables += open_outputs(versions, outcome["outputs"], outputs)
            outcomes.append(outcome)
            edits.append(TreeEdit(keyspace=tree.keyspace, added=tuple((0, f) for f in outcome["outputs"])))
        clock = max((judged(outcome) or 0 for outcome in outcomes), default=0) or None
        versions.apply(VersionEdit(trees=tuple(edits), clock=clock, reason=reason), tables, flushed, outputs)
    return _result(outcomes, reason, time.monotonic_ns() - began)


def _memtables(tree: StoredTree, logs: Collection[int]) -> list[Memtable]:
    state = tree.live.state
    assert state is not None
    return [memtable for memtable in state.memtables[1:] if memtable.number in logs]


def _result(outcomes: list[dict[str, Any]], reason: str, ns: int) -> Result:
    if not outcomes:
        return Result(reason, 0, 0)
    outcome = subcompaction.together(outcomes, ns)
    return as_result(outcome, reason, 0, 0, len(outcome["outputs"]))

"""Ingest: whole tables enter the tree, every entry with one new sequence number."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from lsmkv import filenames
from lsmkv.checkpoint import NO_LINKS, copy_file
from lsmkv.compaction.picker import CompactionPlan
from lsmkv.compaction.scheduler import Scheduler
from lsmkv.errors import CorruptionError, IOError, SyncError
from lsmkv.files import io_errors, open_regular, sync_directory, sync_file
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.version import TableMeta, Version
from lsmkv.version.version_set import Outputs, VersionSet
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table


def ingest(
    scheduler: Scheduler, tree: StoredTree, paths: Sequence[str], move: bool, upgrade: Callable[[], None]
) -> None:
    """Adds all tables or none. With `move` the given files are linked and removed, else they are copied. `upgrade`
    gives the database the latest format, for tables that need it.
    """
    if not paths:
        return
    versions = scheduler.versions
    if check_sources(paths) > versions.state.format_version:
        upgrade()
    # Older writes get tables with lower numbers: a repair without a manifest knows their age only by these.
    scheduler.flusher.flush()
    numbers = [versions.numbers.next() for _ in paths]
    try:
        with Outputs() as outputs:
            for path, number in zip(paths, numbers, strict=True):
                target = filenames.table_path(versions.directory, number)
                if os.path.lexists(target):
                    raise IOError(errno.EEXIST, "ingest: a file of another program has this name", target)
                outputs.paths.append(target)
                with io_errors("ingest", path):
                    place(path, target, move)
            sync_directory(versions.directory)
            _commit(scheduler, tree, numbers, outputs)
    except SyncError as error:
        versions.engine.refuse(error)
        raise
    if move:
        _remove_sources(paths)


def _remove_sources(paths: Sequence[str]) -> None:
    """Removes every file that can be removed; all of them are in the database."""
    failed: OSError | None = None
    for path in paths:
        try:
            os.unlink(path)
        except OSError as error:
            failed = failed or error
    if failed is not None:
        what = f"the tables were ingested, but not all files could be removed: {failed.strerror}"
        raise IOError(failed.errno, what, failed.filename) from failed


def check_sources(paths: Sequence[str]) -> int:
    """Returns the highest version of the tables. Raises unless all are sound and do not overlap each other."""
    tables = [Table(path) for path in paths]
    for table in tables:
        if table.smallest is None:
            raise ValueError(f"{table.path}: a table without entries cannot be ingested")
        if table.meta.value_logs:
            raise ValueError(f"{table.path}: a table that points into value logs cannot be ingested")
        findings = verify_table(table, deep=True)
        if findings:
            raise CorruptionError(findings[0]["what"], table.path, findings[0]["offset"])
    spans = sorted(((table.meta.range, table.path) for table in tables), key=lambda pair: pair[0].start or b"")
    for low, high in pairwise(spans):
        if not low[0].before(high[0]):
            raise ValueError(f"{low[1]} and {high[1]} overlap")
    return max(int(table.properties["version"]) for table in tables)


def place(source: str, target: str, move: bool) -> None:
    """Creates a durable `target`. Only a moved file is linked: the owner of a kept one may change it."""
    if move:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS and error.errno != errno.ELOOP:
                raise
        else:
            fd = open_regular(target, os.O_RDONLY)
            try:
                sync_file(fd, target)
            finally:
                os.close(fd)
            return
    copy_file(source, target)


def _commit(scheduler: Scheduler, tree: StoredTree, numbers: Sequence[int], outputs: Outputs) -> None:
    """Flushes older writes, so the tables are newer than all of them; then adds all tables with one edit."""
    versions, engine = scheduler.versions, scheduler.versions.engine
    with engine.exclusive():
        engine.require_writable()
        # The tables' sequence number must not be a gap inside a log; between two logs it is none.
        scheduler.flusher.flush_in_turn()
        seq = engine.last_seq + 1
        with versions.commit, versions.lock:
            tables, files = _open(versions, numbers, seq)
            level = _level_for(tree.current, scheduler.work_of(tree).claims.plans(), files)
            added = tuple((level, f) for f in files)
            tree.apply(tables, outputs, added=added, last_seq=seq, reason="ingest")
    scheduler.status.update_pressure()
    scheduler.wake()


def _open(versions: VersionSet, numbers: Sequence[int], seq: int) -> tuple[list[Table], list[TableMeta]]:
    tables, files = [], []
    for number in numbers:
        table = versions.open_table(number, seq)
        tables.append(table)
        files.append(table.meta)
    return tables, files


def _level_for(version: Version, busy: Sequence[CompactionPlan], files: Sequence[TableMeta]) -> int:
    """The deepest level with nothing that overlaps in it or above it; L0 while a running plan overlaps."""
    if any(plan.inputs and plan.span.overlaps(f.range) for plan in busy for f in files):
        return 0
    best = 0
    for level in range(version.last_level + 1):
        if any(version.overlapping(level, f.range) for f in files):
            break
        best = level
    return best

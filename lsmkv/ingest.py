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
from lsmkv_ext.table.verify import value_problems, verify_table


def ingest(
    scheduler: Scheduler, tree: StoredTree, paths: Sequence[str], move: bool, upgrade: Callable[[], None]
) -> None:
    """Adds all tables or none. With `move` the given files are linked and removed, else they are copied. `upgrade`
    gives the database the latest format, for tables that need it.
    """
    if not paths:
        return
    versions = scheduler.versions
    sources = [Source(path) for path in paths]
    if check_sources(sources) > versions.state.format_version:
        upgrade()
    # Older writes get tables with lower numbers: a repair without a manifest knows their age only by these.
    scheduler.flusher.flush()
    for source in sources:
        source.take_numbers(versions)
    try:
        with Outputs() as outputs:
            for path, target in (pair for source in sources for pair in source.files(versions.directory)):
                if os.path.lexists(target):
                    raise IOError(errno.EEXIST, "ingest: a file of another program has this name", target)
                outputs.paths.append(target)
                with io_errors("ingest", path):
                    place(path, target, move)
            sync_directory(versions.directory)
            _commit(scheduler, tree, sources, outputs)
    except SyncError as error:
        versions.engine.refuse(error)
        raise
    if move:
        _remove_sources([path for source in sources for path, _ in source.files(versions.directory)])


class Source:
    """A table to ingest, and the value log beside it if the table points into one. Both get numbers of the database."""

    def __init__(self, path: str) -> None:
        self.table = Table(path)
        self.path = path
        self.number = 0
        self.own_log = 0
        self.value_log: str | None = None

    def check(self) -> None:
        """Raises unless the table and the values that it points to are sound."""
        table = self.table
        if table.smallest is None:
            raise ValueError(f"{table.path}: a table without entries cannot be ingested")
        findings = verify_table(table, deep=True)
        if findings:
            raise CorruptionError(findings[0]["what"], table.path, findings[0]["offset"])
        if table.meta.value_logs:
            self._check_values()

    def _check_values(self) -> None:
        """The pointers of a table that was written for an ingest have the number 0."""
        if [use.number for use in self.table.meta.value_logs] != [0]:
            raise ValueError(f"{self.table.path}: a table that points into value logs of a database cannot be ingested")
        log = self.table.value_log(0)
        if log.stored_number != 0:
            raise ValueError(f"{log.path}: a value log of a database cannot be ingested")
        for file, what in value_problems(self.table):
            raise CorruptionError(what, file)
        self.value_log = log.path

    def take_numbers(self, versions: VersionSet) -> None:
        self.number = versions.numbers.next()
        if self.value_log is not None:
            self.own_log = versions.numbers.next()

    def files(self, directory: str) -> list[tuple[str, str]]:
        """Where the files are, and where they go."""
        found = [(self.path, filenames.table_path(directory, self.number))]
        if self.value_log is not None:
            found.append((self.value_log, filenames.value_log_path(directory, self.own_log)))
        return found


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


def check_sources(sources: Sequence[Source]) -> int:
    """Returns the format that the tables need. Raises unless all are sound and do not overlap each other."""
    tables = [source.table for source in sources]
    for source in sources:
        source.check()
    spans = sorted(((table.meta.range, table.path) for table in tables), key=lambda pair: pair[0].start or b"")
    for low, high in pairwise(spans):
        if not low[0].before(high[0]):
            raise ValueError(f"{low[1]} and {high[1]} overlap")
    return max(2 if table.meta.filter_kind != 1 else int(table.properties["version"]) for table in tables)


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


def _commit(scheduler: Scheduler, tree: StoredTree, sources: Sequence[Source], outputs: Outputs) -> None:
    """Flushes older writes, so the tables are newer than all of them; then adds all tables with one edit."""
    versions, engine = scheduler.versions, scheduler.versions.engine
    with engine.exclusive():
        engine.require_writable()
        # The tables' sequence number must not be a gap inside a log; between two logs it is none.
        scheduler.flusher.flush_in_turn()
        seq = engine.last_seq + 1
        with versions.commit, versions.lock:
            tables, files = _open(versions, sources, seq)
            level = _level_for(tree.current, scheduler.work_of(tree).claims.plans(), files)
            added = tuple((level, f) for f in files)
            tree.apply(tables, outputs, added=added, last_seq=seq, reason="ingest")
    scheduler.status.update_pressure()
    scheduler.wake()


def _open(versions: VersionSet, sources: Sequence[Source], seq: int) -> tuple[list[Table], list[TableMeta]]:
    tables, files = [], []
    for source in sources:
        table = versions.open_table(source.number, seq, source.own_log)
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

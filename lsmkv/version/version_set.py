"""The version set, the durable side of a database: the versions of its trees with their open tables, and the manifest.
It makes edits durable and publishes the new levels to the engine, which owns the live side.

Locks, outermost first: `commit` serializes edits and is held over the manifest's fsync; `lock` guards the fields, is
held briefly, and carries the scheduler's condition. Readers need neither: they use the last published ReadState.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any

from lsmkv import filenames
from lsmkv.errors import SyncError
from lsmkv.files import Replacement, sync_directory
from lsmkv.options import Options
from lsmkv.reserve import Reserve
from lsmkv.version.current import new_current
from lsmkv.version.edit import VersionEdit
from lsmkv.version.freshness import Seen
from lsmkv.version.manifest import AppendRefused, ManifestState, ManifestWriter, snapshot_edit
from lsmkv.version.stored_tree import StoredTree
from lsmkv.version.value_logs import ValueLogs
from lsmkv.version.version import TableMeta
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers
from lsmkv_ext.engine import Engine
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import CommitLock, RLock
from lsmkv_ext.table.table import Table
from lsmkv_ext.values.writer import ValueWriter

log = logging.getLogger("lsmkv")

# The manifest is rotated once it is this many times as large as its first record, but not below this many bytes. Every
# open reads all of it.
MANIFEST_GROWTH = 4
MANIFEST_LIMIT = 256 << 10
# Bytes that the first memtable of a new keyspace reserves: there may be hundreds of them, with few writes each.
SMALL_MEMTABLE = 64 << 10


class Outputs:
    """The files that an edit adds. If the `with` block raises, they are removed, unless the append was attempted: then
    the edit may be durable, and the next open decides.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.paths = list(paths)
        self.kept = False

    def __enter__(self) -> Outputs:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc_type is not None and not self.kept:
            for path in self.paths:
                remove_unused(path)


def remove_unused(path: str) -> None:
    """Removes a file that no edit names. If this fails, the next open removes it: the error before it matters more."""
    with suppress(OSError):
        os.unlink(path)


@dataclass
class PreparedFields:
    """The fields of a VersionSet and of its trees after an edit that is about to become durable."""

    state: ManifestState
    tables: dict[int, Table]
    trees: dict[int, StoredTree]
    shifts: list[tuple[StoredTree, int]]


class VersionSet:
    def __init__(
        self,
        directory: str,
        options: Options,
        state: ManifestState,
        tables: dict[int, Table],
        cache: BlockCache,
        fds: FdCache,
        numbers: FileNumbers,
    ) -> None:
        self.directory = directory
        self.options = options
        self.state = state
        self.tables = tables
        self.cache = cache
        self.fds = fds
        self.numbers = numbers
        self.engine = Engine(directory, state.seed)  # the live side: memtables, logs, whether writes are refused
        self.values = ValueLogs(directory, fds, self.engine)
        self.reserve = Reserve(directory, self.engine)
        self.trees = {0: StoredTree(self, self.engine.tree)}  # by keyspace id, ascending
        for keyspace in sorted(state.trees.keys() - {0}):
            self.trees[keyspace] = StoredTree(self, self.engine.new_tree(keyspace))
        self.seen: Seen | None = None  # of the files, by a read-only database
        self.commit = CommitLock()
        self.lock = RLock()
        self.manifest: ManifestWriter | None = None
        self._manifest_limit = 0  # of its size
        self._prepared: PreparedFields | None = None  # from `_prepare` to `_publish`
        self._obsolete_manifest: ManifestWriter | None = None  # removed after the edit that replaced it
        self._released: list[int] = []  # numbers of dropped tables that no reader holds any more
        self._collected: tuple[ManifestState, float, frozenset[int]] = (state, 0.0, frozenset())  # of one state
        self._dropped = 0  # tables dropped from the tree whose files are still there
        self._dead_files: list[str] = []  # names whose unlink failed, to be retried

    # State ------------------------------------------------------------------------------------------------

    @property
    def default(self) -> StoredTree:
        """The tree of the default keyspace."""
        return self.trees[0]

    def tree_named(self, name: str) -> StoredTree | None:
        for keyspace, state in self.state.trees.items():
            if keyspace and state.name == name:
                return self.trees[keyspace]
        return None

    def adopt(self, other: VersionSet) -> None:
        """Takes over the state of `other`, of a later moment or of another database at the same path. Read-only
        databases only.
        """
        with self.lock:
            self.engine.adopt(other.engine)
            self.state, self.tables, self.seen = other.state, other.tables, other.seen
            self.cache, self.fds, self.numbers, self.values = other.cache, other.fds, other.numbers, other.values
            known = {tree.live: tree for tree in self.trees.values()}
            self.trees = {live.keyspace: known.get(live) or StoredTree(self, live) for live in self.engine.forest.trees}
            for tree in self.trees.values():
                tree.forget_filters()
        other.release()

    def release(self) -> None:
        """Drops the trees and tables, for the last time. The trees hold this object, so otherwise only the garbage
        collector would free the block cache and close the files.
        """
        with self.lock:
            self.tables, self.trees = {}, {}

    def open_table(self, number: int, global_seq: int = 0, own_log: int = 0) -> Table:
        """Opens a table and the value logs that it points into."""
        table = Table(
            filenames.table_path(self.directory, number),
            number,
            self.cache,
            self.fds,
            global_seq=global_seq,
            own_log=own_log,
            charge=self.options.cache_index_and_filter_blocks,
        )
        table.hold(self.values.of(table.meta))
        return table

    def values_to_collect(self) -> frozenset[int]:
        """The value logs out of which compactions copy the values."""
        state, ratio = self.state, self.options.value_gc_ratio
        if self._collected[:2] != (state, ratio):
            self._collected = (state, ratio, self.values.to_collect(state.files(), ratio))
        return self._collected[2]

    def new_value_log(self) -> ValueWriter:
        """A value log for puts. Its name is durable before a log record or an edit depends on it."""
        with self.lock:  # `ValueLogs.unused` rebuilds the dict of writers
            writer = self.values.create(self.numbers.next())
        self.sync_directory()
        return writer

    def new_streamed_value_log(self) -> ValueWriter:
        """A value log for one value. Its name is durable."""
        writer = self.values.create_sealed(self.numbers.next())
        self.sync_directory()
        return writer

    def judge_time(self, expiring: bool) -> int:
        """The time by which a job or a plan judges expiries; 0 if its inputs have none."""
        return self.engine.now() if expiring else 0

    def add_table(self, table: Table) -> None:
        self.tables[table.number] = table

    def keep_reserve(self) -> None:
        """Sets disk space aside in proportion to what the tables and logs take."""
        with self.lock:
            stored = sum(f.size for f in self.state.files()) + sum(log.size for log in self.engine.logs)
        self.reserve.keep(stored)

    # Changes -----------------------------------------------------------------------------------------------

    def apply(
        self,
        edit: VersionEdit,
        opened: Sequence[Table] = (),
        flushed: Sequence[Memtable] = (),
        outputs: Outputs | None = None,
        *,
        format_version: int | None = None,
    ) -> None:
        """Makes `edit` durable, then visible. `opened` are the tables it adds, `outputs` their files, `flushed` the
        memtables they replace. With `format_version` the database has that format from then on.

        When this raises, the tree is as before. If the append was attempted, the edit may still be durable: the outputs
        stay, and the database is read-only until the next open.
        """
        outputs = outputs or Outputs()
        with self.commit:
            self.engine.require_writable()
            dropped = [self.tables[number] for number in self._leaving(edit) if number in self.tables]
            try:
                append = self._prepare(edit, opened, flushed, format_version or self.state.format_version)
                outputs.kept = True
                append()
                self._publish()
            except BaseException as error:
                if isinstance(error, AppendRefused):
                    outputs.kept = False
                if outputs.kept or isinstance(error, SyncError):
                    self.engine.refuse(error)
                self._abandon()
                raise
        self._retire(dropped)

    def _prepare(
        self, edit: VersionEdit, opened: Sequence[Table], flushed: Sequence[Memtable], format_version: int
    ) -> Callable[[], None]:
        """Does everything that can fail and be undone. The returned call makes the edit durable, `_publish` makes it
        visible.
        """
        ingested_seq = edit.last_seq or 0
        edit = self._complete(edit, flushed)
        state = self._state_after(edit, format_version)
        tables = {**self.tables, **{table.number: table for table in opened}}
        for number in self._leaving(edit):
            del tables[number]
        trees = {k: self.trees.get(k) or self._new_tree(k, tree.options) for k, tree in state.trees.items()}
        changed = {tree.keyspace: state.trees[tree.keyspace] for tree in edit.trees if not tree.dropped}
        levels = {k: [[tables[f.number] for f in files] for files in t.version.levels] for k, t in changed.items()}
        shifts = [(trees[t.keyspace], trees[t.keyspace].shifts + t.shift) for t in edit.trees if t.shift]
        with self.lock:
            self.engine.prepare([tree.live for tree in trees.values()], levels, flushed, ingested_seq)
            self._prepared = PreparedFields(state, tables, trees, shifts)
        return self._stage(edit, state)

    def _new_tree(self, keyspace: int, options: Mapping[str, Any]) -> StoredTree:
        """With its options: once it is published, another thread may write to it."""
        memtable = Memtable(self.state.seed, SMALL_MEMTABLE, small=True)
        memtable.number = self.engine.log_number
        tree = StoredTree(self, self.engine.new_tree(keyspace, memtable))
        tree.tune(self.options.for_keyspace(options))
        return tree

    def _leaving(self, edit: VersionEdit) -> list[int]:
        """The numbers of the tables that leave the trees, with those of dropped keyspaces."""
        dropped = [self.trees[tree.keyspace] for tree in edit.trees if tree.dropped and tree.keyspace in self.trees]
        return [*edit.removed, *(f.number for tree in dropped for f in tree.current.files())]

    def _publish(self) -> None:
        """The edit is durable, so nothing may fail: assignments only, no allocation."""
        with self.lock:
            prepared = self._prepared
            assert prepared is not None
            self.engine.publish()
            self.state = prepared.state
            self.tables = prepared.tables
            self.trees = prepared.trees
            for tree, shifts in prepared.shifts:
                tree.shifts = shifts
            self._prepared = None

    def _abandon(self) -> None:
        with self.lock:
            self.engine.discard()
            self._prepared = None

    def _state_after(self, edit: VersionEdit, format_version: int) -> ManifestState:
        state = replace(self.state, format_version=format_version)
        state.apply(edit)
        return state

    def _complete(self, edit: VersionEdit, flushed: Sequence[Memtable]) -> VersionEdit:
        """Fills in the numbers that every edit has."""
        last_seq = max([self.state.last_seq, edit.last_seq or 0, *(m.max_seq for m in flushed)])
        kept = [m.number for m in self.engine.memtables if m not in flushed]
        return replace(
            edit,
            last_seq=last_seq,
            log_number=min(kept, default=self.state.log_number),
            next_file=self.numbers.peek,
            clock=None if edit.clock is None else max(edit.clock, self.state.clock),
            time_us=time.time_ns() // 1000,
        )

    # The manifest ------------------------------------------------------------------------------------------

    def _stage(self, edit: VersionEdit, after: ManifestState) -> Callable[[], None]:
        manifest = self.manifest
        if manifest is None or manifest.failed or manifest.size > self._manifest_limit:
            return self._stage_manifest(edit, after)
        if after.format_version != self.state.format_version:
            return self._stage_manifest(edit, after)
        return manifest.stage(edit)

    def _stage_manifest(self, edit: VersionEdit, after: ManifestState) -> Callable[[], None]:
        """Writes a manifest that begins with the state after `edit`. The returned call makes CURRENT name it."""
        number = self.numbers.next()
        writer = None
        try:
            first = snapshot_edit(replace(after, next_file=self.numbers.peek), edit.reason, edit.time_us)
            writer = ManifestWriter.create(self.directory, number, first, after.format_version)
            limit = _manifest_limit(writer.size)
            return partial(self._switch_manifest, writer, limit, new_current(self.directory, number))
        except BaseException:
            if writer is not None:
                writer.close()
            remove_unused(filenames.manifest_path(self.directory, number))
            raise

    def _switch_manifest(self, writer: ManifestWriter, limit: int, current: Replacement) -> None:
        try:
            current.commit()
        except BaseException:
            # CURRENT may name either manifest: both stay.
            writer.close()
            raise
        self._obsolete_manifest = self.manifest
        self.manifest = writer
        self._manifest_limit = limit

    def start(self, edit: VersionEdit, outputs: Outputs | None = None) -> None:
        """Applies the first edit after opening, unless it changes nothing. If this raises, the edit may be durable, and
        the next open decides, as after `apply`.
        """
        outputs = outputs or Outputs()
        with self.commit:
            edit = replace(edit, next_file=self.numbers.peek, time_us=time.time_ns() // 1000)
            state = self._state_after(edit, self.state.format_version)
            if self.manifest is not None and outputs.paths:
                # Before the edit or a synced record depends on a name; a new manifest syncs the folder itself.
                self.sync_directory()
            if self.manifest is not None and state.same_trees(self.state):
                return
            append = self._stage(edit, state)
            outputs.kept = True
            try:
                append()
            except AppendRefused:
                outputs.kept = False
                raise
            self.state = state
        self._retire([])

    def resume_manifest(self) -> None:
        """Appends to the manifest that the state was read from, if it is sound: a new one takes more syncs."""
        if self.state.resumable and self.state.size <= _manifest_limit(self.state.first_end):
            self.manifest = ManifestWriter.resume(self.directory, self.state)
            self._manifest_limit = _manifest_limit(self.state.first_end)

    def close_manifest(self) -> None:
        if self.manifest is not None:
            self.manifest.close()
            self.manifest = None

    # Obsolete files ---------------------------------------------------------------------------------------

    def _retire(self, dropped: list[Table]) -> None:
        """Removes what an edit replaced. The edit is done: a failure only costs space until the next open."""
        try:
            with self.lock:
                obsolete, self._obsolete_manifest = self._obsolete_manifest, None
                while dropped:
                    self._dropped += 1
                    dropped.pop().mark_obsolete(self._released)
            if obsolete is not None:
                obsolete.close()
                self.remove(filenames.manifest_name(obsolete.number))
            self.drop_logs()
            self.collect_garbage()
        except Exception as error:
            log.warning("%s: obsolete files stay until the next open: %s", self.directory, error)

    def drop_logs(self) -> None:
        """Removes the logs that no memtable needs any more."""
        with self.lock:
            obsolete = self.engine.take_obsolete_logs()
        # Not closed here: another thread may be syncing one. Its descriptor goes with the last reference.
        for number in obsolete:
            self.remove(filenames.log_name(number))

    @property
    def waiting_for_readers(self) -> bool:
        """Whether dropped tables or unused value logs are still on disk because a reader holds them."""
        if self._dropped > 0 or self._dead_files:
            return True
        return not self.engine.closed and self.values.waiting_for_readers(self.state.files())

    def collect_garbage(self) -> None:
        """Removes the files of dropped tables whose last reader is gone."""
        with self.lock:
            if self.engine.refusal is not None:
                return
            names = [filenames.table_name(number) for number in self._released]
            self._dropped -= len(names)
            self._released.clear()
            names += self._dead_files
            self._dead_files = []
            if not self.engine.closed:
                # Otherwise the memtables are gone, and their logs are still needed.
                names += self.values.unused(self.state.files())
        for name in names:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Unlinks a file of the database. A failure costs only space: it is logged and retried later."""
        try:
            os.unlink(os.path.join(self.directory, name))
        except FileNotFoundError:
            log.warning("%s: %s was already gone", self.directory, name)
        except OSError as error:
            log.warning("%s: cannot remove %s: %s", self.directory, name, error)
            with self.lock:
                self._dead_files.append(name)

    def discard_outputs(self, files: Iterable[TableMeta]) -> None:
        """Removes tables that were written but never reached the manifest, and the value logs written with them."""
        for path in self.paths_of(files):
            remove_unused(path)

    def paths_of(self, files: Iterable[TableMeta]) -> list[str]:
        """The files of new tables: their own, and those of value logs that were written with them."""
        new = {use.number for f in files for use in f.value_logs if not self.values.is_open(use.number)}
        tables = [filenames.table_path(self.directory, f.number) for f in files]
        return [*tables, *(filenames.value_log_path(self.directory, number) for number in sorted(new))]

    def sync_directory(self) -> None:
        try:
            sync_directory(self.directory)
        except SyncError as error:
            self.engine.refuse(error)
            raise

    def sync_values(self, files: Iterable[TableMeta]) -> None:
        """Syncs the value logs that these tables point into: an edit never names a value that may not be on disk."""
        try:
            self.values.sync(files)
        except SyncError as error:
            self.engine.refuse(error)
            raise

    def close(self) -> None:
        with self.commit, self.lock:
            self.collect_garbage()
            self.close_manifest()


def _manifest_limit(first: int) -> int:
    """The size of a manifest whose first record ends at `first` from which on a new one is started."""
    return max(MANIFEST_LIMIT, MANIFEST_GROWTH * first)

"""The tree as it stands: the current Version with its open tables, the memtables that wait for their flush,
and the
manifest that remembers it all.

Locks, outermost first: `commit` (one edit at a time, held over the manifest's fsync) and `lock` (the fields,
held briefly;
the scheduler's condition is built on it). A reader needs neither: it uses the ReadState that was published last.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lsmkv import filenames
from lsmkv.version.edit import VersionEdit
from lsmkv.errors import Error, ReadOnlyError, SyncError
from lsmkv.version.manifest import ManifestState, ManifestWriter, snapshot_edit, sync_directory, write_current
from lsmkv.options import Options
from lsmkv.version.version import FileMeta, Version
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.compaction.job import FileNumbers
from lsmkv_ext.wal.log import LogWriter
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.wal.sync_watermark import SyncWatermark
from lsmkv_ext.table.table import Table

log = logging.getLogger("lsmkv")

# A manifest is started anew once it holds mostly history: so many times the bytes of the tree it began with,
# and enough to be worth it. Opening reads all of it, and so does every reader beside a writer.
MANIFEST_GROWTH = 4
MANIFEST_LIMIT = 256 << 10


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
        self._filter_infos: dict[int, dict[str, Any]] = {}
        self.commit = threading.RLock()
        self.lock = threading.RLock()
        self.manifest: ManifestWriter | None = None
        self._manifest_limit = 0  # of its size
        self.active: Memtable | None = None
        self.immutables: list[Memtable] = []  # newest first
        self.logs: dict[int, LogWriter] = {}  # by number; the newest is the one in use
        self.watermark: SyncWatermark | None = None  # how much of that one is known synced
        self.poisoned: BaseException | None = None
        self.shifts = 0  # sum of all level shifts since the database was opened
        # Wired by the database: how a new tree reaches its readers, and an error its writers.
        self.publish: Callable[[list[list[Table]], Sequence[Memtable]], None] = lambda levels, flushed: None
        self.on_poison: Callable[[BaseException], None] = lambda error: None
        self._released: list[int] = []  # numbers of dropped tables that no reader holds any more
        self._dropped = 0  # tables dropped from the tree whose files are still there
        self._dead_files: list[str] = []  # names whose unlink failed, for another try

    # What there is -----------------------------------------------------------------------------------------

    @property
    def current(self) -> Version:
        return self.state.version

    def open_table(self, f: FileMeta) -> Table:
        return Table(
            filenames.table_path(self.directory, f.number),
            f.number,
            self.cache,
            self.fds,
            global_seq=f.global_seq,
            charge=self.options.cache_index_and_filter_blocks,
        )

    def add_table(self, table: Table) -> None:
        self.tables[table.number] = table

    def filter_infos(self) -> dict[int, dict[str, Any]]:
        """By file number. Made when first asked for: a fill ratio takes a walk over the whole filter."""
        with self.lock:
            for number, table in self.tables.items():
                if number not in self._filter_infos:
                    self._filter_infos[number] = filter_info(table)
            return dict(self._filter_infos)

    def tables_of(self, files: Iterable[FileMeta]) -> list[Table]:
        with self.lock:
            return [self.tables[f.number] for f in files]

    def table_levels(self) -> list[list[Table]]:
        with self.lock:
            return [self.tables_of(files) for files in self.current.levels]

    def memtables(self) -> list[Memtable]:
        """Newest first; the active one leads."""
        with self.lock:
            return list(self.immutables) if self.active is None else [self.active, *self.immutables]

    # Changes -----------------------------------------------------------------------------------------------

    def rotate(self, fresh: Memtable, new_log: LogWriter | None) -> None:
        """`fresh` takes the writes; what was active waits for its flush. The caller holds the writer's turn."""
        with self.lock:
            if self.active is not None and fresh.number <= self.active.number:
                raise Error(f"log {fresh.number} cannot follow log {self.active.number}")
            if new_log is not None:
                if self.watermark is not None:
                    new_log.attach_watermark(self.watermark, self.logs.get(self.active.number) if self.active else None)
                self.logs[new_log.number] = new_log
            waiting = self.immutables if self.active is None else [self.active, *self.immutables]
            # No call in between, so no interrupt from the keyboard either: both or none.
            self.immutables, self.active = waiting, fresh

    def apply(
        self,
        edit: VersionEdit,
        opened: Sequence[Table] = (),
        flushed: Sequence[Memtable] = (),
    ) -> None:
        """Makes `edit` durable, then visible. `opened` are the tables it adds, `flushed` the memtables they
        replace.

        When this raises, the tree is as before and (but for a SyncError) the outputs may be removed.
        """
        with self.commit:
            self.require_writable()
            edit = self._complete(edit, flushed)
            version = edit.apply(self.current)
            try:
                self._append(edit)
            except SyncError as error:
                self.poison(error)
                raise
            with self.lock:
                self._install(edit, version, opened, flushed)
                self.publish(self.table_levels(), flushed)
        self.drop_logs()
        self.collect_garbage()

    def _complete(self, edit: VersionEdit, flushed: Sequence[Memtable]) -> VersionEdit:
        """Adds the numbers that every edit carries."""
        last_seq = max([self.state.last_seq, edit.last_seq or 0, *(m.max_seq for m in flushed)])
        log_number = edit.log_number
        if flushed:
            with self.lock:
                kept = [m.number for m in self.immutables if m not in flushed]
                if self.active is not None:
                    kept.append(self.active.number)
                log_number = min(kept, default=self.state.log_number)
        return replace(
            edit,
            last_seq=last_seq,
            log_number=log_number,
            next_file=self.numbers.peek,
            time_us=time.time_ns() // 1000,
        )

    def _install(
        self, edit: VersionEdit, version: Version, opened: Sequence[Table], flushed: Sequence[Memtable]
    ) -> None:
        """The edit is durable: from here on nothing may fail."""
        self.state.apply(edit)
        self.state.version = version
        self.shifts += edit.shift
        for table in opened:
            self.add_table(table)
        self.immutables = [m for m in self.immutables if m not in flushed]
        for number in edit.removed:
            table = self.tables.pop(number)
            self._filter_infos.pop(number, None)
            self._dropped += 1
            table.mark_obsolete(self._released)

    # The manifest ------------------------------------------------------------------------------------------

    def _append(self, edit: VersionEdit) -> None:
        if self.manifest is None or self.manifest.failed or self.manifest.size > self._manifest_limit:
            self._start_manifest(edit)
        else:
            self.manifest.append(edit)

    def _start_manifest(self, edit: VersionEdit) -> None:
        """A new manifest that begins with the tree after `edit`; it counts once CURRENT names it."""
        number = self.numbers.next()
        after = replace(self.state)
        after.apply(replace(edit, next_file=self.numbers.peek))
        writer = None
        try:
            writer = ManifestWriter(self.directory, number, snapshot_edit(after, edit.reason, edit.time_us))
            write_current(self.directory, number)
        except SyncError:
            # Which manifest CURRENT names is open: both stay.
            if writer is not None:
                writer.close()
            raise
        except BaseException:
            if writer is not None:
                writer.close()
            with suppress(FileNotFoundError):
                os.unlink(filenames.manifest_path(self.directory, number))
            raise
        self._manifest_limit = max(MANIFEST_LIMIT, MANIFEST_GROWTH * writer.size)
        old, self.manifest = self.manifest, writer
        if old is not None:
            old.close()
            self.remove(filenames.manifest_name(old.number))

    def start(self, edit: VersionEdit) -> None:
        """The first edit after opening always starts a manifest, so nothing is appended behind a
        torn tail.
        """
        with self.commit:
            edit = replace(edit, next_file=self.numbers.peek, time_us=time.time_ns() // 1000)
            version = edit.apply(self.current)
            self._start_manifest(edit)
            self.state.apply(edit)
            self.state.version = version

    # Errors ------------------------------------------------------------------------------------------------

    def require_writable(self) -> None:
        if self.poisoned is not None:
            raise ReadOnlyError(
                f"the database is read-only since an I/O error: {self.poisoned}"
            ) from self.poisoned

    def poison(self, error: BaseException) -> None:
        """What reached the disk is unknown from now on: writing stops for good, reading goes on."""
        with self.lock:
            if self.poisoned is not None:
                return
            self.poisoned = error
            # In the same breath: once one call was refused, no later write may be acknowledged.
            self.on_poison(error)
        log.error("%s: read-only from now on: %s", self.directory, error)

    # Files that have served ---------------------------------------------------------------------------------

    def drop_logs(self) -> None:
        """Removes the logs that the durable manifest no longer needs."""
        with self.lock:
            below = self.state.log_number
            done = [number for number in self.logs if number < below]
            for number in done:
                # Not closed here: a sync of another thread may be in it. Its descriptor goes with the last
                # reference.
                del self.logs[number]
        for number in done:
            self.remove(filenames.log_name(number))

    @property
    def waiting_for_readers(self) -> bool:
        """Whether dropped tables are still on disk because a reader holds them."""
        return self._dropped > 0 or bool(self._dead_files)

    def collect_garbage(self) -> None:
        """Removes the files of dropped tables whose last reader is gone."""
        with self.lock:
            if self.poisoned is not None:
                return
            names = [filenames.table_name(number) for number in self._released]
            self._dropped -= len(names)
            self._released.clear()
            names += self._dead_files
            self._dead_files = []
        for name in names:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Unlinks one file of ours; a failure is logged and tried again later, for the space is all that is
        lost.
        """
        try:
            os.unlink(os.path.join(self.directory, name))
        except FileNotFoundError:
            log.warning("%s: %s was already gone", self.directory, name)
        except OSError as error:
            log.warning("%s: cannot remove %s: %s", self.directory, name, error)
            with self.lock:
                self._dead_files.append(name)

    def discard_outputs(self, numbers: Iterable[int]) -> None:
        """Removes tables that were written but never made it into the manifest."""
        for number in numbers:
            with suppress(FileNotFoundError):
                os.unlink(filenames.table_path(self.directory, number))

    def sync_directory(self) -> None:
        try:
            sync_directory(self.directory)
        except SyncError as error:
            self.poison(error)
            raise

    def close(self) -> None:
        with self.commit, self.lock:
            self.collect_garbage()
            for writer in self.logs.values():
                writer.detach_watermark()
            self.logs.clear()
            if self.watermark is not None:
                self.watermark.close()
                self.watermark = None
            if self.manifest is not None:
                self.manifest.close()
                self.manifest = None


def filter_info(table: Table) -> dict[str, Any]:
    """The table's filter as `lsmkv.filters` wants it: a healthy one has the problem "ok"."""
    info: dict[str, Any] = table.filter_info
    if info["problem"] is None:
        info["problem"] = "ok"
    elif info["problem"] != "absent":
        log.warning("%s: the filter cannot be used (%s); lookups read the table", table.path, info["problem"])
    return info

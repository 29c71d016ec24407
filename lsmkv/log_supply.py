"""New memtables and their logs. One log is created in advance, so a rotation does not wait for the disk.

The head of such a log has no sequence number to start from. Recovery takes it from the first record, because sequence
numbers have no gaps.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from lsmkv import filenames
from lsmkv.errors import SyncError
from lsmkv.version.version_set import SMALL_MEMTABLE, VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import Condition
from lsmkv_ext.tree import Tree
from lsmkv_ext.wal.writer import LogWriter

log = logging.getLogger("lsmkv")


class LogSupply:
    """The supply of one database.

    The holder of the writer's turn calls `rotate`; one background thread calls `prepare`. The version set's lock guards
    the state.
    """

    def __init__(self, versions: VersionSet) -> None:
        self.versions = versions
        self.wanted = False  # the log made in advance was taken
        self._spare: LogWriter | None = None  # the log made in advance
        self.preparing = False
        self._closing = False
        self._prepared = Condition(versions.lock)

    def rotate(self) -> None:
        """Give the engine a new log, and a new memtable for each keyspace whose active one is not empty. The caller
        holds the writer's turn.
        """
        engine = self.versions.engine
        engine.require_writable()
        # First: if this fails, no log has been taken.
        written = [tree for tree in engine.forest.trees if tree.active and not tree.active.empty]
        memtables = {tree.keyspace: new_memtable(self.versions, tree) for tree in written}
        self.versions.values.arrived()
        number, writer = self._take(engine.last_seq)
        for memtable in memtables.values():
            memtable.number = number
        try:
            with self.versions.lock:
                engine.rotate(memtables, number, writer)
        except BaseException:
            self._give_back(number)
            raise

    def _take(self, last_seq: int) -> tuple[int, LogWriter | None]:
        """Return a number and the log of that number, whose name is durable; the log is None without logging.

        Each log has a larger number than the one before.
        """
        with self.versions.lock:
            # A log that is being made has the smaller number, and recovery reads logs by number: use that one first.
            self._prepared.wait_for(lambda: not self.preparing)
            writer, self._spare = self._spare, None
            self.wanted = self.versions.options.wal is not None and not self._closing
            # Under the lock: the next spare log gets a larger number.
            number = self.versions.numbers.next() if writer is None else writer.number
        return number, writer or self._create(number, last_seq)

    def _give_back(self, number: int) -> None:
        """Remove a log that was taken and never written to."""
        with suppress(FileNotFoundError):
            os.unlink(filenames.log_path(self.versions.directory, number))

    def discard_spare(self) -> None:
        """Remove the log made ahead: the next one has another format."""
        with self.versions.lock:
            self._prepared.wait_for(lambda: not self.preparing)
            spare, self._spare = self._spare, None
        if spare is not None:
            self.versions.remove(filenames.log_name(spare.number))

    @property
    def short(self) -> bool:
        """Whether a log is wanted and none is ready: `prepare` has something to do."""
        return self.wanted and self._spare is None

    def prepare(self) -> None:
        """Make a log in advance if one is wanted."""
        with self.versions.lock:
            if not self.short:
                return
            self.preparing = True
        writer = None
        try:
            writer = self._create(self.versions.numbers.next(), 0)
        finally:
            with self.versions.lock:
                self._spare = writer
                self.preparing = False
                self._prepared.notify_all()

    def stop_preparing(self) -> None:
        """Make no more logs in advance: the database is about to close and would delete them unused."""
        with self.versions.lock:
            self._closing = True
            self.wanted = False

    def _create(self, number: int, last_seq: int) -> LogWriter | None:
        versions = self.versions
        writer = new_log(versions, number, last_seq)
        if writer is not None:
            # Before the first record: if a power cut takes the name of the file, it takes the synced records too.
            versions.sync_directory()
        return writer

    def close(self) -> None:
        """Remove the log made ahead."""
        self.discard_spare()


def new_memtable(versions: VersionSet, tree: Tree) -> Memtable:
    """Return an empty memtable for a tree. It expects as many keys as the active one has.

    Those of named keyspaces start small: there may be hundreds of them, with few writes each.
    """
    size, active = versions.options.write_buffer_size, tree.active
    used, keys = (0, 0) if active is None else (active.used_bytes, active.keys)
    if tree.keyspace:
        size = min(max(used + used // 4, SMALL_MEMTABLE), size)
    return Memtable(versions.state.seed, size, keys, small=tree.keyspace != 0 and size <= SMALL_MEMTABLE)


def new_log(versions: VersionSet, number: int, last_seq: int) -> LogWriter | None:
    """Create a log that follows `last_seq`; None without logging. A failed sync makes the database read-only."""
    mode = versions.options.wal
    if mode is None:
        return None
    path = filenames.log_path(versions.directory, number)
    try:
        return LogWriter(path, number, mode=mode, version=versions.state.format_version, previous_last_seq=last_seq)
    except SyncError as error:
        versions.engine.refuse(error)
        raise

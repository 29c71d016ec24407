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
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.port.finalization import Condition
from lsmkv_ext.wal.writer import LogWriter

log = logging.getLogger("lsmkv")


class LogSupply:
    """The supply of one database.

    The holder of the writer's turn calls `take`; one background thread calls `prepare`. The version set's lock guards
    the state.
    """

    def __init__(self, versions: VersionSet) -> None:
        self.versions = versions
        self.wanted = False  # the log made in advance was taken
        self._spare: LogWriter | None = None  # the log made in advance
        self.preparing = False
        self._closing = False
        self._prepared = Condition(versions.lock)

    def take(self, last_seq: int) -> tuple[Memtable, LogWriter | None]:
        """Return an empty memtable and its log, whose name is durable; the log is None without logging.

        Each log has a larger number than the one before.
        """
        memtable = new_memtable(self.versions, 0)  # first: if this fails, no log has been taken
        with self.versions.lock:
            # A log that is being made has the smaller number, and recovery reads logs by number: use that one first.
            self._prepared.wait_for(lambda: not self.preparing)
            writer, self._spare = self._spare, None
            self.wanted = self.versions.options.wal is not None and not self._closing
            # Under the lock: the next spare log gets a larger number.
            number = self.versions.numbers.next() if writer is None else writer.number
        if writer is None:
            writer = self._create(number, last_seq)
        memtable.number = number
        return memtable, writer

    def rotate(self) -> None:
        """Give the engine an empty memtable and its log. The caller holds the writer's turn."""
        engine = self.versions.engine
        engine.require_writable()
        memtable, writer = self.take(engine.last_seq)
        try:
            with self.versions.lock:
                engine.rotate(memtable, writer)
        except BaseException:
            self.give_back(memtable)
            raise

    def give_back(self, memtable: Memtable) -> None:
        """Remove the log of a memtable that was taken and never written to."""
        with suppress(FileNotFoundError):
            os.unlink(filenames.log_path(self.versions.directory, memtable.number))

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
        """Remove the log made in advance."""
        with self.versions.lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            self.versions.remove(filenames.log_name(spare.number))


def new_memtable(versions: VersionSet, number: int) -> Memtable:
    """Return an empty memtable with the number that its log has, or would have.

    It expects as many keys as the active one has.
    """
    active = versions.engine.active
    expected = 0 if active is None else active.keys
    memtable = Memtable(versions.state.seed, versions.options.write_buffer_size, expected)
    memtable.number = number
    return memtable


def new_log(versions: VersionSet, number: int, last_seq: int) -> LogWriter | None:
    """Create a log that follows `last_seq`; None without logging. A failed sync makes the database read-only."""
    mode = versions.options.wal
    if mode is None:
        return None
    path = filenames.log_path(versions.directory, number)
    try:
        return LogWriter(path, number, mode=mode, previous_last_seq=last_seq)
    except SyncError as error:
        versions.engine.refuse(error)
        raise

"""Memtables and the logs behind them. One log is kept ready, so that a rotation does not wait for the disk.

A log made ahead cannot know the sequence number it will follow; its first record tells, as they have no
gaps.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from lsmkv import filenames
from lsmkv.errors import SyncError
from lsmkv.version.version_set import VersionSet
from lsmkv_ext.port.finalization import Condition
from lsmkv_ext.wal.log import LogWriter
from lsmkv_ext.memtable.memtable import Memtable

log = logging.getLogger("lsmkv")


class LogSupply:
    """Of one database. `take` is for the holder of the writer's turn, `prepare` for one background thread."""

    def __init__(self, versions: VersionSet) -> None:
        self.versions = versions
        self.wanted = False  # a log was taken, so another will be
        self._spare: LogWriter | None = None
        self.preparing = False  # a log is being made ahead
        self._ending = False
        self._changed = Condition(versions.lock)

    def take(self, last_seq: int) -> tuple[Memtable, LogWriter | None]:
        """An empty memtable and its log, durable by name; None without logging. Numbers only grow."""
        with self.versions.lock:
            # What is under way has the smaller number, and recovery reads logs by number: it goes first.
            self._changed.wait_for(lambda: not self.preparing)
            writer, self._spare = self._spare, None
            self.wanted = self.versions.options.wal is not None and not self._ending
            # Under the lock: the next spare, which is wanted from here on, gets a larger one.
            number = self.versions.numbers.next() if writer is None else writer.number
        if writer is None:
            writer = self._create(number, last_seq)
        return new_memtable(self.versions, number), writer

    def give_back(self, memtable: Memtable) -> None:
        """The log was taken and nothing written to it: it goes."""
        with suppress(FileNotFoundError):
            os.unlink(filenames.log_path(self.versions.directory, memtable.number))

    @property
    def short(self) -> bool:
        """Whether `prepare` has something to do."""
        return self.wanted and self._spare is None

    def prepare(self) -> None:
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
                self._changed.notify_all()

    def stop_preparing(self) -> None:
        """The database is about to close: a log made ahead now would be deleted unused."""
        with self.versions.lock:
            self._ending = True
            self.wanted = False

    def _create(self, number: int, last_seq: int) -> LogWriter | None:
        versions = self.versions
        writer = new_log(versions, number, last_seq)
        if writer is not None:
            # Before the first record: a synced record in a file whose name is lost would be lost with it.
            versions.sync_directory()
        return writer

    def close(self) -> None:
        with self.versions.lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            self.versions.remove(filenames.log_name(spare.number))


def new_memtable(versions: VersionSet, number: int) -> Memtable:
    """Empty, with the number its log has, or would have. Its index grows to what the last one needed."""
    expected = 0 if versions.active is None else versions.active.keys
    memtable = Memtable(versions.state.seed, versions.options.write_buffer_size, expected)
    memtable.number = number
    return memtable


def new_log(versions: VersionSet, number: int, last_seq: int) -> LogWriter | None:
    mode = versions.options.wal
    if mode is None:
        return None
    path = filenames.log_path(versions.directory, number)
    try:
        return LogWriter(path, number, mode=mode, previous_last_seq=last_seq, seed=versions.state.seed)
    except SyncError as error:
        versions.poison(error)
        raise

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
from lsmkv.version_set import VersionSet
from lsmkv_ext.log import LogWriter
from lsmkv_ext.memtable import Memtable

log = logging.getLogger("lsmkv")


class LogSupply:
    """Of one database. `take` is for the holder of the writer slot, `prepare` for one background thread."""

    def __init__(self, versions: VersionSet) -> None:
        self.versions = versions
        self.wanted = False  # a log was taken, so another will be
        self._spare: LogWriter | None = None
        self._newest = 0  # number of the log taken last: a spare must be newer

    def take(self, last_seq: int) -> tuple[Memtable, LogWriter | None]:
        """An empty memtable and its log, durable by name; None without logging."""
        with self.versions.lock:
            writer, self._spare = self._spare, None
            self.wanted = self.versions.options.wal is not None
            number = self.versions.numbers.next() if writer is None else writer.number
            # Noted before it is made: a spare that is under way has a smaller number and must not follow it.
            self._newest = number
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
        number = self.versions.numbers.next()
        writer = self._create(number, 0)
        with self.versions.lock:
            if number > self._newest and self._spare is None:
                self._spare = writer
                return
        # A rotation could not wait and has made a newer one: recovery reads logs by number.
        self.versions.remove(filenames.log_name(number))

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
    """Empty, with the number its log has, or would have."""
    memtable = Memtable(versions.state.seed, versions.options.write_buffer_size)
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

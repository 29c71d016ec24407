"""Sets the clock that judges expiries back to the time of the system."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from lsmkv import filenames
from lsmkv.files import io_errors, open_own, sync_file
from lsmkv.lockfile import DatabaseLock
from lsmkv.recovery import stored_state
from lsmkv.version.current import write_current
from lsmkv.version.manifest import ManifestState, ManifestWriter, snapshot_edit
from lsmkv_ext.port.wall_clock import encode_clock


def reset_clock(path: str | os.PathLike[str]) -> int:
    """Set the clock of the database in the directory `path` to the time of the system. Return it, in milliseconds.

    The clock of a database never runs backward by itself. After the clock of the system was far ahead for a while, new
    entries would get expiries in the far future. Entries that expired by the wrong clock and are not reclaimed yet come
    back.

    Raises `LockError` if the database is open, `IOError` if it is missing, and `CorruptionError` if it is damaged.
    """
    directory = filenames.directory_path(path)
    with io_errors("reset the clock of", directory):
        lock = DatabaseLock(directory)
        try:
            return _reset(directory, stored_state.read_state(directory))
        finally:
            lock.release()


def _reset(directory: str, state: ManifestState) -> int:
    now = time.time_ns() // 1_000_000
    if state.format_version == 1:
        return now  # it has no clock
    # First: an open takes the later of both.
    _store_in_watermark(os.path.join(directory, filenames.SYNCED), now)
    number = max(state.next_file, *(1 + number for _, _, number in filenames.list_directory(directory)))
    first = snapshot_edit(replace(state, clock=now, next_file=number + 1), "reset clock", now * 1000)
    ManifestWriter.create(directory, number, first, state.format_version).close()
    write_current(directory, number)
    return now


def _store_in_watermark(path: str, now: int) -> None:
    try:
        fd = open_own(path, os.O_WRONLY)
    except FileNotFoundError:
        return
    try:
        for offset, slot in encode_clock(now):
            os.pwrite(fd, slot, offset)
        sync_file(fd, path)
    finally:
        os.close(fd)

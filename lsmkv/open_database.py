"""`lsmkv.open`: from a path and a flag to an open database. Takes the lock file and passes it to the DB. And
`lsmkv.upgrade`, an open that changes the format.
"""

from __future__ import annotations

import copyreg
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from lsmkv import filenames, keyspace_changes, ownership
from lsmkv.db import DB
from lsmkv.errors import Error, IOError, OptionError
from lsmkv.files import read_bounded
from lsmkv.keyspace import Keyspace
from lsmkv.lockfile import DatabaseLock
from lsmkv.options import MAX_OPTIONS_BYTES, Options
from lsmkv.recovery import open_reader, open_writer, stored_state
from lsmkv.recovery.destroy import remove_files
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv_ext.port.finalization import require_running
from lsmkv_ext.port.uninterruptible import uninterruptible
from lsmkv_ext.port.wall_clock import ManualClock


def open_database(path: str, flag: str, options: Options, clock: ManualClock | None = None) -> DB:
    if flag not in ("r", "w", "c", "n"):
        raise OptionError(f'flag must be "r", "w", "c" or "n", not {flag!r}')
    try:
        directory = filenames.directory_path(path)
        require_running()
        # An interrupt ends the wait; the database then opened closes itself when collected.
        return uninterruptible(lambda: _open(directory, flag, options, clock))
    except Error:
        raise
    except OSError as error:
        raise IOError(error.errno, f"open: {error.strerror}", error.filename or path) from error


def _open(directory: str, flag: str, options: Options, clock: ManualClock | None) -> DB:
    if flag in ("r", "w") and not stored_state.exists(directory):
        raise IOError(errno.ENOENT, "there is no database", directory)
    if flag == "r":
        return _open_for_reading(directory, options, clock)
    open_writer.create_directory(directory)
    if flag == "n" or not stored_state.exists(directory):
        ownership.refuse_foreign_files(directory)
    lock = DatabaseLock(directory)
    try:
        if flag == "w" and not stored_state.exists(directory):
            # Destroyed before this call had the lock.
            raise IOError(errno.ENOENT, "there is no database", directory)
        if flag == "n":
            remove_files(directory)
        versions, report = open_writer.open_for_writing(directory, options, clock)
        return DB(versions, report, lock, clock)
    except BaseException:
        lock.release()
        raise


def _open_for_reading(directory: str, options: Options, clock: ManualClock | None) -> DB:
    versions, report = open_reader.open_for_reading(directory, options, clock=clock)
    return DB(versions, report, None, clock)


def _pickle(db: DB) -> tuple[Callable[..., DB], tuple[Any, ...]]:
    """A read-only handle is pickled as what it takes to open it again, in any process that sees the directory."""
    if db._lock is not None or db._clock is not None:
        raise TypeError("only a read-only handle with the clock of the system can be pickled")
    db._check_open()
    return open_database, (db.path, "r", db.options)


def _pickle_keyspace(keyspace: Keyspace) -> tuple[Callable[..., Keyspace], tuple[Any, ...]]:
    return _open_keyspace, (keyspace._database, keyspace.name)


def _open_keyspace(db: DB, name: str) -> Keyspace:
    return db.keyspace(name, create=False)


copyreg.pickle(DB, _pickle)
copyreg.pickle(Keyspace, _pickle_keyspace)


def upgrade_database(path: str) -> None:
    directory = filenames.directory_path(path)
    if stored_state.exists(directory) and stored_state.read_state(directory).format_version == LATEST_FORMAT:
        return
    with open_database(path, "w", _stored_options(directory)) as db:
        db._call(partial(keyspace_changes.upgrade, db._scheduler, db._logs))


def _stored_options(directory: str) -> Options:
    """The options that the database was last opened with: an upgrade does not change them."""
    path = os.path.join(directory, filenames.OPTIONS)
    try:
        return Options.decode(read_bounded(path, MAX_OPTIONS_BYTES), path)
    except FileNotFoundError:
        return Options()

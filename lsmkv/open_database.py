"""From a path and a flag to an open database."""

from __future__ import annotations

import errno

from lsmkv import filenames, ownership
from lsmkv.db import DB
from lsmkv.errors import Error, IOError, OptionError
from lsmkv.lockfile import DatabaseLock
from lsmkv.options import Options
from lsmkv.recovery import maintenance, recovery
from lsmkv.recovery.recovery import RecoveryReport
from lsmkv_ext.port.finalization import require_running
from lsmkv_ext.port.uninterruptible import uninterruptible


def open_database(path: str, flag: str, options: Options) -> DB:
    if flag not in ("r", "w", "c", "n"):
        raise OptionError(f'flag must be "r", "w", "c" or "n", not {flag!r}')
    try:
        directory = filenames.folder_path(path)
        require_running()
        # An interrupt ends the wait. What is then opened for nobody closes itself.
        return uninterruptible(lambda: _open(directory, flag, options))
    except Error:
        raise
    except OSError as error:
        raise IOError(error.errno, f"open: {error.strerror}", error.filename or path) from error


def _open(directory: str, flag: str, options: Options) -> DB:
    if flag in ("r", "w") and not recovery.exists(directory):
        raise IOError(errno.ENOENT, "there is no database", directory)
    if flag == "r":
        return _open_for_reading(directory, options)
    recovery.create_directory(directory)
    if flag == "n" or not recovery.exists(directory):
        ownership.refuse_strangers(directory)
    lock = DatabaseLock(directory)
    try:
        if flag == "w" and not recovery.exists(directory):
            # Destroyed before we had the lock.
            raise IOError(errno.ENOENT, "there is no database", directory)
        if flag == "n":
            maintenance.remove_files(directory)
        report = RecoveryReport()
        versions = recovery.open_for_writing(directory, options, report)
        return DB(versions, report, lock, versions.state.last_seq)
    except BaseException:
        lock.release()
        raise


def _open_for_reading(directory: str, options: Options) -> DB:
    report = RecoveryReport()
    versions = recovery.open_for_reading(directory, options, report)
    return DB(versions, report, None, versions.state.last_seq)

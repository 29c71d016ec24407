"""Deletes a database. Only files that are ours go; `ownership` decides."""

from __future__ import annotations

import os
from contextlib import suppress

from lsmkv import filenames, ownership
from lsmkv.filenames import FileKind
from lsmkv.files import io_errors, size_of, sync_directory
from lsmkv.lockfile import DatabaseLock
from lsmkv.version.current import refuse_foreign


def destroy(path: str | os.PathLike[str]) -> None:
    """Delete the database in the directory `path`, and the directory if nothing else is in it.

    A missing directory is no error. Files of other programs stay.

    Raises `LockError` if the database is open, `IOError` if the directory holds a database of LevelDB or RocksDB.

    >>> lsmkv.open("old.db").close()
    >>> lsmkv.destroy("old.db")
    """
    directory = filenames.directory_path(path)
    if not os.path.lexists(directory):
        return
    with io_errors("destroy", directory):
        _destroy(directory)


def _destroy(directory: str) -> None:
    refuse_foreign(directory)
    lock = DatabaseLock(directory)
    try:
        # First, while CURRENT shows that it is ours.
        lost = os.path.join(directory, filenames.LOST)
        if os.path.isdir(lost) and not os.path.islink(lost):
            _remove(lost, everything=ownership.is_database(directory))
            with suppress(OSError):
                os.rmdir(lost)
        remove_files(directory)
        lock_path = os.path.join(directory, filenames.LOCK)
        if size_of(lock_path) == 0:
            os.unlink(lock_path)
    finally:
        lock.release()
    with suppress(OSError):
        os.rmdir(directory)


def remove_files(directory: str) -> None:
    """Remove all files of ours but LOCK."""
    refuse_foreign(directory)
    _remove(directory, everything=ownership.is_database(directory))


def _remove(directory: str, everything: bool) -> None:
    """Remove files with names of ours but LOCK: all of them, or those whose contents show that they are ours."""
    listing = [(name, kind) for name, kind, _ in filenames.list_directory(directory) if kind is not FileKind.LOCK]
    known = {name for name, kind in listing if ownership.recognized(directory, name, kind)}
    names = [name for name, _ in listing if everything or name in known]
    # Damaged files go first: only CURRENT shows that they are ours. Then CURRENT: without it the rest is no database.
    for name in sorted(names, key=lambda name: (name in known, name != filenames.CURRENT)):
        os.unlink(os.path.join(directory, name))
    sync_directory(directory)

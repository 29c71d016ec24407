"""Restoring a backup: the objects of a version become a database, which appears whole under its path."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from lsmkv import filenames
from lsmkv.errors import CorruptionError, IOError
from lsmkv.files import io_errors, open_above_stdio, sync_directory, sync_file, write_all
from lsmkv.repository import version as versions
from lsmkv.repository.store import Store, open_store
from lsmkv.repository.transfer import Meter, Progress, hash_file, run_all
from lsmkv.repository.version import Backup, File
from lsmkv.working_directory import working_directory

# Downloads of an object that arrives damaged or cut off.
ATTEMPTS = 3


def restore(
    url: Any,
    path: str | os.PathLike[str],
    version: str | None = None,
    *,
    downloads: int = 4,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Backup:
    """Create a database at `path` from a version in the repository of backups at `url`, and return the version.

    `version` is the id of one; None takes the newest. The checksums of all files are checked as they arrive,
    `downloads` at a time. The database appears whole or not at all, and `path` must not exist. A repeated call
    continues where a failed one stopped. `progress(file, done, total)` is called with bytes.

    Raises `IOError` if `path` exists, if there is no such version, or if the store fails, and `CorruptionError` if the
    backup is damaged.

    >>> with lsmkv.open("people.db") as db:
    ...     db[b"ada"] = b"1815"
    ...     version = lsmkv.backup(db, "backups")
    >>> _ = lsmkv.restore("backups", "copy.db")
    >>> with lsmkv.open("copy.db") as db:
    ...     dict(db)
    {b'ada': b'1815'}
    """
    if downloads < 1:
        raise ValueError("downloads must be at least 1")
    store = open_store(url, storage_options)
    dest = filenames.directory_path(path)
    _refuse_existing(dest)
    found = versions.load(store, version or _newest(store))
    with io_errors("restore", dest), working_directory(dest + ".restore", resume=True) as directory:
        _remove_others(directory, found)
        meter = Meter(progress, found.bytes)
        run_all(lambda file: _fetch(store, file, directory, meter), found.files, downloads, meter, lambda: None)
        sync_directory(directory)
        _refuse_existing(dest)
        os.rename(directory, dest)
        sync_directory(os.path.dirname(dest))
    return found


def _refuse_existing(dest: str) -> None:
    if os.path.lexists(dest):
        raise IOError(errno.EEXIST, "the destination exists", dest)


def _newest(store: Store) -> str:
    ids = versions.list_ids(store)
    if not ids:
        raise IOError(errno.ENOENT, "there is no backup", store.url)
    return ids[-1]


def _remove_others(directory: str, found: Backup) -> None:
    """Removes what an interrupted restore of another version has left."""
    wanted = {file.name for file in found.files}
    for name in os.listdir(directory):
        if name not in wanted:
            os.unlink(os.path.join(directory, name))


def _fetch(store: Store, file: File, directory: str, meter: Meter) -> None:
    path = os.path.join(directory, file.name)
    with io_errors("restore", path):
        if os.path.lexists(path) and os.path.getsize(path) == file.size and hash_file(path) == file.sha256:
            meter.add(file.name, file.size)  # by an interrupted restore, which may not have synced it
            _sync(path)
            return
        for left in reversed(range(ATTEMPTS)):
            meter.check_stopped()
            try:
                _download(store, file, path, meter.check_stopped)
            except CorruptionError:
                if not left:
                    raise
            else:
                meter.add(file.name, file.size)
                return


def _download(store: Store, file: File, path: str, check_stopped: Callable[[], None]) -> None:
    """Raises CorruptionError if what arrives is not the file."""
    digest, size = hashlib.sha256(), 0
    fd = open_above_stdio(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        for piece in store.download(file.object):
            check_stopped()
            size += len(piece)
            if size > file.size:
                break
            digest.update(piece)
            write_all(fd, piece, path)
        if size != file.size or digest.hexdigest() != file.sha256:
            raise CorruptionError(f"{file.name} in the backup is damaged", f"{store.url}/{file.object}")
        sync_file(fd, path)
    finally:
        os.close(fd)


def _sync(path: str) -> None:
    fd = open_above_stdio(path, os.O_RDONLY)
    try:
        sync_file(fd, path)
    finally:
        os.close(fd)

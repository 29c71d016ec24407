"""Making a backup: a checkpoint of the database, its new files as objects, then the version that names them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lsmkv import checkpoint, filenames
from lsmkv.db import DB
from lsmkv.errors import CorruptionError, IOError
from lsmkv.filenames import FileKind
from lsmkv.files import io_errors
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.repository import version as versions
from lsmkv.repository.lock import BACKUP, RepositoryLock
from lsmkv.repository.store import Store, open_store
from lsmkv.repository.transfer import Meter, Progress, hash_file, run_all
from lsmkv.repository.version import DATA, VERSIONS, Backup, File
from lsmkv.version.value_logs import ingested_log
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import value_problems, verify_table

# Uploads of an object that is not there afterwards, or not whole.
ATTEMPTS = 3


def backup(
    database: DB | str | os.PathLike[str],
    url: Any,
    *,
    uploads: int = 4,
    verify: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Backup:
    """Add a version of a database to the repository of backups at `url`, and return it.

    `database` is an open handle, also a read-only one, or a path; another process may write to it. `url` is a
    directory, the URL of an object store (`s3://bucket/path`, needs `lsmkv[backup]`), an obstore store, or a file
    system of fsspec (`fsspec+` before its URL). `storage_options` go to the client of the store.

    Only files that no earlier version has are sent, `uploads` at a time. With `verify` their checksums are checked
    first. The version is complete or absent, whatever happens in between; a repeated call continues where a failed one
    stopped. `progress(file, done, total)` is called with bytes.

    Raises `IOError` if a file or the store fails, `CorruptionError` if the database is damaged, and `LockError` while
    backups are pruned.

    >>> with lsmkv.open("people.db") as db:
    ...     db[b"ada"] = b"1815"
    ...     version = lsmkv.backup(db, "backups")
    >>> [each.id == version.id for each in lsmkv.backups("backups")]
    [True]
    """
    if uploads < 1:
        raise ValueError("uploads must be at least 1")
    store = open_store(url, storage_options)
    with (
        _opened(database) as db,
        RepositoryLock(store, BACKUP) as lock,
        checkpoint.temporary(db._flushed(), db.path + ".backup") as directory,
    ):
        return _Upload(store, lock, directory, uploads, verify, progress).run(db.path)


@contextmanager
def _opened(database: DB | str | os.PathLike[str]) -> Iterator[DB]:
    if isinstance(database, DB):
        yield database
        return
    db = open_database(filenames.directory_path(database), "r", Options(), None)
    try:
        yield db
    finally:
        db.close()


class _Upload:
    """One backup, of the checkpoint in `directory`."""

    def __init__(
        self, store: Store, lock: RepositoryLock, directory: str, uploads: int, verify: bool, progress: Progress | None
    ) -> None:
        self._store = store
        self._lock = lock
        self._directory = directory
        self._uploads = uploads
        self._verify = verify
        self._sizes = {name: os.stat(os.path.join(directory, name)).st_size for name in sorted(os.listdir(directory))}
        self._meter = Meter(progress, sum(self._sizes.values()))
        self._sent: dict[str, int] = {}  # bytes by name of the object

    def run(self, source: str) -> Backup:
        ids = versions.list_ids(self._store)
        known = self._known(ids)
        present = self._list_objects()
        for name in self._sizes:
            if filenames.parse(name) is None:
                raise IOError(errno.EEXIST, "not a file of lsmkv", os.path.join(self._directory, name))
        files = run_all(
            lambda name: self._send(name, known, present), self._sizes, self._uploads, self._meter, self._lock.refresh
        )
        self._send_again_what_is_missing(files)
        now = versions.utc_now()
        made = Backup(versions.new_id(ids[-1] if ids else None, now), now, source, tuple(files))
        self._commit(made)
        return replace(made, sent_files=len(self._sent), sent_bytes=sum(self._sent.values()))

    def _known(self, ids: list[str]) -> dict[tuple[str, int, int, int], File]:
        """The files of the newest version by what tells whether a file has changed. Files of a database never change,
        so those need not be read again.
        """
        for each in reversed(ids):
            try:
                newest = versions.load(self._store, each)
            except (CorruptionError, IOError):
                continue
            return {(f.name, f.size, f.inode, f.mtime_ns): f for f in newest.files}
        return {}

    def _list_objects(self) -> dict[str, int]:
        return {name: stored.size for name, stored in self._store.list(DATA).items()}

    def _send(self, name: str, known: dict[tuple[str, int, int, int], File], present: dict[str, int]) -> File:
        self._meter.check_stopped()
        path = os.path.join(self._directory, name)
        with io_errors("backup", path):
            status = os.stat(path)
            file = known.get((name, status.st_size, status.st_ino, status.st_mtime_ns))
            if file is None:
                digest = hash_file(path)
                file = File(name, status.st_size, digest, status.st_ino, status.st_mtime_ns)
        if present.get(file.object) != file.size:
            if self._verify:
                _check(path)
            self._store.upload(path, file.object)
            self._sent[file.object] = file.size
        self._meter.add(name, file.size)
        return file

    def _send_again_what_is_missing(self, files: list[File]) -> None:
        """A store may lose an upload, or keep a part of it, without an error."""
        for attempt in range(ATTEMPTS):
            stored = self._list_objects()
            missing = [file for file in files if stored.get(file.object) != file.size]
            if not missing:
                return
            if attempt < ATTEMPTS - 1:
                for file in missing:
                    self._store.upload(os.path.join(self._directory, file.name), file.object)
                    self._sent[file.object] = file.size
                    self._lock.refresh()
        name = f"{self._store.url}/{missing[0].object}"
        raise IOError(errno.EIO, f"the store has {stored.get(missing[0].object, 0)} of {missing[0].size} bytes", name)

    def _commit(self, made: Backup) -> None:
        """Writes the version. If a prune has removed the lock meanwhile, it may have removed objects too."""
        name, data = VERSIONS + made.id, versions.encode(made)
        self._store.write(name, data)
        whole = self._store.read(name) == data
        if whole and not self._lock.is_held():
            stored = self._list_objects()
            whole = all(stored.get(file.object) == file.size for file in made.files)
        if not whole:
            self._store.delete(name)
            raise IOError(errno.EIO, "the backup was not stored whole; repeat it", f"{self._store.url}/{name}")


def _check(path: str) -> None:
    """Raises CorruptionError if a table is damaged, or a value that it points to."""
    kind = filenames.parse(os.path.basename(path))
    if kind is None or kind[0] is not FileKind.TABLE:
        return
    table = Table(path, kind[1])
    if own_log := ingested_log(table):
        table = Table(path, kind[1], own_log=own_log)
    for finding in verify_table(table, deep=False):
        raise CorruptionError(finding["what"], path, finding["offset"])
    for file, what in value_problems(table) if table.meta.value_logs else ():
        raise CorruptionError(what, file)

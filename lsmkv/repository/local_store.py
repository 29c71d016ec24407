"""A directory as a store. Objects are files, synced before they get their name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from lsmkv import filenames
from lsmkv.files import io_errors, open_above_stdio, open_regular, sync_directory, sync_file, write_all
from lsmkv.repository.store import Stored

PIECE = 1 << 20
# The ending of a file that is being written, after the number of the process. A prune removes those of killed ones.
TEMPORARY = ".tmp"


class LocalStore:
    def __init__(self, directory: str) -> None:
        self.url = filenames.directory_path(directory)

    def _path(self, name: str) -> str:
        return os.path.join(self.url, *name.split("/"))

    def list(self, prefix: str) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        for directory, _, names in os.walk(self._path(prefix)):
            for name in names:
                path = os.path.join(directory, name)
                with suppress(FileNotFoundError):  # removed since
                    status = os.lstat(path)
                    found[os.path.relpath(path, self.url)] = Stored(status.st_size, status.st_mtime)
        return found

    def read(self, name: str) -> bytes:
        return b"".join(self.download(name))

    def write(self, name: str, data: bytes) -> None:
        self._store(iter([data]), name)

    def upload(self, path: str, name: str) -> None:
        with io_errors("backup", path), os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            self._store(iter(lambda: file.read(PIECE), b""), name)

    def download(self, name: str) -> Iterator[bytes]:
        path = self._path(name)
        with io_errors("reading a backup", path), os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def delete(self, name: str) -> None:
        with io_errors("removing a backup", self._path(name)), suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def _store(self, pieces: Iterator[bytes], name: str) -> None:
        path = self._path(name)
        directory = os.path.dirname(path)
        with io_errors("writing a backup", path):
            self._make_directory(directory)
            # Another process may store the same object.
            temporary = f"{path}.{os.getpid()}{TEMPORARY}"
            try:
                self._write(temporary, pieces)
                os.rename(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            sync_directory(directory)

    def _write(self, path: str, pieces: Iterator[bytes]) -> None:
        fd = open_above_stdio(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for piece in pieces:
                write_all(fd, piece, path)
            sync_file(fd, path)
        finally:
            os.close(fd)

    def _make_directory(self, directory: str) -> None:
        """With durable names up to the root of the store."""
        if os.path.isdir(directory):
            return
        parent = os.path.dirname(directory)
        if directory != self.url:
            self._make_directory(parent)
        os.makedirs(directory, 0o700, exist_ok=True)
        sync_directory(parent)

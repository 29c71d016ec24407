"""A file system of fsspec as a store."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from lsmkv.errors import Error, IOError
from lsmkv.repository.store import Stored, store_errors

PIECE = 1 << 20


def _errors(what: str, name: str) -> Any:
    return store_errors(what, name, (FileNotFoundError,), Exception)


class FsspecStore:
    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = f"fsspec+{fs.unstrip_protocol(root)}"

    @classmethod
    def from_url(cls, url: str, options: dict[str, Any]) -> FsspecStore:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise Error("this URL needs fsspec: pip install fsspec") from error
        with _errors("no store", url):
            return cls(*url_to_fs(url, **options))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if self._root else name

    def list(self, prefix: str) -> dict[str, Stored]:
        with _errors("listing backups", prefix):
            self._fs.invalidate_cache()
            found = self._fs.find(self._path(prefix.rstrip("/")), detail=True)
        return {self._name(path): Stored(info["size"] or 0, _modified(info)) for path, info in found.items()}

    def _name(self, path: str) -> str:
        """The name of the object at a path of the file system."""
        return path.removeprefix(self._root).lstrip("/") if self._root else path.lstrip("/")

    def read(self, name: str) -> bytes:
        with _errors("reading a backup", name):
            return bytes(self._fs.cat_file(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        with _errors("writing a backup", name):
            self._make_directory(name)
            self._fs.pipe_file(self._path(name), data)

    def upload(self, path: str, name: str) -> None:
        with _errors("writing a backup", name):
            self._make_directory(name)
            self._fs.put_file(path, self._path(name))

    def download(self, name: str) -> Iterator[bytes]:
        with _errors("reading a backup", name), self._fs.open(self._path(name), "rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def delete(self, name: str) -> None:
        try:
            with _errors("removing a backup", name):
                self._fs.rm_file(self._path(name))
        except IOError as error:
            if error.errno != errno.ENOENT:
                raise

    def _make_directory(self, name: str) -> None:
        self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)


def _modified(info: dict[str, Any]) -> float:
    """When an object was last changed. File systems of fsspec call it by different names; 0 if it is unknown."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        when = info.get(key)
        if isinstance(when, datetime):
            return when.timestamp()
        if isinstance(when, (int, float)):
            return float(when)
    return 0.0

"""An object store (S3, Google Cloud Storage, Azure, HTTP, memory) through obstore."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsmkv.errors import Error, IOError
from lsmkv.repository.store import Stored, store_errors

try:
    import obstore
    from obstore.exceptions import BaseError, NotFoundError
    from obstore.store import from_url
except ImportError as error:
    raise Error("object stores need obstore: pip install 'lsmkv[backup]'") from error

PIECE = 1 << 20


def _errors(what: str, name: str) -> Any:
    return store_errors(what, name, (NotFoundError, FileNotFoundError), BaseError)


class ObjectStore:
    def __init__(self, store: Any, url: str) -> None:
        self._store = store
        self.url = url

    @classmethod
    def from_url(cls, url: str, options: dict[str, Any]) -> ObjectStore:
        try:
            return cls(from_url(url, **options), url)
        except BaseError as error:
            raise IOError(errno.EINVAL, f"no store: {error}", url) from error

    def list(self, prefix: str) -> dict[str, Stored]:
        with _errors("listing backups", prefix):
            pages = obstore.list(self._store, prefix.rstrip("/"), chunk_size=1000)
            return {
                each["path"]: Stored(each["size"], each["last_modified"].timestamp()) for page in pages for each in page
            }

    def read(self, name: str) -> bytes:
        with _errors("reading a backup", name):
            return bytes(obstore.get(self._store, name).bytes())

    def write(self, name: str, data: bytes) -> None:
        with _errors("writing a backup", name):
            obstore.put(self._store, name, data, use_multipart=False)

    def upload(self, path: str, name: str) -> None:
        with _errors("writing a backup", name):
            obstore.put(self._store, name, Path(path))

    def download(self, name: str) -> Iterator[bytes]:
        with _errors("reading a backup", name):
            for piece in obstore.get(self._store, name).stream(min_chunk_size=PIECE):
                yield bytes(piece)

    def delete(self, name: str) -> None:
        try:
            with _errors("removing a backup", name):
                obstore.delete(self._store, name)
        except IOError as error:
            if error.errno != errno.ENOENT:
                raise

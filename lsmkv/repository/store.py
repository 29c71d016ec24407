"""Stores: named objects in a directory, an object store or a file system of fsspec, behind one small interface.

A name is a path with slashes. An object is whole or absent: an upload that fails leaves nothing under its name, or the
object that was there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lsmkv.errors import IOError


@dataclass(frozen=True)
class Stored:
    """One object in a listing."""

    size: int
    modified: float  # seconds since 1970, by the clock of the store


class Store(Protocol):
    """What a repository needs of a store. Every call may raise `IOError`; that of a missing object has ENOENT."""

    url: str

    def list(self, prefix: str) -> dict[str, Stored]:
        """The objects whose name starts with `prefix`, which ends with a slash."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Returns once the object is durable, with all that was uploaded before."""

    def upload(self, path: str, name: str) -> None:
        """Stores a file."""

    def download(self, name: str) -> Iterator[bytes]:
        """The bytes of an object, in pieces."""

    def delete(self, name: str) -> None:
        """Removes an object. A missing one is no error."""


def open_store(url: Any, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store at `url`: a path, a URL, an obstore store, or a file system of fsspec.

    `storage_options` go to obstore or fsspec, whichever serves the URL.
    """
    given = dict(storage_options or {})
    if isinstance(url, (str, os.PathLike)):
        return _open_url(os.fspath(url), given)
    if given:
        raise TypeError("storage_options go with a URL, not with a store")
    module = type(url).__module__.partition(".")[0]
    if module == "obstore":
        from lsmkv.repository.object_store import ObjectStore

        return ObjectStore(url, repr(url))
    if hasattr(url, "cat_file") and hasattr(url, "put_file"):
        from lsmkv.repository.fsspec_store import FsspecStore

        return FsspecStore(url, "")
    raise TypeError(f"expected a path, a URL, an obstore store or an fsspec file system, not {type(url).__name__}")


def _open_url(url: str, given: dict[str, Any]) -> Store:
    scheme, found, rest = url.partition("://")
    if not found or scheme == "file":
        from lsmkv.repository.local_store import LocalStore

        if given:
            raise TypeError("a directory takes no storage_options")
        return LocalStore(rest if found else url)
    if scheme.startswith("fsspec+"):
        from lsmkv.repository.fsspec_store import FsspecStore

        return FsspecStore.from_url(url.removeprefix("fsspec+"), given)
    from lsmkv.repository.object_store import ObjectStore

    return ObjectStore.from_url(url, given)


@contextmanager
def store_errors(
    what: str, name: str, missing: tuple[type[BaseException], ...], others: type[BaseException]
) -> Iterator[None]:
    """Turns the errors of a client library into `IOError`."""
    try:
        yield
    except missing as error:
        raise IOError(errno.ENOENT, f"{what}: no such object", name) from error
    except IOError:
        raise
    except OSError as error:
        raise IOError(error.errno or errno.EIO, f"{what}: {error.strerror or error}", name) from error
    except others as error:
        raise IOError(errno.EIO, f"{what}: {error}", name) from error

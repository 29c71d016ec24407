"""zarr: a store of version 3 whose chunks and metadata are values of a database."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from lsmkv.db import DB
from lsmkv.errors import Error
from lsmkv.open_database import open_database
from lsmkv.options import Options

try:
    from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype
    from zarr.core.buffer.core import default_buffer_prototype
except ImportError as error:
    raise Error("this module needs zarr 3: pip install 'lsmkv[zarr]'") from error

T = TypeVar("T")

# One process writes, so the stores of one path share a handle: [handle, number of stores].
_writers: dict[str, list[Any]] = {}
_guard = threading.Lock()


def _share_writer(path: str, options: Options) -> DB:
    with _guard:
        shared = _writers.get(path)
        if shared is None:
            shared = _writers[path] = [open_database(path, "c", options), 0]
        shared[1] += 1
        db: DB = shared[0]
        return db


def _release_writer(path: str) -> None:
    with _guard:
        shared = _writers[path]
        shared[1] -= 1
        if shared[1]:
            return
        del _writers[path]
    shared[0].close()


class LsmkvStore(Store):  # type: ignore[misc]
    """A zarr store in the database at `path`.

    `options` are those of `lsmkv.open`. Stores of one path in one process share a handle. A read-only store takes no
    lock, also while another process writes, and sees what was written at the time of each read. It can be pickled.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, **options: Any) -> None:
        super().__init__(read_only=read_only)
        self._path = os.path.realpath(os.fspath(path))
        self._options = dict(options)
        self._release: Callable[[], object] | None = None
        self._handle: DB | None = None

    def with_read_only(self, read_only: bool = False) -> LsmkvStore:
        return type(self)(self._path, read_only=read_only, **self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LsmkvStore) and self.__getstate__() == other.__getstate__()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LsmkvStore({self._path!r})"

    __str__ = __repr__

    def __getstate__(self) -> tuple[str, bool, dict[str, Any]]:
        return self._path, self.read_only, self._options

    def __setstate__(self, state: tuple[str, bool, dict[str, Any]]) -> None:
        path, read_only, options = state
        self.__init__(path, read_only=read_only, **options)  # type: ignore[misc]

    # Opening -----------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        await super()._open()
        await asyncio.to_thread(self._db)

    def _db(self) -> DB:
        if self._handle is None:
            options = Options.of(None, self._options)
            if self.read_only:
                self._handle = open_database(self._path, "r", options)
                self._release = weakref.finalize(self, self._handle.close)
            else:
                self._handle = _share_writer(self._path, options)
                self._release = weakref.finalize(self, _release_writer, self._path)
            self._is_open = True
        elif self.read_only:
            self._handle.refresh()
        return self._handle

    def close(self) -> None:
        super().close()
        release, self._release, self._handle = self._release, None, None
        if release is not None:
            release()

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs work that may read the disk in a thread."""
        return await asyncio.to_thread(work, *arguments)

    # Reading -----------------------------------------------------------------------------------------------

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        value = _read(self._db(), key.encode(), byte_range)
        return None if value is None else (prototype or default_buffer_prototype()).buffer.from_bytes(value)

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await self._call(lambda: self.get_sync(key, prototype=prototype, byte_range=byte_range))

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        ranges = list(key_ranges)
        return await self._call(lambda: [self.get_sync(k, prototype=prototype, byte_range=r) for k, r in ranges])

    async def exists(self, key: str) -> bool:
        return await self._call(lambda: key.encode() in self._db())

    # Writing -----------------------------------------------------------------------------------------------

    def set_sync(self, key: str, value: Buffer) -> None:
        self._check_writable()
        self._db().put(key.encode(), _bytes_of(value))

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._call(self.set_sync, key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._call(lambda: self._db().setdefault(key.encode(), _bytes_of(value)))

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        self._check_writable()
        given = [(key.encode(), _bytes_of(value)) for key, value in values]

        def write() -> None:
            with self._db().write_batch() as batch:
                for key, value in given:
                    batch.put(key, value)

        await self._call(write)

    def delete_sync(self, key: str) -> None:
        self._check_writable()
        self._db().delete(key.encode())

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._call(self.delete_sync, key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        start = _directory(prefix)
        await self._call(lambda: self._db().delete_range(start, _after(start)) if start else self._db().clear())

    async def clear(self) -> None:
        self._check_writable()
        await self._call(lambda: self._db().clear())

    # Listing -----------------------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in await self._call(lambda: [*self._db().keys(prefix=prefix.encode())]):
            yield key.decode()

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._call(lambda: _children(self._db(), _directory(prefix))):
            yield name.decode()

    async def is_empty(self, prefix: str) -> bool:
        start = _directory(prefix)
        return await self._call(lambda: next(iter(self._db().keys(prefix=start)), None) is None)


def _bytes_of(value: Buffer) -> bytes:
    if not isinstance(value, Buffer):
        raise TypeError(
            f"LsmkvStore.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead."
        )
    data: bytes = value.to_bytes()
    return data


def _read(db: DB, key: bytes, byte_range: ByteRequest | None) -> bytes | None:
    """The value of a key or a part of it. Of a large value no more is read than the part needs."""
    if byte_range is None:
        whole: bytes | None = db.get(key)
        return whole
    try:
        file = db.open_value(key)
    except KeyError:
        return None
    with file:
        size = file.seek(0, os.SEEK_END)
        if isinstance(byte_range, RangeByteRequest):
            start, stop = byte_range.start, byte_range.end
        elif isinstance(byte_range, OffsetByteRequest):
            start, stop = byte_range.offset, size
        elif isinstance(byte_range, SuffixByteRequest):
            start, stop = max(0, size - byte_range.suffix), size
        else:
            raise ValueError(f"Unexpected byte_range, got {byte_range}.")
        file.seek(min(start, size))
        data: bytes = file.read(max(0, stop - start))
        return data


def _directory(prefix: str) -> bytes:
    name = prefix.strip("/")
    return name.encode() + b"/" if name else b""


def _after(directory: bytes) -> bytes:
    """The first key behind all that are in a directory."""
    return directory[:-1] + b"0"  # the character after the slash


def _children(db: DB, directory: bytes) -> Iterable[bytes]:
    """The names in a directory. It jumps over the contents of those that are directories."""
    names = []
    with db.snapshot() as snapshot:
        cursor = snapshot.iterator(prefix=directory, include_value=False)
        key = next(cursor, None)
        while key is not None:
            name, slash, _ = key.removeprefix(directory).partition(b"/")
            names.append(name)
            if slash:
                cursor.seek(_after(directory + name + b"/"))
            key = next(cursor, None)
    return dict.fromkeys(names)

"""The reads of a database, of its keyspaces and snapshots: points, ranges, cursors."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, TypeVar, cast, overload

import lsmkv
from lsmkv.aio.pool import OneAtATime, Pool
from lsmkv.columns import ColumnReads, Rows, Type
from lsmkv.mapping import Key, count
from lsmkv.stats.introspect import Explain, explain
from lsmkv_ext.nonblocking import WOULD_BLOCK, WouldBlock, try_get, try_multi_get
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.reader import Reader

if TYPE_CHECKING:
    from lsmkv_ext.arrow.array import ArrowColumn
    from lsmkv_ext.columns.scan import ArrowScan

T = TypeVar("T")

# So many keys of a `multi_get` are looked up in the loop's thread: each takes up to 20 us if its block is not cached.
MANY = 16
# Items that one visit to a thread fetches, at first and at most.
FIRST_TAKE = 16
LONGEST_TAKE = 512


class Reads:
    """The reads that a database and its snapshots share."""

    _pool: Pool

    @property
    def _reader(self) -> Reader:
        raise NotImplementedError

    @overload
    async def get(
        self,
        key: Key,
        default: None = None,
        *,
        fill_cache: bool = True,
        expect: str | None = None,
        copy: Literal[True] = True,
    ) -> bytes | None: ...
    @overload
    async def get(
        self,
        key: Key,
        default: T,
        *,
        fill_cache: bool = True,
        expect: str | None = None,
        copy: Literal[True] = True,
    ) -> bytes | T: ...
    @overload
    async def get(
        self, key: Key, default: T = ..., *, fill_cache: bool = True, expect: str | None = None, copy: bool
    ) -> bytes | memoryview | T: ...
    async def get(
        self,
        key: Key,
        default: Any = None,
        *,
        fill_cache: bool = True,
        expect: str | None = None,
        copy: bool = True,
    ) -> Any:
        """As `lsmkv.DB.get`."""
        key = as_bytes(key)
        if copy and fill_cache and expect is None:
            value = try_get(self._reader, key, default)
            if value is not WOULD_BLOCK:
                if self._pool.gives_way():
                    await asyncio.sleep(0)
                return value
        read: Callable[..., Any] = self._reader.get
        return await self._pool.run(read, key, default, fill_cache=fill_cache, expect=expect, copy=copy)

    async def contains(self, key: Key) -> bool:
        """Return whether the key is there, as `key in db` does."""
        key = as_bytes(key)
        found = try_get(self._reader, key)
        if not isinstance(found, WouldBlock):
            if self._pool.gives_way():
                await asyncio.sleep(0)
            return found is not None
        return await self._pool.run(self._reader.__contains__, key)

    @overload
    async def multi_get(self, keys: Iterable[Key], default: None = None) -> list[bytes | None]: ...
    @overload
    async def multi_get(self, keys: Iterable[Key], default: T) -> list[bytes | T]: ...
    async def multi_get(self, keys: Iterable[Key], default: Any = None) -> list[Any]:
        """As `lsmkv.DB.multi_get`."""
        wanted = [as_bytes(key) for key in keys]
        if len(wanted) <= MANY:
            values = try_multi_get(self._reader, wanted, default)
            if not isinstance(values, WouldBlock):
                await asyncio.sleep(0)
                return values
        return await self._pool.run(self._reader.multi_get, wanted, default)

    async def scan_arrow(self, **options: Any) -> ArrowScan:
        """As `lsmkv.DB.scan_arrow`. Consumers read batches in their own thread: pass them to `asyncio.to_thread`."""
        return await self._pool.run(partial(cast(ColumnReads, self._reader).scan_arrow, **options))

    async def multi_get_arrow(self, keys: Rows, *, value_type: Type = "binary") -> ArrowColumn:
        """As `lsmkv.DB.multi_get_arrow`."""
        return await self._pool.run(cast(ColumnReads, self._reader).multi_get_arrow, keys, value_type=value_type)

    async def ttl(self, key: Key) -> float | None:
        """As `lsmkv.DB.ttl`."""
        return await self._pool.run(self._reader.ttl, as_bytes(key))

    async def open_value(self, key: Key) -> ValueFile:
        """As `lsmkv.DB.open_value`. The reads of the file are awaitable."""
        return ValueFile(self._pool, await self._pool.run(self._reader.open_value, as_bytes(key)))

    def iterator(self, **options: Any) -> View[Any]:
        """Return a view of what `lsmkv.DB.iterator` yields with these options."""
        return View(self._pool, self._reader, options)

    def keys(
        self, start: Key | None = None, stop: Key | None = None, *, prefix: Key | None = None, reverse: bool = False
    ) -> View[bytes]:
        """As `lsmkv.DB.keys`, for `async for`."""
        return self.iterator(start=start, stop=stop, prefix=prefix, reverse=reverse, include_value=False)

    def values(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        copy: bool = True,
    ) -> View[bytes]:
        """As `lsmkv.DB.values`, for `async for`."""
        return self.iterator(start=start, stop=stop, prefix=prefix, reverse=reverse, copy=copy, include_key=False)

    def items(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        copy: bool = True,
    ) -> View[tuple[bytes, bytes]]:
        """As `lsmkv.DB.items`, for `async for`."""
        return self.iterator(start=start, stop=stop, prefix=prefix, reverse=reverse, copy=copy)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys().__aiter__()

    def cursor(self, **options: Any) -> Cursor:
        """Return a cursor over what `lsmkv.DB.cursor` does with these options."""
        return Cursor(self._pool, self._reader, options)

    async def explain(self, key: Key) -> Explain:
        """As `lsmkv.DB.explain`."""
        return await self._pool.run(explain, self._reader, as_bytes(key))


class View(Generic[T]):
    """A range of a database, for `async for`. Each loop is a new scan, of the state at its first step."""

    def __init__(self, pool: Pool, reader: Reader, options: dict[str, Any]) -> None:
        self._pool = pool
        self._reader = reader
        self._options = options

    def __aiter__(self) -> AsyncIterator[T]:
        return Scan(OneAtATime(self._pool), lambda: self._reader.iterator(**self._options))

    async def count(self) -> int:
        """Return the number of keys. It takes a scan."""
        options = {**self._options, "include_key": True, "include_value": False}
        return await self._pool.run(lambda: count(self._reader.iterator(**options)))

    def __repr__(self) -> str:
        return f"<lsmkv.aio.View of {self._reader!r}>"


class Scan(AsyncIterator[T]):
    """The items of an iterator, which threads fetch in growing pieces. A cancelled step loses none."""

    def __init__(self, calls: OneAtATime, begin: Callable[[], Iterator[T]]) -> None:
        self._calls = calls
        self._begin = begin
        self._source: Iterator[T] | None = None
        self._fetched: deque[T] = deque()
        self._take = FIRST_TAKE
        self._ended = False

    async def __anext__(self) -> T:
        while not self._fetched:
            if self._ended:
                raise StopAsyncIteration
            await self._calls.run(self._fetch)
        return self._fetched.popleft()

    def _fetch(self) -> None:
        if self._fetched or self._ended:
            return  # a step that was cancelled has fetched them
        if self._source is None:
            self._source = self._begin()
        items = _taken(self._source, self._take)
        self._fetched.extend(items)
        self._take = min(self._take * 4, LONGEST_TAKE)
        self._ended = not items

    async def aclose(self) -> None:
        """Release the files that the scan reads. A scan that is collected does so too."""
        await self._calls.run(self._close)

    def _close(self) -> None:
        self._ended = True
        self._fetched.clear()
        close: Any = getattr(self._source, "close", None)
        self._source = None
        if close is not None:
            close()


def _taken(source: Iterator[T], n: int) -> list[T]:
    if isinstance(source, lsmkv.Iterator):
        return source.take(n)
    return [item for item, _ in zip(source, range(n), strict=False)]


class Cursor:
    """`lsmkv.Cursor` whose every call is awaitable. One call at a time; others wait for it."""

    def __init__(self, pool: Pool, reader: Reader, options: dict[str, Any]) -> None:
        self._calls = OneAtATime(pool)
        self._begin = partial(reader.cursor, **options)
        self._made: lsmkv.Cursor | None = None

    def _call(self, name: str, *args: Any) -> Any:
        self._made = self._made or self._begin()
        return getattr(self._made, name)(*args)

    async def seek(self, target: Key) -> bool:
        """As `lsmkv.Cursor.seek`."""
        return cast(bool, await self._calls.run(self._call, "seek", as_bytes(target)))

    async def seek_for_prev(self, target: Key) -> bool:
        """As `lsmkv.Cursor.seek_for_prev`."""
        return cast(bool, await self._calls.run(self._call, "seek_for_prev", as_bytes(target)))

    async def seek_to_first(self) -> bool:
        """As `lsmkv.Cursor.seek_to_first`."""
        return cast(bool, await self._calls.run(self._call, "seek_to_first"))

    async def seek_to_last(self) -> bool:
        """As `lsmkv.Cursor.seek_to_last`."""
        return cast(bool, await self._calls.run(self._call, "seek_to_last"))

    async def next(self) -> bool:
        """As `lsmkv.Cursor.next`."""
        return cast(bool, await self._calls.run(self._call, "next"))

    async def prev(self) -> bool:
        """As `lsmkv.Cursor.prev`."""
        return cast(bool, await self._calls.run(self._call, "prev"))

    async def key(self) -> bytes:
        """As `lsmkv.Cursor.key`."""
        return cast(bytes, await self._calls.run(self._call, "key"))

    async def value(self) -> bytes:
        """As `lsmkv.Cursor.value`."""
        return cast(bytes, await self._calls.run(self._call, "value"))

    async def item(self) -> tuple[bytes, bytes]:
        """As `lsmkv.Cursor.item`."""
        return cast(tuple[bytes, bytes], await self._calls.run(self._call, "item"))

    async def close(self) -> None:
        """As `lsmkv.Cursor.close`."""
        await self._calls.run(self._call, "close")

    async def __aenter__(self) -> Cursor:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class ValueFile:
    """The file of `open_value` whose reads are awaitable. One call at a time; others wait for it."""

    def __init__(self, pool: Pool, file: BinaryIO) -> None:
        self._calls = OneAtATime(pool)
        self._file = file

    async def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all that are left."""
        return await self._calls.run(self._file.read, size)

    async def seek(self, offset: int, whence: int = 0) -> int:
        """As `io.IOBase.seek`."""
        return await self._calls.run(self._file.seek, offset, whence)

    async def close(self) -> None:
        """Release the value."""
        await self._calls.run(self._file.close)

    async def __aenter__(self) -> ValueFile:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class Snapshot(Reads):
    """`lsmkv.Snapshot` for asyncio. `db.snapshot()` returns it."""

    def __init__(self, pool: Pool, snapshot: lsmkv.Snapshot) -> None:
        self._pool = pool
        self._snapshot = snapshot

    @property
    def _reader(self) -> Reader:
        return self._snapshot

    @property
    def sequence(self) -> int:
        """As `lsmkv.Snapshot.sequence`."""
        return self._snapshot.sequence

    @property
    def closed(self) -> bool:
        """As `lsmkv.Snapshot.closed`."""
        return self._snapshot.closed

    def keyspace(self, keyspace: Reads) -> Snapshot:
        """As `lsmkv.Snapshot.keyspace`."""
        return Snapshot(self._pool, self._snapshot.keyspace(keyspace._reader))

    async def close(self) -> None:
        """Release the files that it reads."""
        await self._pool.run(self._snapshot.close)

    async def __aenter__(self) -> Snapshot:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<lsmkv.aio.Snapshot at {self.sequence}{' (closed)' if self.closed else ''}>"

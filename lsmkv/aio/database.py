"""A database for asyncio, and its keyspaces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Unpack, overload

import lsmkv
from lsmkv.aio.pool import Pool
from lsmkv.aio.read import Reads, Snapshot
from lsmkv.aio.transaction import Transaction, transact
from lsmkv.aio.write_batch import WriteBatch, write
from lsmkv.columns import Rows, Table
from lsmkv.compaction.manual import Progress
from lsmkv.events import Listener
from lsmkv.keyspace import KeyspaceCalls
from lsmkv.mapping import Key
from lsmkv.options import Options
from lsmkv.stats.metrics import Stats
from lsmkv.stats.tables import TableInfo
from lsmkv_ext.nonblocking import try_delete, try_put
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.reader import Reader

if TYPE_CHECKING:
    from lsmkv.option_types import KeyspaceOptions, LiveOptions, OpenOptions

T = TypeVar("T")

THREADS = 4


class Calls(Reads):
    """The calls on one keyspace."""

    _store: KeyspaceCalls

    @property
    def _reader(self) -> Reader:
        return self._store

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._store.options

    @property
    def path(self) -> str:
        """The directory of the database."""
        return self._store.path

    @property
    def closed(self) -> bool:
        """Whether the database is closed."""
        return self._store.closed

    @property
    def readonly(self) -> bool:
        """Whether the database was opened read-only."""
        return self._store.readonly

    # Writing -----------------------------------------------------------------------------------------------

    async def put(
        self,
        key: Key,
        value: Key | BinaryIO,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
        length: int | None = None,
    ) -> None:
        """As `lsmkv.DB.put`. If it is cancelled, the write may happen or not."""
        key = as_bytes(key)
        if length is None:
            value = as_bytes(value)
            if try_put(self._store, key, value, sync=sync, ttl=ttl, expire_at=expire_at):
                if self._pool.gives_way():
                    await asyncio.sleep(0)
                return
        await self._pool.run(self._store.put, key, value, sync=sync, ttl=ttl, expire_at=expire_at, length=length)

    async def delete(self, key: Key, *, sync: bool | None = None) -> None:
        """As `lsmkv.DB.delete`."""
        key = as_bytes(key)
        if not try_delete(self._store, key, sync=sync):
            await self._pool.run(self._store.delete, key, sync=sync)
        elif self._pool.gives_way():
            await asyncio.sleep(0)

    async def delete_range(self, start: Key, stop: Key, *, sync: bool | None = None) -> None:
        """As `lsmkv.DB.delete_range`."""
        batch = self._store.write_batch()
        batch.delete_range(start, stop)
        await write(self._pool, self._store, batch, sync)

    async def write(self, batch: WriteBatch | lsmkv.WriteBatch, *, sync: bool | None = None) -> None:
        """As `lsmkv.DB.write`."""
        plain = batch._batch if isinstance(batch, WriteBatch) else batch
        await write(self._pool, self._store, plain, sync)

    def write_batch(self, *, transaction: bool = True, sync: bool | None = None) -> WriteBatch:
        """As `lsmkv.DB.write_batch`, for `async with`."""
        return WriteBatch(self._pool, self._store, self._store.write_batch(), transaction, sync)

    async def write_arrow(
        self,
        table: Table,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> int:
        """As `lsmkv.DB.write_arrow`."""
        return await self._pool.run(self._store.write_arrow, table, sync=sync, ttl=ttl, expire_at=expire_at)

    async def put_many(
        self,
        keys: Rows,
        values: Rows,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> int:
        """As `lsmkv.DB.put_many`."""
        return await self._pool.run(self._store.put_many, keys, values, sync=sync, ttl=ttl, expire_at=expire_at)

    async def add(self, key: Key, n: int = 1, default: int = 0, *, sync: bool | None = None) -> int:
        """As `lsmkv.DB.add`."""
        return await self._pool.run(self._store.add, as_bytes(key), n, default, sync=sync)

    async def max(self, key: Key, n: int, *, sync: bool | None = None) -> int:
        """As `lsmkv.DB.max`."""
        return await self._pool.run(self._store.max, as_bytes(key), n, sync=sync)

    async def min(self, key: Key, n: int, *, sync: bool | None = None) -> int:
        """As `lsmkv.DB.min`."""
        return await self._pool.run(self._store.min, as_bytes(key), n, sync=sync)

    async def append(self, key: Key, suffix: Key, *, sync: bool | None = None) -> int:
        """As `lsmkv.DB.append`."""
        return await self._pool.run(self._store.append, as_bytes(key), as_bytes(suffix), sync=sync)

    async def compare_and_set(self, key: Key, expected: Key | None, new: Key | None, **options: Any) -> bool:
        """As `lsmkv.DB.compare_and_set`."""
        return await self._pool.run(self._store.compare_and_set, as_bytes(key), expected, new, **options)

    async def touch(self, key: Key, ttl: float | timedelta | None = None, **options: Any) -> bool:
        """As `lsmkv.DB.touch`."""
        return await self._pool.run(self._store.touch, as_bytes(key), ttl, **options)

    async def modify(
        self, key: Key, function: Callable[[bytes | None], Key | None], *, sync: bool | None = None
    ) -> bytes | None:
        """As `lsmkv.DB.modify`. The function is no coroutine; it runs in a thread."""
        return await self._pool.run(self._store.modify, as_bytes(key), function, sync=sync)

    @overload
    async def pop(self, key: Key) -> bytes: ...
    @overload
    async def pop(self, key: Key, default: T, /) -> bytes | T: ...
    async def pop(self, key: Key, *default: Any) -> Any:
        """As `lsmkv.DB.pop`."""
        return await self._pool.run(self._store.pop, as_bytes(key), *default)

    async def popitem(self) -> tuple[bytes, bytes]:
        """As `lsmkv.DB.popitem`."""
        return await self._pool.run(self._store.popitem)

    async def setdefault(self, key: Key, default: Key = b"") -> bytes:
        """As `lsmkv.DB.setdefault`."""
        return await self._pool.run(self._store.setdefault, as_bytes(key), default)

    async def clear(self) -> None:
        """As `lsmkv.DB.clear`."""
        await self._pool.run(self._store.clear)

    async def sync(self) -> None:
        """As `lsmkv.DB.sync`."""
        await self._pool.run(self._store.sync)

    # States ------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """As `lsmkv.DB.snapshot`. It takes no time, so there is nothing to await; `async with` closes it."""
        return Snapshot(self._pool, self._store.snapshot())

    def transaction(self) -> Transaction:
        """As `lsmkv.DB.transaction`, for `async with`."""
        return Transaction(self._pool, self._store.transaction())

    async def transact(self, function: Callable[[Transaction], Awaitable[T]], *, retries: int = 100) -> T:
        """As `lsmkv.DB.transact`, with a coroutine function."""
        return await transact(self.transaction, function, index(retries))

    # Maintenance -------------------------------------------------------------------------------------------

    async def flush(self, wait: bool = True) -> None:
        """As `lsmkv.DB.flush`."""
        await self._pool.run(self._store.flush, wait)

    async def compact_range(
        self,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """As `lsmkv.DB.compact_range`. `progress` is called in the loop's thread.

        A cancellation ends the wait; the work goes on.
        """
        report = None if progress is None else _in_loop(progress)
        await self._pool.run(self._store.compact_range, start, stop, wait=wait, progress=report)

    async def rebuild_filters(self, level: int | None = None) -> int:
        """As `lsmkv.DB.rebuild_filters`."""
        return await self._pool.run(self._store.rebuild_filters, level)

    async def filter_debt(self) -> dict[int, str]:
        """As `lsmkv.DB.filter_debt`."""
        return await self._pool.run(self._store.filter_debt)

    async def ingest(self, paths: Iterable[str | os.PathLike[str]], *, move: bool = False) -> None:
        """As `lsmkv.DB.ingest`."""
        await self._pool.run(self._store.ingest, paths, move=move)

    # Statistics --------------------------------------------------------------------------------------------

    async def approximate_len(self) -> int:
        """As `lsmkv.DB.approximate_len`."""
        return await self._pool.run(self._store.approximate_len)

    async def approximate_size(self, start: Key | None = None, stop: Key | None = None) -> int:
        """As `lsmkv.DB.approximate_size`."""
        return await self._pool.run(self._store.approximate_size, start, stop)

    async def tables(self) -> list[TableInfo]:
        """As `lsmkv.DB.tables`."""
        return await self._pool.run(self._store.tables)

    async def split_points(self, parts: int) -> list[bytes]:
        """As `lsmkv.DB.split_points`."""
        return await self._pool.run(self._store.split_points, parts)

    async def property(self, name: str) -> str | None:
        """As `lsmkv.DB.property`."""
        return await self._pool.run(self._store.property, name)

    async def stats(self) -> Stats:
        """As `lsmkv.DB.stats`."""
        return await self._pool.run(self._store.stats)


def _in_loop(progress: Progress) -> Progress:
    loop = asyncio.get_running_loop()

    def report(done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, done, total)

    return report


class Keyspace(Calls):
    """`lsmkv.Keyspace` for asyncio. `await db.keyspace(name)` returns it."""

    def __init__(self, pool: Pool, keyspace: lsmkv.Keyspace) -> None:
        self._pool = pool
        self._store: lsmkv.Keyspace = keyspace

    @property
    def name(self) -> str:
        """The name of the keyspace."""
        return self._store.name

    async def set_options(self, **changes: Unpack[KeyspaceOptions]) -> None:
        """As `lsmkv.Keyspace.set_options`."""
        await self._pool.run(self._store.set_options, **changes)

    def __repr__(self) -> str:
        return f"<lsmkv.aio.Keyspace {self.name!r} of {self.path!r}{' (closed)' if self.closed else ''}>"


class DB(Calls):
    """`lsmkv.DB` for asyncio. `lsmkv.aio.open` returns it. Any number of tasks, also of several loops, may use it."""

    def __init__(self, pool: Pool, database: lsmkv.DB) -> None:
        self._pool = pool
        self._store: lsmkv.DB = database

    @property
    def database(self) -> lsmkv.DB:
        """The database behind it. Calls on it may wait, and the loop with them."""
        return self._store

    async def keyspace(self, name: str, *, create: bool = True, **options: Unpack[KeyspaceOptions]) -> Keyspace:
        """As `lsmkv.DB.keyspace`."""
        return Keyspace(self._pool, await self._pool.run(self._store.keyspace, name, create=create, **options))

    async def keyspaces(self) -> list[str]:
        """As `lsmkv.DB.keyspaces`."""
        return self._store.keyspaces()

    async def drop_keyspace(self, name: str) -> None:
        """As `lsmkv.DB.drop_keyspace`."""
        await self._pool.run(self._store.drop_keyspace, name)

    async def set_options(self, **changes: Unpack[LiveOptions]) -> None:
        """As `lsmkv.DB.set_options`."""
        await self._pool.run(self._store.set_options, **changes)

    async def checkpoint(self, dest: str | os.PathLike[str]) -> None:
        """As `lsmkv.DB.checkpoint`."""
        await self._pool.run(self._store.checkpoint, dest)

    async def refresh(self) -> bool:
        """As `lsmkv.DB.refresh`."""
        return await self._pool.run(self._store.refresh)

    async def refresh_every(self, seconds: float | None) -> None:
        """As `lsmkv.DB.refresh_every`."""
        await self._pool.run(self._store.refresh_every, seconds)

    def on(self, kind: str, listener: Listener) -> Callable[[], None]:
        """As `lsmkv.DB.on`. Listeners run in a thread of the database, not in the loop."""
        return self._store.on(kind, listener)

    async def reset_stats(self) -> None:
        """As `lsmkv.DB.reset_stats`."""
        await self._pool.run(self._store.reset_stats)

    async def close(self) -> None:
        """Wait for the calls that have begun, and close. Later calls raise `ClosedError`.

        Closing twice is no error. A cancellation ends the wait; the close goes on, and a second call waits for it.
        """
        await self._pool.close(self._store.close)

    async def __aenter__(self) -> DB:
        self._store._check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<lsmkv.aio.DB {self.path!r}{' (closed)' if self.closed else ''}>"


class Opening:
    """What `open` returns: await it, or use it with `async with`."""

    def __init__(self, begin: Callable[[], lsmkv.DB], threads: int) -> None:
        self._begin = begin
        self._threads = threads
        self._db: DB | None = None

    async def _open(self) -> DB:
        pool = Pool(self._threads)
        future = pool.submit(self._begin)
        try:
            return DB(pool, await asyncio.shield(asyncio.wrap_future(future)))
        except BaseException:
            future.cancel()
            await asyncio.shield(pool.close(partial(_discard, future)))
            raise

    def __await__(self) -> Generator[Any, None, DB]:
        return self._open().__await__()

    async def __aenter__(self) -> DB:
        self._db = await self._open()
        return self._db

    async def __aexit__(self, *exc: object) -> None:
        if self._db is not None:
            await self._db.close()


def _discard(opened: Future[lsmkv.DB]) -> None:
    """Closes a database whose opener was cancelled."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def open(
    path: str | os.PathLike[str],
    flag: str = "c",
    *,
    threads: int = THREADS,
    options: Options | Mapping[str, Any] | None = None,
    **more: Unpack[OpenOptions],
) -> Opening:
    """Open a database as `lsmkv.open` does. Await it, or use it with `async with`.

    Calls that may wait run in up to `threads` threads.
    """
    return Opening(partial(lsmkv.open, path, flag, options=options, **more), threads)

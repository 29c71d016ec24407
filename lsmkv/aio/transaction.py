"""Transactions, whose reads and commits are awaitable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar, overload

import lsmkv
from lsmkv.aio.pool import OneAtATime, Pool
from lsmkv.aio.read import Scan
from lsmkv.aio.write_batch import store_of
from lsmkv.errors import ClosedError, ConflictError
from lsmkv.mapping import Key
from lsmkv.transaction import FIRST_WAIT, LONGEST_WAIT
from lsmkv_ext.nonblocking import reads_at_once
from lsmkv_ext.port.bytes_like import as_bytes

T = TypeVar("T")


class Transaction:
    """`lsmkv.Transaction` for asyncio. `db.transaction()` returns it.

    As a context manager it commits at the end of the block, and rolls back if the block raises or is cancelled. It runs
    one call at a time; others wait.
    """

    def __init__(self, pool: Pool, transaction: lsmkv.Transaction) -> None:
        self._calls = OneAtATime(pool)
        self._transaction = transaction

    @overload
    async def get(self, key: Key, default: None = None, *, keyspace: Any = None) -> bytes | None: ...
    @overload
    async def get(self, key: Key, default: T, *, keyspace: Any = None) -> bytes | T: ...
    async def get(self, key: Key, default: Any = None, *, keyspace: Any = None) -> Any:
        """As `lsmkv.Transaction.get`."""
        key, store = as_bytes(key), store_of(keyspace)
        if store is None and self._calls.begin():
            try:
                # Its own writes are in memory; so is what this finds.
                if reads_at_once(self._transaction, key):
                    return self._transaction.get(key, default)
            finally:
                self._calls.end()
        return await self._calls.run(self._transaction.get, key, default, keyspace=store)

    async def multi_get(self, keys: Iterable[Key], default: Any = None, *, keyspace: Any = None) -> list[Any]:
        """As `lsmkv.Transaction.multi_get`."""
        wanted = [as_bytes(key) for key in keys]
        return await self._calls.run(self._transaction.multi_get, wanted, default, keyspace=store_of(keyspace))

    async def contains(self, key: Key) -> bool:
        """Return whether the key is there, as `key in tx` does."""
        return await self._calls.run(self._transaction.__contains__, as_bytes(key))

    async def ttl(self, key: Key, *, keyspace: Any = None) -> float | None:
        """As `lsmkv.Transaction.ttl`."""
        return await self._calls.run(self._transaction.ttl, as_bytes(key), keyspace=store_of(keyspace))

    def items(self, *bounds: Key | None, keyspace: Any = None, **options: Any) -> AsyncIterator[tuple[bytes, bytes]]:
        """As `lsmkv.Transaction.items`, for `async for`. What a thread has fetched ahead counts as read."""
        return self._scan(self._transaction.items, bounds, store_of(keyspace), options)

    def keys(self, *bounds: Key | None, keyspace: Any = None, **options: Any) -> AsyncIterator[bytes]:
        """As `lsmkv.Transaction.keys`, for `async for`. What a thread has fetched ahead counts as read."""
        return self._scan(self._transaction.keys, bounds, store_of(keyspace), options)

    def values(self, *bounds: Key | None, keyspace: Any = None, **options: Any) -> AsyncIterator[bytes]:
        """As `lsmkv.Transaction.values`, for `async for`. What a thread has fetched ahead counts as read."""
        return self._scan(self._transaction.values, bounds, store_of(keyspace), options)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()

    def _scan(self, of: Callable[..., Any], bounds: Any, keyspace: Any, options: dict[str, Any]) -> Scan[Any]:
        return Scan(self._calls, lambda: of(*bounds, keyspace=keyspace, **options))

    async def put(self, key: Key, value: Key, *, keyspace: Any = None, **expiry: Any) -> None:
        """As `lsmkv.Transaction.put`."""
        await self._write(self._transaction.put, as_bytes(key), as_bytes(value), keyspace=store_of(keyspace), **expiry)

    async def delete(self, key: Key, *, keyspace: Any = None) -> None:
        """As `lsmkv.Transaction.delete`."""
        await self._write(self._transaction.delete, as_bytes(key), keyspace=store_of(keyspace))

    async def delete_range(self, start: Key, stop: Key, *, keyspace: Any = None) -> None:
        """As `lsmkv.Transaction.delete_range`."""
        bounds = as_bytes(start), as_bytes(stop)
        await self._write(self._transaction.delete_range, *bounds, keyspace=store_of(keyspace))

    async def _write(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """A write goes to memory, so it waits for nothing but a call before it."""
        if not self._calls.begin():
            return await self._calls.run(call, *args, **kwargs)
        try:
            call(*args, **kwargs)
        finally:
            self._calls.end()

    async def commit(self, *, sync: bool | None = None) -> None:
        """As `lsmkv.Transaction.commit`. If it is cancelled, the commit may happen or not."""
        await self._calls.run(self._transaction.commit, sync=sync)

    async def rollback(self) -> None:
        """As `lsmkv.Transaction.rollback`."""
        await self._calls.run(self._transaction.rollback)

    @property
    def sequence(self) -> int:
        """As `lsmkv.Transaction.sequence`."""
        return self._transaction.sequence

    @property
    def committed(self) -> int:
        """As `lsmkv.Transaction.committed`."""
        return self._transaction.committed

    @property
    def closed(self) -> bool:
        """As `lsmkv.Transaction.closed`."""
        return self._transaction.closed

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self.closed:
            return
        if kind is None:
            try:
                return await self.commit()
            except asyncio.CancelledError:
                await self._end()  # the commit may never begin
                raise
        await self._end()

    async def _end(self) -> None:
        # A cancelled task may be cancelled again; the rollback happens anyway. A close has ended the transaction.
        with suppress(ClosedError):
            await asyncio.shield(self.rollback())

    def __repr__(self) -> str:
        return f"<lsmkv.aio.Transaction at {self.sequence}{' (ended)' if self.closed else ''}>"


async def transact(
    begin: Callable[[], Transaction], function: Callable[[Transaction], Awaitable[T]], retries: int
) -> T:
    """Runs `function` in a transaction, again after a conflict."""
    wait = FIRST_WAIT
    for _ in range(retries):
        try:
            async with begin() as tx:
                return await function(tx)
        except ConflictError:
            # At random, or two transactions that met would meet again.
            await asyncio.sleep(random.random() * wait)
            wait = min(wait * 2, LONGEST_WAIT)
    async with begin() as tx:
        return await function(tx)

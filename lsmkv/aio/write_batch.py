"""A batch of writes. Filling it takes memory alone; writing it is awaitable."""

from __future__ import annotations

import asyncio
from typing import Any

import lsmkv
from lsmkv.aio.pool import Pool
from lsmkv.mapping import Key
from lsmkv_ext.nonblocking import try_write
from lsmkv_ext.store import Store


class WriteBatch:
    """`lsmkv.WriteBatch` for asyncio. `db.write_batch()` returns it.

    As a context manager it writes at the end of the block, with `transaction` only if the block did not raise.
    """

    def __init__(self, pool: Pool, store: Store, batch: lsmkv.WriteBatch, transaction: bool, sync: bool | None) -> None:
        self._pool = pool
        self._store = store
        self._batch = batch
        self._transaction = transaction
        self._sync = sync

    def put(self, key: Key, value: Key, *, keyspace: Any = None, **expiry: Any) -> None:
        """As `lsmkv.WriteBatch.put`."""
        self._batch.put(key, value, keyspace=store_of(keyspace), **expiry)

    def delete(self, key: Key, *, keyspace: Any = None) -> None:
        """As `lsmkv.WriteBatch.delete`."""
        self._batch.delete(key, keyspace=store_of(keyspace))

    def delete_range(self, start: Key, stop: Key, *, keyspace: Any = None) -> None:
        """As `lsmkv.WriteBatch.delete_range`."""
        self._batch.delete_range(start, stop, keyspace=store_of(keyspace))

    def clear(self) -> None:
        """As `lsmkv.WriteBatch.clear`."""
        self._batch.clear()

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def size_bytes(self) -> int:
        """As `lsmkv.WriteBatch.size_bytes`."""
        return self._batch.size_bytes

    async def write(self, *, sync: bool | None = None) -> None:
        """As `lsmkv.WriteBatch.write`."""
        await write(self._pool, self._store, self._batch, self._sync if sync is None else sync)

    async def __aenter__(self) -> WriteBatch:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None or not self._transaction:
            await self.write()

    def __repr__(self) -> str:
        return f"<lsmkv.aio.WriteBatch of {len(self)} operations>"


def store_of(keyspace: Any) -> Any:
    """The store of a keyspace of `lsmkv.aio`."""
    return getattr(keyspace, "_store", keyspace)


async def write(pool: Pool, store: Store, batch: lsmkv.WriteBatch, sync: bool | None) -> None:
    if not try_write(store, batch, sync=sync):
        await pool.run(store.write, batch, sync=sync)
    else:
        await asyncio.sleep(0)

"""A database whose keys are spread over several keyspaces, with the calls of a plain one.

Batches, range deletes and scans span the keyspaces. What holds for the keys of one keyspace (the prefix of the writes
after a power cut, batches that are whole) then has to hold across them.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterator
from typing import Any, Self

import lsmkv


def open_spread(folder: Any, flag: str = "c", *, keyspaces: int = 0, **options: Any) -> Any:
    """`keyspaces`: over so many besides the default one; 0 opens a plain database."""
    db = lsmkv.open(folder, flag, **options)
    try:
        return SpreadDB(db, keyspaces) if keyspaces else db
    except lsmkv.Error:
        db.close()
        raise


class SpreadDB:
    def __init__(self, db: lsmkv.DB, keyspaces: int) -> None:
        self.db = db
        self._spaces = [db, *(db.keyspace(f"k{number}") for number in range(1, keyspaces + 1))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def __enter__(self) -> SpreadDB:
        return self

    def __exit__(self, *exc: object) -> None:
        self.db.close()

    def home(self, key: bytes) -> Any:
        return self._spaces[zlib.crc32(key) % len(self._spaces)]

    def get(self, key: bytes, default: Any = None) -> Any:
        return self.home(key).get(key, default)

    def multi_get(self, keys: list[bytes]) -> list[Any]:
        return [self.get(key) for key in keys]

    def __contains__(self, key: bytes) -> bool:
        return key in self.home(key)

    def __len__(self) -> int:
        return sum(map(len, self._spaces))

    def items(
        self, start: bytes | None = None, stop: bytes | None = None, **bounds: Any
    ) -> Iterator[tuple[bytes, bytes]]:
        with self.snapshot() as snapshot:
            yield from snapshot.items(start, stop, **bounds)

    def snapshot(self) -> SpreadSnapshot:
        return SpreadSnapshot(self, self.db.snapshot())

    def ttl(self, key: bytes) -> float | None:
        return self.home(key).ttl(key)

    def put(self, key: bytes, value: bytes, **options: Any) -> None:
        self.home(key).put(key, value, **options)

    def delete(self, key: bytes, *, sync: bool | None = None) -> None:
        self.home(key).delete(key, sync=sync)

    def delete_range(self, start: bytes, stop: bytes, *, sync: bool | None = None) -> None:
        with self.write_batch(sync=sync) as batch:
            batch.delete_range(start, stop)

    def clear(self) -> None:
        with self.write_batch() as batch:
            batch.delete_range(b"", b"\xff" * 1000)

    def write_batch(self, *, sync: bool | None = None) -> SpreadBatch:
        return SpreadBatch(self, self.db.write_batch(sync=sync))

    def transaction(self) -> SpreadTransaction:
        return SpreadTransaction(self, self.db.transaction())

    def compact_range(self, start: bytes | None = None, stop: bytes | None = None, *, wait: bool = True) -> None:
        for space in self._spaces:
            space.compact_range(start, stop, wait=wait)

    def churn(self) -> None:
        """Creates a keyspace, writes to it, and drops it."""
        passing = self.db.keyspace("passing")
        for number in range(20):
            passing.put(b"%d" % number, b"x" * 50)
        self.db.drop_keyspace("passing")

    @property
    def spaces(self) -> list[Any]:
        return self._spaces


class SpreadBatch:
    def __init__(self, spread: SpreadDB, batch: Any) -> None:
        self._spread = spread
        self._batch = batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._batch.__exit__(*exc)

    def put(self, key: bytes, value: bytes, **options: Any) -> None:
        self._batch.put(key, value, keyspace=self._spread.home(key), **options)

    def delete(self, key: bytes) -> None:
        self._batch.delete(key, keyspace=self._spread.home(key))

    def delete_range(self, start: bytes, stop: bytes) -> None:
        for space in self._spread.spaces:
            self._batch.delete_range(start, stop, keyspace=space)


class SpreadTransaction(SpreadBatch):
    def get(self, key: bytes) -> bytes | None:
        return self._batch.get(key, keyspace=self._spread.home(key))

    def multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def commit(self, *, sync: bool | None = None) -> None:
        self._batch.commit(sync=sync)


class SpreadSnapshot:
    def __init__(self, spread: SpreadDB, snapshot: Any) -> None:
        self._spread = spread
        self._snapshot = snapshot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        self._snapshot.close()

    def get(self, key: bytes) -> bytes | None:
        return self._snapshot.keyspace(self._spread.home(key)).get(key)

    def items(
        self, start: bytes | None = None, stop: bytes | None = None, **bounds: Any
    ) -> Iterator[tuple[bytes, bytes]]:
        views = [self._snapshot.keyspace(space).items(start, stop, **bounds) for space in self._spread.spaces]
        return heapq.merge(*views, reverse=bounds.get("reverse", False))

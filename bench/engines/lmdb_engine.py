"""LMDB through py-lmdb with a writable map: its fastest mode whose data survives kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import Engine, Pair, Reader

MAP_SIZE = 1 << 38  # address space only


class LmdbEngine(Engine):
    name = "lmdb"
    package = "lmdb"
    max_key = 511

    def open(self) -> None:
        import lmdb

        sync = self.settings.sync
        self.env = lmdb.open(
            self.path,
            map_size=MAP_SIZE,
            sync=sync,
            metasync=sync,
            writemap=True,
            map_async=not sync,
            readahead=False,
            max_spare_txns=16,
            max_readers=64,
        )
        begin = self.env.begin

        def get(key: bytes) -> bytes | None:
            with begin() as txn:
                return txn.get(key)  # type: ignore[no-any-return]

        def put(key: bytes, value: bytes) -> None:
            with begin(write=True) as txn:
                txn.put(key, value)

        def delete(key: bytes) -> None:
            with begin(write=True) as txn:
                txn.delete(key)

        self.get, self.put, self.delete = get, put, delete

    def close(self) -> None:
        self.get = self.put = self.delete = None  # type: ignore[assignment]
        self.env.close()

    def mapping(self) -> dict[str, Any]:
        sync = "synced per transaction" if self.settings.sync else "not synced (sync=False, writemap, map_async)"
        return {
            "write buffers": "none",
            "cache": "the kernel's page cache (not limited by the budget)",
            "filter": "none",
            "blocks": "4 KiB B+tree pages, no compression",
            "log": f"none: copy on write, one transaction per write or batch, {sync}",
            "background jobs": 0,
        }

    def multi_get(self, keys: list[bytes]) -> list[Any]:
        with self.env.begin() as txn:
            return list(map(txn.get, keys))

    def write_batch(self, pairs: list[Pair]) -> None:
        with self.env.begin(write=True) as txn:
            txn.cursor().putmulti(pairs)

    def scan(self, key: bytes) -> Iterator[Pair]:
        cursor = self.env.begin().cursor()
        return cursor.iternext() if cursor.set_range(key) else iter(())

    def reader(self) -> Reader:
        return TransactionReader(self.env)

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        cursor = self.env.begin().cursor()
        if reverse:
            return cursor.iterprev() if cursor.last() else iter(())
        return cursor.iternext() if cursor.first() else iter(())

    def new_iterator(self, _: object = None) -> Any:
        return self.env.begin().cursor().iternext()

    def flush(self) -> None:
        self.env.sync(True)

    sync = flush

    def stats_text(self, name: str) -> str:
        if name != "stats":
            return super().stats_text(name)
        return "\n".join(f"{key}: {value}" for key, value in {**self.env.stat(), **self.env.info()}.items())


class TransactionReader(Reader):
    """All reads share one transaction and one cursor."""

    def __init__(self, env: Any) -> None:
        txn = env.begin()
        cursor = txn.cursor()
        set_range, iternext = cursor.set_range, cursor.iternext

        def scan(key: bytes) -> Iterator[Pair]:
            return iternext() if set_range(key) else iter(())

        super().__init__(txn.get, scan)
        self._txn = txn

    def close(self) -> None:
        self.get = self.scan = None  # type: ignore[assignment]
        self._txn.abort()

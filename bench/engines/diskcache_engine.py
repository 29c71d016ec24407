"""diskcache: a cache in SQLite and files. Its workloads are those of caches; as a store it has no order."""

from __future__ import annotations

from typing import Any

from .base import Engine, Pair


class DiskcacheEngine(Engine):
    name = "diskcache"
    package = "diskcache"
    ordered = False

    def open(self) -> None:
        self.db = self.open_cache(self.path, None)
        self.get, self.put, self.delete = self.db.get, self.db.set, self.db.delete

    def open_cache(self, path: str, size_limit: int | None) -> Any:
        import diskcache  # type: ignore[import-untyped]

        # Without a limit its default policy, with which a get writes nothing.
        policy = {"eviction_policy": "least-recently-used"} if size_limit else {}
        return diskcache.Cache(path, **{"size_limit": size_limit or 1 << 40, **policy, **self.extra})

    def close(self) -> None:
        self.get = self.put = self.delete = None  # type: ignore[assignment]
        self.db.close()

    def write_batch(self, pairs: list[Pair]) -> None:
        with self.db.transact():
            for key, value in pairs:
                self.db.set(key, value)

    def mapping(self) -> dict[str, Any]:
        return {
            "write buffers": "none",
            "cache": "SQLite's, 8192 pages of 4 KiB, and 64 MiB mapped",
            "filter": "none",
            "blocks": "4 KiB B-tree pages, files for values of 32 KiB and more, no compression",
            "log": "SQLite's WAL, synced at checkpoints (synchronous=NORMAL)",
            "background jobs": 0,
            **self.extra,
        }

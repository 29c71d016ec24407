"""LevelDB through plyvel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..units import format_size
from .base import Pair, PlyvelStyle


class LevelEngine(PlyvelStyle):
    name = "leveldb"
    package = "plyvel"

    def open(self) -> None:
        import plyvel

        s = self.settings
        self.db = plyvel.DB(
            self.path,
            create_if_missing=True,
            write_buffer_size=s.write_buffer_size,
            lru_cache_size=s.peer_cache_size,
            block_size=s.block_size,
            bloom_filter_bits=int(s.peer_bits_per_key),
            compression=None if s.compression == "none" else "snappy",
        )
        self.get = self.db.get
        self.put = partial(self.db.put, sync=True) if s.sync else self.db.put
        self.delete = partial(self.db.delete, sync=True) if s.sync else self.db.delete

    def close(self) -> None:
        self.get = self.put = self.delete = None  # type: ignore[assignment]
        self.db.close()

    def mapping(self) -> dict[str, Any]:
        s = self.settings
        compression = "none" if s.compression == "none" else "snappy (it has no lz4)"
        log = "on, synced per write" if s.sync else "on, not synced"
        return {
            "write buffers": f"2 x {format_size(s.write_buffer_size)}",
            "cache": f"LRU block cache {format_size(s.peer_cache_size)}",
            "filter": f"Bloom {int(s.peer_bits_per_key)} bits/key",
            "blocks": f"{format_size(s.block_size)}, {compression}",
            "log": log + (" (cannot be turned off)" if s.disable_wal else ""),
            "background jobs": 1,
        }

    def write_batch(self, pairs: list[Pair]) -> None:
        with self.db.write_batch(sync=self.settings.sync) as batch:
            put = batch.put
            for key, value in pairs:
                put(key, value)

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        return self.db.iterator(reverse=reverse)  # type: ignore[no-any-return]

    def flush(self) -> None:
        # plyvel has no flush; compacting an empty range flushes the memtable.
        self.db.compact_range(start=b"\xff\xff", stop=b"\xff\xff")

    def stats_text(self, name: str) -> str:
        if name not in ("stats", "sstables"):
            return super().stats_text(name)
        value = self.db.get_property(f"leveldb.{name}".encode())
        return (value or b"").decode()

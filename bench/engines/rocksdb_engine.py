"""RocksDB through rocksdict in raw mode: bytes without pickling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..settings import Settings
from ..units import format_size
from .base import Engine, Pair, describe_filter, describe_log


class RocksEngine(Engine):
    name = "rocksdb"
    package = "rocksdict"

    def open(self) -> None:
        import rocksdict

        self.lib = rocksdict
        self.options = self._options(self.settings)
        self.db = rocksdict.Rdict(self.path, options=self.options)
        writes = rocksdict.WriteOptions()
        writes.sync = self.settings.sync
        writes.disable_wal = self.settings.disable_wal
        self.db.set_write_options(writes)
        self.get = self.db.get
        self.put = self.db.put
        self.delete = self.db.delete
        self.multi_get = self.db.get  # type: ignore[method-assign]

    def _options(self, s: Settings) -> Any:
        lib = self.lib
        options = lib.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(getattr(lib.DBCompressionType, s.compression)())
        options.set_write_buffer_size(s.write_buffer_size)
        options.set_max_write_buffer_number(s.max_write_buffers)
        options.set_max_background_jobs(2)
        options.set_optimize_filters_for_hits(bool(s.optimize_filters_for_hits))
        table = lib.BlockBasedOptions()
        table.set_block_cache(lib.Cache(s.peer_cache_size))
        table.set_block_size(s.block_size)
        if s.peer_bits_per_key > 0:
            table.set_bloom_filter(s.peer_bits_per_key, False)
        table.set_format_version(5)
        options.set_block_based_table_factory(table)
        return options

    def close(self) -> None:
        self.get = self.put = self.delete = self.multi_get = None  # type: ignore[assignment,method-assign]
        self.db.close()

    def mapping(self) -> dict[str, Any]:
        s = self.settings
        return {
            "write buffers": f"{s.max_write_buffers} x {format_size(s.write_buffer_size)}",
            "cache": f"LRU block cache {format_size(s.peer_cache_size)}",
            "filter": "full " + describe_filter(s, s.peer_bits_per_key),
            "blocks": f"{format_size(s.block_size)}, {s.compression}",
            "log": describe_log(s),
            "background jobs": 2,
        }

    def write_batch(self, pairs: list[Pair]) -> None:
        batch = self.lib.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in pairs:
            put(key, value)
        self.db.write(batch)

    def scan(self, key: bytes) -> Iterator[Pair]:
        return self.db.items(from_key=key)  # type: ignore[no-any-return]

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        return iter(self.db.items(backwards=reverse))

    def new_iterator(self, _: object = None) -> Any:
        return self.db.iter()

    def flush(self) -> None:
        self.db.flush(True)

    def sync(self) -> None:
        self.db.flush_wal(True)

    def compact(self) -> None:
        options = self.lib.CompactOptions()
        options.set_bottommost_level_compaction(self.lib.BottommostLevelCompaction.force())
        self.db.compact_range(None, None, options)

    def stats_text(self, name: str) -> str:
        if name == "filterstats":
            return super().stats_text(name)
        return str(self.db.property_value(f"rocksdb.{name}") or "")


class RocksBlobEngine(RocksEngine):
    """Large values are in blob files, with garbage collection."""

    name = "rocksdb-blob"

    def _options(self, s: Settings) -> Any:
        options = super()._options(s)
        options.set_enable_blob_files(True)
        options.set_min_blob_size(s.large_value_threshold or 0)
        options.set_blob_compression_type(getattr(self.lib.DBCompressionType, s.compression)())
        options.set_enable_blob_gc(True)
        return options

    def mapping(self) -> dict[str, Any]:
        threshold = format_size(self.settings.large_value_threshold or 0)
        return {**super().mapping(), "large values": f"from {threshold} on in blob files, blob GC on"}

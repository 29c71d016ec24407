"""lsmkv through its public API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..report.db_stats import engine_stats, filter_stats, level_stats
from ..settings import Settings
from ..units import format_size
from .base import CacheCalls, NotInstalled, Pair, PlyvelStyle, describe_filter, describe_log


class LsmkvEngine(PlyvelStyle):
    name = "lsmkv"
    package = "lsmkv"
    max_key = 65535

    @classmethod
    def version(cls) -> str:
        import lsmkv

        if not hasattr(lsmkv, "open"):
            raise NotInstalled("lsmkv: this build has no lsmkv.open")
        return super().version()

    def open(self) -> None:
        import lsmkv

        self.lib = lsmkv
        self.database = lsmkv.open(self.path, **self._options(self.settings))
        name = self.settings.keyspace
        self.db = self.database.keyspace(name) if name else self.database
        self.get = self.db.get
        self.put = self.db.put
        self.delete = self.db.delete
        self.multi_get = self.db.multi_get  # type: ignore[method-assign]

    def _options(self, s: Settings) -> dict[str, Any]:
        options: dict[str, Any] = {
            "write_buffer_size": s.write_buffer_size,
            "max_write_buffers": s.max_write_buffers,
            "block_cache_size": s.cache_size,
            "block_size": s.block_size,
            "compression": None if s.compression == "none" else s.compression,
            "bits_per_key": s.bits_per_key,
            "optimize_filters_for_hits": s.optimize_filters_for_hits,
            "sync": s.sync,
        }
        if s.memory is not None:
            del options["write_buffer_size"], options["block_cache_size"]
            options["memory"] = s.memory
        if s.large_value_threshold is not None:
            options["large_value_threshold"] = s.large_value_threshold
            options["large_value_compression"] = options["compression"]
        if s.disable_wal:
            options["wal"] = None
        return {**options, **self.extra}

    def close(self) -> None:
        self.get = self.put = self.delete = self.multi_get = None  # type: ignore[assignment,method-assign]
        self.database.close()

    def mapping(self) -> dict[str, Any]:
        s = self.settings
        buffer = format_size(s.write_buffer_size)
        common = {
            "write buffers": f"{s.max_write_buffers} x {buffer}",
            "cache": f"block cache {format_size(s.cache_size)}, and an idle write buffer of {buffer}",
            "filter": "blocked " + describe_filter(s, s.bits_per_key),
            "blocks": f"{format_size(s.block_size)}, {s.compression}",
            "log": describe_log(s),
            "background jobs": 2,
            **({"keyspace": s.keyspace} if s.keyspace else {}),
        }
        if s.large_value_threshold is not None:
            common["large values"] = f"from {format_size(s.large_value_threshold)} on in value logs"
        return {**common, **self.extra}

    def write_batch(self, pairs: list[Pair]) -> None:
        with self.db.write_batch() as batch:
            put = batch.put
            for key, value in pairs:
                put(key, value)

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        return iter(self.db.items(reverse=reverse))

    def flush(self) -> None:
        self.db.flush()

    def sync(self) -> None:
        self.database.sync()

    def open_cache(self, path: str, size_limit: int | None) -> CacheCalls:
        return self.lib.Cache(path, size_limit=size_limit or 1 << 40)  # type: ignore[no-any-return]

    def stats_text(self, name: str) -> str:
        if name == "sstables":
            return str(self.db.property("lsmkv.sstables") or "")
        formats = {"stats": engine_stats, "levelstats": level_stats, "filterstats": filter_stats}
        return formats[name](self.db.stats())

    def bloom(self, keys: int) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        import lsmkv

        bloom = lsmkv.BlockedBloom(keys, 0.0096)
        return bloom.add, bloom.__contains__


class BeforeEngine(LsmkvEngine):
    """Another build of lsmkv. The runner starts its worker with that checkout in PYTHONPATH."""

    name = "before"

"""The settings of a run. The runner sends them to the worker processes as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from .flags import ALIASES, parse_flag

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The flags of a run, under db_bench's names. Sizes are in bytes; None means `num` or no limit."""

    benchmarks: str = "fillseq,fillrandom,overwrite,readrandom,readmissing,readhot,readseq,readreverse,seekrandom"
    engines: tuple[str, ...] = ("lsmkv", "rocksdb", "leveldb", "lmdb", "dict")
    db: str | None = None
    use_existing_db: bool = False
    before: str | None = None
    runs: int = 1
    num: int = 1_000_000
    reads: int | None = None
    writes: int | None = None
    duration: float = 0.0
    threads: int = 1
    key_size: int = 16
    value_size: int = 100
    value_size_distribution: str = "fixed"
    value_size_min: int = 100
    value_size_max: int = 102400
    compression_ratio: float = 0.5
    values: str = "text"
    compression: str = "lz4"
    large_value_threshold: int | None = None
    batch_size: int | None = None
    seek_nexts: int = 0
    cache_size: int = 64 * MIB
    bits_per_key: float | str = 10.0
    optimize_filters_for_hits: bool | str = False
    block_size: int = 4096
    write_buffer_size: int = 64 * MIB
    max_write_buffers: int = 3
    memory_budget: int | None = None
    memory: int | None = None
    sync: bool = False
    final_sync: bool = False
    disable_wal: bool = False
    keyspace: str = ""
    seed: int = 20240601
    distribution: str = "uniform"
    rate: int = 0
    readwritepercent: int = 90
    histogram: bool = False
    latency: bool = True
    settle: bool = True
    check_every: int = 64
    report_interval_seconds: float = 0.5
    engine_options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def resolved(self) -> Settings:
        """Validate. With a memory budget, the block cache gets what two write buffers leave."""
        self._check()
        if self.memory is not None:
            return self._split()
        if self.memory_budget is None:
            return self
        buffers = self.write_buffer_size * 2
        if buffers >= self.memory_budget:
            raise ValueError(
                f"memory_budget {self.memory_budget} leaves no block cache beside two write buffers"
                f" of {self.write_buffer_size}; lower write_buffer_size"
            )
        return replace(self, cache_size=self.memory_budget - buffers)

    def _split(self) -> Settings:
        """The peers get the sizes into which lsmkv splits `memory`."""
        if self.memory is None or self.memory_budget is not None:
            raise ValueError("memory and memory_budget exclude each other")
        buffers = self.max_write_buffers + 1
        buffer = self.memory // 2 // buffers
        return replace(self, write_buffer_size=buffer, cache_size=self.memory * 7 // 8 - buffer * buffers)

    def _check(self) -> None:
        for name, minimum in MINIMUM.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name} must be at least {minimum}, not {value}")
        for name in ("duration", "report_interval_seconds"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a number of seconds, not {getattr(self, name)}")
        if not self.engines:
            raise ValueError("no engines")
        if len(set(self.engines)) < len(self.engines):
            raise ValueError(f"duplicate engine: {', '.join(self.engines)}")
        if not (self.bits_per_key == "auto" or self.peer_bits_per_key >= 0):
            raise ValueError(f"bits_per_key must be at least 0, not {self.bits_per_key}")
        if self.value_size_distribution in ("uniform", "normal") and self.value_size_min > self.value_size_max:
            raise ValueError(f"value_size_min {self.value_size_min} is above value_size_max {self.value_size_max}")
        if self.sync and self.disable_wal:
            raise ValueError("sync needs the log, which disable_wal turns off")
        if self.compression not in ("lz4", "zstd", "none"):
            raise ValueError(f"compression must be lz4, zstd or none, not {self.compression!r}")
        if self.values not in ("text", "json"):
            raise ValueError(f"values must be text or json, not {self.values!r}")
        if not 0 < self.compression_ratio <= 1:
            raise ValueError(f"compression_ratio must be above 0 and at most 1, not {self.compression_ratio}")
        if self.readwritepercent > 100:
            raise ValueError(f"readwritepercent must be at most 100, not {self.readwritepercent}")
        if self.num > 10**self.key_size:
            raise ValueError(f"key_size {self.key_size} has too few digits for {self.num} keys")

    @property
    def peer_cache_size(self) -> int:
        """A peer's block cache. lsmkv's cache borrows an idle write buffer, so peers get that much more."""
        return self.cache_size + self.write_buffer_size

    @property
    def peer_bits_per_key(self) -> float:
        """A peer's filter size; "auto" spreads 10 bits per key."""
        return 10.0 if isinstance(self.bits_per_key, str) else self.bits_per_key

    def with_flags(self, changes: dict[str, str]) -> Settings:
        """A copy with some fields changed, given as text as in `fillsync:threads=8`."""
        known = {f.name for f in fields(self)}
        typed: dict[str, Any] = {}
        for name, text in changes.items():
            name = ALIASES.get(name.replace("-", "_"), name.replace("-", "_"))
            if name not in known or name in NOT_PER_STEP:
                raise ValueError(f"{name!r} cannot be set for a single benchmark")
            typed[name] = parse_flag(name, text)
        return replace(self, **typed)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Settings:
        return cls(**{**data, "engines": tuple(data["engines"])})


NOT_PER_STEP = {
    "benchmarks",
    "engines",
    "db",
    "use_existing_db",
    "runs",
    "engine_options",
    "keyspace",
    "num",
    "key_size",
    "seed",
}
MINIMUM = {
    **dict.fromkeys(("runs", "num", "reads", "writes", "threads", "key_size", "batch_size"), 1),
    **dict.fromkeys(("block_size", "write_buffer_size", "max_write_buffers"), 1),
    "large_value_threshold": 64,
    "memory": 64 << 10,
    **dict.fromkeys(("duration", "value_size", "value_size_min", "value_size_max", "seek_nexts", "cache_size"), 0),
    **dict.fromkeys(("seed", "rate", "readwritepercent", "check_every", "report_interval_seconds"), 0),
}

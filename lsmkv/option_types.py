"""The options as keywords, for type checkers. Wider than the fields of `Options`, which checks and converts them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, TypedDict

Codec = Literal["lz4", "zstd"] | None
FilterKind = Literal["bloom", "fuse", "auto"]


class KeyspaceOptions(TypedDict, total=False):
    """Options that a keyspace may have of its own."""

    block_size: int
    compression: Codec | Sequence[Codec]
    bits_per_key: float | Sequence[float] | Literal["auto"]
    filter: FilterKind | Sequence[FilterKind]
    filter_memory: int | None
    target_fpr: float | None
    optimize_filters_for_hits: bool | Literal["auto"]
    prefix_extractor: int | bytes | Sequence[int] | None
    default_ttl: float | timedelta | None
    large_value_threshold: int | None
    large_value_compression: Codec
    verify_filters: bool
    filter_debt_ratio: float | None
    filter_shadow_ratio: float
    target_file_size: int
    level_size_ratio: float
    l0_compaction_trigger: int
    l0_slowdown_trigger: int
    l0_stop_trigger: int


class LiveOptions(KeyspaceOptions, total=False):
    """Options that can be changed on an open database."""

    value_gc_ratio: float
    memory: int | None
    write_buffer_size: int
    max_write_buffers: int
    block_cache_size: int
    row_cache_size: int | None
    sync_interval_ms: int


class OpenOptions(LiveOptions, total=False):
    """All options."""

    cache_index_and_filter_blocks: bool
    max_background_jobs: int
    max_open_files: int | None
    wal: Literal["mmap", "write"] | None
    sync: bool
    recovery: Literal["strict", "salvage"]
    stats_export: bool

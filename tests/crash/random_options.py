"""Options drawn at random. Buffers and files are small, so that a few hundred writes rotate, flush and compact."""

from __future__ import annotations

import random
from typing import Any

from lsmkv.options import LIVE
from lsmkv_ext.filter.fuse import set_min_keys

# Small tables get fuse filters too.
set_min_keys(10)

# The first choice is drawn most often.
CHOICES: dict[str, list[Any]] = {
    "wal": ["mmap", "write"],
    "write_buffer_size": [8 << 10, 4 << 10, 16 << 10, 64 << 10],
    "max_write_buffers": [2, 3, 6],
    "block_cache_size": [256 << 10, 0, 16 << 10],
    "row_cache_size": [None, 0, 4 << 10],
    "memory": [None, 1 << 20],
    "block_size": [1024, 256, 16384],
    "large_value_threshold": [None, 64, 200],
    "large_value_compression": [None, "lz4", "zstd"],
    "compression": ["lz4", None, [None, "lz4"], "zstd", ["lz4", "zstd"]],
    "bits_per_key": [10, 0, 2, [14, 10, 4], "auto"],
    "filter": ["bloom", "fuse", "auto", ["bloom", "fuse"]],
    "optimize_filters_for_hits": [False, True, "auto"],
    "prefix_extractor": [None, 2, b"k", b"/", (1, 3), (2, 4, 6, 8)],
    "verify_filters": [True, False],
    "filter_debt_ratio": [None, 0.1],
    "filter_shadow_ratio": [0.0, 1.0],
    "cache_index_and_filter_blocks": [False, True],
    "target_file_size": [4 << 10, 16 << 10, 64 << 10],
    "level_size_ratio": [2, 4, 10],
    "l0_compaction_trigger": [2, 1, 4, 12],
    "max_background_jobs": [2, 1, 4],
    "max_open_files": [None, 8],
    "sync_interval_ms": [0, 1],
    "sync": [False, True],
}  # fmt: skip
NEED_LOG = {"sync_interval_ms", "sync"}
# With `memory` it decides about these.
OF_MEMORY = {"block_cache_size", "cache_index_and_filter_blocks"}

# The smallest files and the steepest tree that fills every level.
DEEP: dict[str, Any] = {
    "write_buffer_size": 4096, "target_file_size": 4096, "level_size_ratio": 2, "l0_compaction_trigger": 1,
    "compression": None,
}  # fmt: skip


def draw(rng: random.Random, deep: bool, **choices: list[Any]) -> dict[str, Any]:
    """A set of options, perhaps of a deep tree; `choices` replaces the choices of some."""
    drawn = {
        name: values[0] if rng.random() < 0.5 else rng.choice(values) for name, values in (CHOICES | choices).items()
    }
    if drawn["wal"] is None:
        drawn = {name: value for name, value in drawn.items() if name not in NEED_LOG}
    if drawn["memory"] is not None:
        drawn = {name: value for name, value in drawn.items() if name not in OF_MEMORY}
    return drawn | DEEP if deep else drawn


def draw_live(rng: random.Random, log: bool) -> dict[str, Any]:
    """A change for `set_options` of a database with or without a log."""
    # `memory` cannot be turned on or off.
    names = rng.sample(sorted(LIVE & CHOICES.keys() - {"memory"} - (set() if log else NEED_LOG)), rng.randint(1, 3))
    return {name: rng.choice(CHOICES[name]) for name in names}

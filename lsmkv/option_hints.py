"""Options that users of other stores look for, and what lsmkv has instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# A similar name is suggested only if it is hardly more than a slip of the hand.
SIMILAR = 0.8

_ADVICE = {
    "create_if_missing": "a database is created by default; open it with flag='w' to require that it exists",
    "error_if_exists": "open it with flag='n' to begin with an empty database",
    "read_only": "open it with flag='r'",
    "flags": "open it with flag='r', 'w', 'c' or 'n'",
    "comparator": "keys are ordered by their bytes; lsmkv has no comparators",
    "paranoid_checks": "every read verifies checksums",
    "verify_checksums": "every read verifies checksums",
    "checksum": "every read verifies checksums",
    "block_restart_interval": "blocks have a fixed layout",
    "map_size": "a database grows with its data",
    "max_dbs": "a database has any number of keyspaces: db.keyspace(name)",
    "max_readers": "any number of processes can read",
    "lock": "one process writes, and any number read",
    "merge_operator": "db.add, db.append, db.max, db.min and db.modify update a key in one step",
    "statistics": "db.stats() is always there",
    "autocommit": "every write is a transaction of its own; batches and db.transaction() group them",
    "journal_mode": "every write goes to the log; see wal",
    "writeback": "use shelve.Shelf(lsmkv.dbm.open(path), writeback=True)",
}

_INSTEAD = {
    "bloom_filter_bits": "bits_per_key",
    "bloom_bits": "bits_per_key",
    "filter_policy": "bits_per_key",
    "lru_cache_size": "block_cache_size",
    "cache_size": "block_cache_size",
    "block_cache": "block_cache_size",
    "row_cache": "row_cache_size",
    "cache_index_and_filter": "cache_index_and_filter_blocks",
    "max_write_buffer_number": "max_write_buffers",
    "db_write_buffer_size": "write_buffer_size",
    "write_buffer": "write_buffer_size",
    "max_file_size": "target_file_size",
    "target_file_size_base": "target_file_size",
    "max_bytes_for_level_multiplier": "level_size_ratio",
    "level0_file_num_compaction_trigger": "l0_compaction_trigger",
    "level0_slowdown_writes_trigger": "l0_slowdown_trigger",
    "level0_stop_writes_trigger": "l0_stop_trigger",
    "max_background_compactions": "max_background_jobs",
    "max_background_flushes": "max_background_jobs",
    "compression_type": "compression",
    "compression_per_level": "compression",
    "prefix": "prefix_extractor",
    "min_blob_size": "large_value_threshold",
    "enable_blob_files": "large_value_threshold",
    "blob_compression_type": "large_value_compression",
    "disk_min_file_size": "large_value_threshold",
    "ttl": "default_ttl",
    "disable_wal": "wal",
    "use_fsync": "sync",
    "metasync": "sync",
    "wal_recovery_mode": "recovery",
    "memory_limit": "memory",
}

# Without underscores, as some write them.
_SPELLED = {name.replace("_", ""): name for name in (*_ADVICE, *_INSTEAD)}


def hint(name: str, known: Collection[str]) -> str:
    """Advice on an unknown option, with a leading semicolon; empty if there is none worth giving.

    >>> from lsmkv.option_hints import hint
    >>> hint("bloom_filter_bits", [])
    "; use 'bits_per_key'"
    >>> hint("block_sise", ["block_size"])
    "; did you mean 'block_size'?"
    >>> hint("flux_capacity", ["block_size"])
    ''
    """
    spelled = _SPELLED.get(name.lower().replace("_", ""), name)
    if spelled in _INSTEAD:
        return f"; use {_INSTEAD[spelled]!r}"
    if spelled in _ADVICE:
        return f"; {_ADVICE[spelled]}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR)
    return f"; did you mean {near[0]!r}?" if near else ""

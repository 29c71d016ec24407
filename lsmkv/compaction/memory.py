"""How the write buffers and the block cache share memory. Called when their needs change: the flush of a memtable
begins or ends, an option changes.
"""

from __future__ import annotations

from lsmkv.version.version_set import VersionSet

# From this write buffer size on, memtables rotate early.
EARLY_FROM = 8 << 20
# A value log takes the values of this many write buffers. Recovery reads it if it was not synced, and its garbage
# counts once it is sealed.
VALUE_BUFFERS = 1
# The cache shrinks in steps of this size, or other threads would wait long for the GIL.
SHRINK_STEP = 1 << 20


def share_memory(versions: VersionSet) -> None:
    """Lets the cache use the memory of an idle write buffer while no memtable waits for its flush."""
    cache, options = versions.cache, versions.options
    size = options.block_bytes
    if size and not versions.engine.immutables:
        size += options.write_buffer_size
    while cache.capacity > size:
        cache.set_capacity(max(size, cache.capacity - SHRINK_STEP))
    cache.set_capacity(size)
    _rotate_early(versions)


def _rotate_early(versions: VersionSet) -> None:
    """Sets when the active memtables rotate. While nothing is flushed, half a write buffer is enough: writers that
    outrun the flush then hold less memory, and the flush thread has work sooner. During a flush an eighth is left to
    the flush itself: arrays to sort by, hashes, the table being built.
    """
    with versions.lock:
        engine, size = versions.engine, versions.options.write_buffer_size
        if size >= EARLY_FROM:
            size = size - size // 8 if engine.immutables else size // 2
        engine.capacity = size
        engine.value_capacity = VALUE_BUFFERS * versions.options.write_buffer_size

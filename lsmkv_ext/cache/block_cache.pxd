# The block cache: one byte budget over the blocks of all tables of a database.
#
# A block slot, the pointer in the `blocks` array of a table, points to its cached block, so a hit needs no lookup here; the cache
# only chooses victims. Two rings: MAIN holds blocks read by gets and evicts by CLOCK; PROBATION holds blocks read by scans,
# first in first out, about an eighth of the budget. A get that hits a block in PROBATION raises its usage, and the hand then
# promotes it instead of evicting it. Scans never raise usage.
#
# Every link, segment and block slot changes under `lock`. Pins are atomic. Usage is a byte; a lost update costs nothing. A
# pinned block is never evicted.
#
# GIL-protected: the memory of evicted blocks. A thread with the GIL may pin a block, or use it unpinned, without the lock. So
# only a thread with the GIL frees an evicted block; others put it on the limbo list. A thread without the GIL pins under the
# lock. (docs/architecture.md, "Block memory and the GIL")

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.block.memory cimport BlockC
from lsmkv_ext.port.atomics cimport lsm_load8, lsm_store8
from lsmkv_ext.port.pthread cimport pthread_mutex_t

cdef enum:
    CACHE_MAX_USAGE = 3

ctypedef struct Ring:
    BlockC* hand                   # next victim candidate; NULL = empty
    uint64_t bytes
    uint64_t count

ctypedef struct CacheC:
    pthread_mutex_t lock
    uint64_t capacity
    uint64_t reserved              # bytes of resident indexes and filters
    Ring main
    Ring probation
    BlockC* limbo                  # evicted blocks that wait for a thread with the GIL
    uint64_t limbo_bytes           # may be read without the lock, as a hint
    uint64_t inserts, evictions, rejected, promotions

cdef int cache_init(CacheC* c, uint64_t capacity) noexcept nogil
# GIL held, every table closed, no pins left: frees the limbo list.
cdef void cache_destroy(CacheC* c) noexcept nogil
# The block at *block_slot, pinned, or NULL. Works without the GIL.
cdef BlockC* cache_pin(CacheC* c, BlockC** block_slot) noexcept nogil
# Publishes the private, pinned block b at *block_slot and returns the block to use, pinned once. Where another thread was
# first, that is its block, and b is freed. Where there is no room (budget, all pinned), b stays private.
cdef BlockC* cache_insert(CacheC* c, BlockC** block_slot, BlockC* b, bint scan, bint gil_held) noexcept nogil
cdef void cache_unpin(BlockC* b) noexcept nogil
# GIL held: unlinks and frees the blocks of a closing table.
cdef void cache_remove(CacheC* c, BlockC** block_slots, uint64_t n) noexcept nogil
# GIL held: frees unpinned limbo blocks. Cheap when there are none.
cdef void cache_drain(CacheC* c) noexcept nogil
cdef void cache_reserve(CacheC* c, uint64_t nbytes, bint gil_held) noexcept nogil
cdef void cache_release(CacheC* c, uint64_t nbytes) noexcept nogil


cdef inline void cache_touch(BlockC* b) noexcept nogil:
    """Counts a hit of a get."""
    cdef uint8_t usage = lsm_load8(&b.usage)
    if usage < CACHE_MAX_USAGE:
        lsm_store8(&b.usage, usage + 1)


cdef class BlockCache:
    cdef CacheC* c
    cdef int born                  # fork_count when it was created

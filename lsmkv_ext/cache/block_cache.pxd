# The block cache: one byte budget over the blocks of all tables of a database.
#
# A cached block hangs off its table's `blocks` array, so a hit needs no look-up here; the cache only knows whom to
# evict.
# Two rings: MAIN (blocks read by gets, CLOCK) and PROBATION (blocks read by scans, first in first out, about an eighth
# of the budget). A get that hits a probation block bumps its usage counter, and the hand then promotes it instead of
# evicting it. Scans bump nothing.
#
# Rules (docs/architecture.md, "Block memory and the GIL"):
#   - every link, segment and slot changes under `lock`; usage is a byte of which an update may be lost, pins an atomic.
#   - without the GIL a block is pinned under `lock`; with the GIL it may be pinned, or just used, without it.
#   - an evicted block is freed only with the GIL held: others leave it on the limbo list.
#   - a pinned block is never evicted.

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.block.block cimport BlockC
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
    uint64_t reserved              # charged by resident indexes and filters
    Ring main
    Ring probation
    BlockC* limbo
    uint64_t limbo_bytes           # read without the lock as a hint
    uint64_t inserts, evictions, rejected, promotions

cdef int cache_init(CacheC* c, uint64_t capacity) noexcept nogil
# GIL held, no pins left: frees limbo. The rings must be empty (every table closed).
cdef void cache_destroy(CacheC* c) noexcept nogil
# The cached block at *slot, pinned, or NULL. Safe without the GIL.
cdef BlockC* cache_pin(CacheC* c, BlockC** slot) noexcept nogil
# Publishes a private pinned block at *slot. Where another thread was first, frees `b` and returns the present block,
# pinned. Where there is no room (budget, all pinned), `b` stays private. Returns the block to use, pinned once.
cdef BlockC* cache_insert(CacheC* c, BlockC** slot, BlockC* b, bint scan, bint gil_held) noexcept nogil
cdef void cache_unpin(BlockC* b) noexcept nogil
# GIL held: unlinks and frees the blocks of a closing table.
cdef void cache_remove(CacheC* c, BlockC** slots, uint64_t n) noexcept nogil
# GIL held: frees unpinned limbo blocks. Cheap when there are none.
cdef void cache_drain(CacheC* c) noexcept nogil
cdef void cache_reserve(CacheC* c, uint64_t nbytes, bint gil_held) noexcept nogil
cdef void cache_release(CacheC* c, uint64_t nbytes) noexcept nogil


cdef inline void cache_touch(BlockC* b) noexcept nogil:
    """A get hit this block. A lost update between two readers costs nothing."""
    cdef uint8_t usage = lsm_load8(&b.usage)
    if usage < CACHE_MAX_USAGE:
        lsm_store8(&b.usage, usage + 1)


cdef class BlockCache:
    cdef CacheC* c
    cdef int born                  # fork_count when it was made

"""The block cache."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

from lsmkv_ext.block.block cimport block_free
from lsmkv_ext.block.memory cimport SEG_LIMBO, SEG_MAIN, SEG_PRIVATE, SEG_PROBATION
from lsmkv_ext.port.atomics cimport (
    lsm_fetch_add32,
    lsm_load32,
    lsm_load64,
    lsm_load8,
    lsm_load_ptr,
    lsm_prefetch,
    lsm_store64,
    lsm_store8,
    lsm_store_ptr,
)
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from lsmkv_ext.port.slab cimport slab_budget

cdef enum:
    PROBATION_PART = 8             # above 1/8 of the budget, scans evict each other's blocks
    LIMBO_PART = 4                 # limbo holds at most 1/4 of the budget plus the floor
    LIMBO_FLOOR = 1 << 20
    PROMOTED_USAGE = 1


# --- rings (under the lock) -------------------------------------------------------------------------------------------

cdef inline Ring* _ring(CacheC* c, BlockC* b) noexcept nogil:
    return &c.main if b.segment == SEG_MAIN else &c.probation


cdef void _link(CacheC* c, BlockC* b, int segment) noexcept nogil:
    """Links the block just before the hand, which reaches it last."""
    cdef Ring* ring
    b.segment = segment
    ring = _ring(c, b)
    if ring.hand == NULL:
        b.next = b
        b.prev = b
        ring.hand = b
    else:
        b.next = ring.hand
        b.prev = ring.hand.prev
        b.prev.next = b
        b.next.prev = b
    ring.bytes += b.charge
    ring.count += 1


cdef void _unlink(CacheC* c, BlockC* b) noexcept nogil:
    cdef Ring* ring = _ring(c, b)
    if b.next == b:
        ring.hand = NULL
    else:
        b.prev.next = b.next
        b.next.prev = b.prev
        if ring.hand == b:
            ring.hand = b.next
    ring.bytes -= b.charge
    ring.count -= 1
    b.next = NULL
    b.prev = NULL


cdef void _discard(CacheC* c, BlockC* b, bint gil_held) noexcept nogil:
    """Removes the block from its ring and its table, and frees it or puts it in limbo."""
    _unlink(c, b)
    lsm_store_ptr(<void**>b.slot, NULL)
    b.slot = NULL
    if gil_held and lsm_load32(&b.pins) == 0:
        block_free(b)
        return
    b.segment = SEG_LIMBO
    b.next = c.limbo
    c.limbo = b
    lsm_store64(&c.limbo_bytes, c.limbo_bytes + b.charge)


# --- eviction (under the lock) ----------------------------------------------------------------------------------------

cdef bint _evict_probation(CacheC* c, bint gil_held) noexcept nogil:
    """Evicts one block. Blocks that were hit meanwhile move to main. False if nothing was evicted."""
    cdef uint64_t left = c.probation.count
    cdef BlockC* b
    while left > 0:
        left -= 1
        b = c.probation.hand
        if lsm_load32(&b.pins) != 0:
            c.probation.hand = b.next
        elif lsm_load8(&b.usage) != 0:
            _unlink(c, b)
            lsm_store8(&b.usage, PROMOTED_USAGE)
            _link(c, b, SEG_MAIN)
            c.promotions += 1
        else:
            _discard(c, b, gil_held)
            c.evictions += 1
            return True
    return False


cdef bint _evict_main(CacheC* c, bint gil_held) noexcept nogil:
    # Each round lowers usage by one, so this many rounds find an unpinned block, unless readers keep raising its usage.
    cdef uint64_t left = c.main.count * (CACHE_MAX_USAGE + 1)
    cdef BlockC* b
    cdef uint8_t usage
    while left > 0:
        left -= 1
        b = c.main.hand
        usage = lsm_load8(&b.usage)
        if lsm_load32(&b.pins) != 0:
            c.main.hand = b.next
        elif usage != 0:
            lsm_store8(&b.usage, usage - 1)
            c.main.hand = b.next
        else:
            _discard(c, b, gil_held)
            c.evictions += 1
            if c.main.hand != NULL:
                lsm_prefetch(c.main.hand)       # probably the next victim
            return True
    return False


cdef bint _make_room(CacheC* c, uint64_t charge, bint scan, bint gil_held) noexcept nogil:
    cdef uint64_t budget = c.capacity - c.reserved if c.capacity > c.reserved else 0
    cdef bint done
    if charge > budget // 2:
        return charge == 0
    while c.main.bytes + c.probation.bytes + charge > budget:
        if scan or c.probation.bytes > budget // PROBATION_PART:
            # A scan never evicts blocks of gets, once it has its own share.
            done = _evict_probation(c, gil_held)
            if not done and (not scan or c.probation.bytes + charge <= budget // PROBATION_PART):
                done = _evict_main(c, gil_held)
        else:
            done = _evict_main(c, gil_held) or _evict_probation(c, gil_held)
        if not done:
            return False
    return True


cdef void _shrink(CacheC* c, bint gil_held) noexcept nogil:
    """Evicts until the rings fit the budget; pinned blocks stay."""
    cdef uint64_t budget = c.capacity - c.reserved if c.capacity > c.reserved else 0
    while c.main.bytes + c.probation.bytes > budget:
        if not _evict_probation(c, gil_held) and not _evict_main(c, gil_held):
            return


# --- interface --------------------------------------------------------------------------------------------------------

cdef int cache_init(CacheC* c, uint64_t capacity) noexcept nogil:
    c.capacity = capacity
    slab_budget(<int64_t>capacity)
    return pthread_mutex_init(&c.lock, NULL)


cdef void cache_destroy(CacheC* c) noexcept nogil:
    cache_drain(c)
    slab_budget(-<int64_t>c.capacity)
    pthread_mutex_destroy(&c.lock)


cdef BlockC* cache_pin(CacheC* c, BlockC** block_slot) noexcept nogil:
    cdef BlockC* b
    if lsm_load_ptr(<void**>block_slot) == NULL:
        return NULL
    pthread_mutex_lock(&c.lock)
    b = block_slot[0]
    if b != NULL:
        lsm_fetch_add32(&b.pins, 1)
    pthread_mutex_unlock(&c.lock)
    return b


cdef BlockC* cache_insert(CacheC* c, BlockC** block_slot, BlockC* b, bint scan, bint gil_held) noexcept nogil:
    cdef BlockC* present
    pthread_mutex_lock(&c.lock)
    present = block_slot[0]
    if present != NULL:
        lsm_fetch_add32(&present.pins, 1)
        pthread_mutex_unlock(&c.lock)
        block_free(b)
        return present
    if (not gil_held and c.limbo_bytes > c.capacity // LIMBO_PART + LIMBO_FLOOR) \
            or not _make_room(c, b.charge, scan, gil_held):
        c.rejected += 1
        pthread_mutex_unlock(&c.lock)
        return b
    b.slot = block_slot
    b.usage = 0
    _link(c, b, SEG_PROBATION if scan else SEG_MAIN)
    c.inserts += 1
    lsm_store_ptr(<void**>block_slot, b)
    pthread_mutex_unlock(&c.lock)
    return b


cdef void cache_unpin(BlockC* b) noexcept nogil:
    # Read before the unpin: afterwards the block may be freed. A private block stays private while it is pinned.
    cdef bint private = b.segment == SEG_PRIVATE
    if lsm_fetch_add32(&b.pins, -1) == 1 and private:
        block_free(b)


cdef void cache_remove(CacheC* c, BlockC** block_slots, uint64_t n) noexcept nogil:
    cdef uint64_t i
    pthread_mutex_lock(&c.lock)
    for i in range(n):
        if block_slots[i] != NULL:
            _discard(c, block_slots[i], True)
    pthread_mutex_unlock(&c.lock)


cdef void cache_drain(CacheC* c) noexcept nogil:
    cdef BlockC* b
    cdef BlockC* after
    cdef BlockC* kept = NULL
    if lsm_load64(&c.limbo_bytes) == 0:
        return
    pthread_mutex_lock(&c.lock)
    b = c.limbo
    while b != NULL:
        after = b.next
        if lsm_load32(&b.pins) == 0:
            lsm_store64(&c.limbo_bytes, c.limbo_bytes - b.charge)
            block_free(b)
        else:
            b.next = kept
            kept = b
        b = after
    c.limbo = kept
    pthread_mutex_unlock(&c.lock)


cdef void cache_reserve(CacheC* c, uint64_t nbytes, bint gil_held) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.reserved += nbytes
    _shrink(c, gil_held)
    pthread_mutex_unlock(&c.lock)
    # Blocks will not need this part of the capacity.
    slab_budget(-<int64_t>nbytes)


cdef void cache_release(CacheC* c, uint64_t nbytes) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.reserved -= nbytes
    pthread_mutex_unlock(&c.lock)
    slab_budget(<int64_t>nbytes)


cdef class BlockCache:
    """One byte budget for the blocks of all tables that use this cache."""

    def __cinit__(self, capacity=0):
        cdef uint64_t bytes_ = capacity
        self.born = fork_count
        self.c = <CacheC*>calloc(1, sizeof(CacheC))
        if self.c == NULL or cache_init(self.c, bytes_) != 0:
            raise MemoryError("block cache")

    def __dealloc__(self):
        if self.c != NULL and self.born == fork_count:
            cache_destroy(self.c)
            free(self.c)

    @property
    def capacity(self):
        """The budget in bytes."""
        return self.c.capacity

    @property
    def used(self):
        """Bytes of cached blocks, and of resident indexes and filters."""
        return self.stats()["used"]

    def set_capacity(self, capacity):
        """Change the budget; evicts what no longer fits."""
        cdef uint64_t bytes_ = capacity
        cdef int64_t change
        pthread_mutex_lock(&self.c.lock)
        change = <int64_t>(bytes_ - self.c.capacity)
        self.c.capacity = bytes_
        _shrink(self.c, True)
        pthread_mutex_unlock(&self.c.lock)
        slab_budget(change)

    def drain(self):
        """Free evicted blocks that no reader pins any more."""
        cache_drain(self.c)

    def stats(self):
        """Return capacity, bytes and counters, all of one moment."""
        cdef CacheC* c = self.c
        cdef CacheC now
        # Under the lock: readers without the GIL move blocks between these sums.
        pthread_mutex_lock(&c.lock)
        now.capacity = c.capacity
        now.reserved = c.reserved
        now.main = c.main
        now.probation = c.probation
        now.limbo_bytes = c.limbo_bytes
        now.inserts = c.inserts
        now.evictions = c.evictions
        now.promotions = c.promotions
        now.rejected = c.rejected
        pthread_mutex_unlock(&c.lock)
        return {
            "capacity": now.capacity,
            "used": now.main.bytes + now.probation.bytes + now.reserved,
            "reserved": now.reserved,
            "main_bytes": now.main.bytes,
            "main_blocks": now.main.count,
            "probation_bytes": now.probation.bytes,
            "probation_blocks": now.probation.count,
            "limbo_bytes": now.limbo_bytes,
            "inserts": now.inserts,
            "evictions": now.evictions,
            "promotions": now.promotions,
            "rejected": now.rejected,
        }

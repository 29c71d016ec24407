from libc.stdlib cimport free, malloc

from lsmkv_ext.port.atomics cimport lsm_prefetch, lsm_store_ptr
from lsmkv_ext.port.pages cimport lsm_pages_alloc, lsm_pages_free

cdef enum:
    FIRST_SLOTS = 4096
    SMALL_SLOTS = 256
    MIDDLE_SLOTS = 1 << 16
    LARGE_SLOTS = 1 << 17
    PREFETCH_DISTANCE = 8


cdef inline uint64_t index_bytes(uint64_t n_slots) noexcept nogil:
    return n_slots * sizeof(uint64_t)


cdef MemIndex* index_of_size(uint64_t n_slots) noexcept nogil:
    cdef MemIndex* index = <MemIndex*>malloc(sizeof(MemIndex))
    if index == NULL:
        return NULL
    index.slots = <uint64_t*>lsm_pages_alloc(index_bytes(n_slots))
    if index.slots == NULL:
        free(index)
        return NULL
    index.mask = n_slots - 1
    index.retired = NULL
    return index


cdef MemIndex* index_new(bint small) noexcept nogil:
    return index_of_size(SMALL_SLOTS if small else FIRST_SLOTS)


cdef void index_free(MemIndex* index) noexcept nogil:
    cdef MemIndex* retired
    while index != NULL:
        retired = index.retired
        lsm_pages_free(index.slots, index_bytes(index.mask + 1))
        free(index)
        index = retired


cdef uint64_t next_size(uint64_t n, uint64_t expected_keys, uint64_t most_bytes) noexcept nogil:
    """Small steps first: a small index stays in the processor's cache, and every get reads it. Then one step to the size that
    should be the last: moving a large index is expensive."""
    if n < MIDDLE_SLOTS:
        return n * 4
    if n >= LARGE_SLOTS:
        return n * 2
    if expected_keys == 0:
        return n * 8
    n *= 2
    while index_is_full(expected_keys, n - 1) and index_bytes(2 * n) <= most_bytes:
        n *= 2
    return n


cdef uint64_t index_grow(MemIndex** current, uint64_t expected_keys, uint64_t most_bytes) noexcept nogil:
    cdef MemIndex* old = current[0]
    cdef MemIndex* new = index_of_size(next_size(old.mask + 1, expected_keys, most_bytes))
    cdef uint64_t i, j, slot
    if new == NULL:
        return 0
    for i in range(old.mask + 1):
        if i + PREFETCH_DISTANCE <= old.mask and old.slots[i + PREFETCH_DISTANCE]:
            lsm_prefetch(index_slot_entry(old.slots[i + PREFETCH_DISTANCE]))
        slot = old.slots[i]
        if slot:
            j = index_slot_entry(slot).hash & new.mask
            while new.slots[j]:
                j = (j + 1) & new.mask
            new.slots[j] = slot
    new.retired = old
    lsm_store_ptr(<void**>current, new)
    return index_bytes(new.mask + 1)

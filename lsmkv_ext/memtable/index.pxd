# The hash index of a memtable: open addressing, one slot per distinct key, which points to the newest entry of the key.
#
# The memtable owns it. One writer; any number of readers without a lock. A slot is stored with release after its entry is
# complete. An index never grows in place: a larger one replaces it, and the smaller one stays until the memtable ends, for
# readers that still use it.

from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.arena cimport MemEntry

ctypedef struct MemIndex:
    MemIndex* retired           # the smaller index before it
    uint64_t mask
    uint64_t* slots             # high 16 bits of the hash | 48-bit address of the entry; 0 = free

# NULL if out of memory.
cdef MemIndex* index_new(bint small) noexcept nogil
cdef void index_free(MemIndex* index) noexcept nogil        # with the retired ones
# Replaces *current by a larger index. Returns its bytes, or 0 if out of memory (nothing changed). `expected_keys` is 0 where
# unknown; an index sized for them takes at most `most_bytes`.
cdef uint64_t index_grow(MemIndex** current, uint64_t expected_keys, uint64_t most_bytes) noexcept nogil


cdef inline bint index_is_full(uint64_t keys, uint64_t mask) noexcept nogil:
    return keys * 5 > mask * 3


cdef inline uint64_t index_slot_for(MemEntry* e, uint64_t hash) noexcept nogil:
    return (hash & <uint64_t>0xFFFF000000000000) | <uint64_t>e


cdef inline bint index_slot_matches(uint64_t slot, uint64_t hash) noexcept nogil:
    return (slot ^ hash) >> 48 == 0


cdef inline MemEntry* index_slot_entry(uint64_t slot) noexcept nogil:
    return <MemEntry*>(slot & <uint64_t>0x0000FFFFFFFFFFFF)

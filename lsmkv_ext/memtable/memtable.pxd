# The memtable: an append-only arena of entries, a hash index for point reads, order on demand.
#
# One writer at a time (the engine's writer's turn); any number of readers without a lock. An entry is complete before the
# index slot that names it is stored (release), and neither moves nor changes afterwards. An overwritten key's older versions stay
# chained behind the newest, so a pinned memtable still answers for the past.
#
# Order is deferred: mem_order() sorts what was appended since it was last asked into a new run and merges runs of similar size,
# so a scan after each put stays cheap and a flush sorts everything once, off the GIL.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from lsmkv_ext.port.pthread cimport pthread_mutex_t
from lsmkv_ext.block.block cimport Entry
from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone, RangeNode
from lsmkv_ext.port.status cimport Status

ctypedef struct MemEntry:       # header in the arena; key and value follow, padded to 8
    MemEntry* older             # the version of this key that it replaced
    uint64_t hash
    uint64_t seq
    uint32_t vlen
    uint32_t klen_op            # key length << 8 | op

ctypedef struct ArenaChunk:
    ArenaChunk* next
    char* base
    size_t capacity
    size_t used                 # published with release: readers may walk up to here

ctypedef struct MemIndex:
    MemIndex* retired           # smaller tables readers may still be in; freed with the memtable
    uint64_t mask
    uint64_t* slots             # high 16 bits of the hash | 48-bit entry address; 0 = free

ctypedef struct SortItem:
    uint64_t prefix             # 8 key bytes after the run's common prefix
    MemEntry* entry

ctypedef struct MemRun:         # sorted by (key, newest first); immutable, counted by the orders that share it
    int refs
    size_t n
    size_t skip                 # length of the common prefix, equal to the first `skip` bytes of any key here
    SortItem* items             # somewhere in `room`
    SortItem* room              # owned
    size_t capacity             # of the room

cdef enum:
    MAX_RUNS = 48

ctypedef struct MemOrder:       # runs, oldest first; immutable, reference counted
    int refs
    int n_runs
    MemRun* runs[MAX_RUNS]
    ArenaChunk* chunk           # covered up to here
    size_t offset

ctypedef struct MemC:
    ArenaChunk* first
    ArenaChunk* last
    MemIndex* index
    uint64_t n_index            # distinct keys
    uint64_t expected_keys      # how many of them there may be in the end; 0: unknown
    uint64_t n_entries
    uint64_t n_deletes
    uint64_t used               # bytes of the entries and of the indexes they made necessary
    uint64_t chunk_size
    uint64_t min_seq
    uint64_t max_seq
    MemRangeTombstone* range_tombstones   # newest first
    RangeNode* range_tree       # of all but the last few of them
    int range_tail              # how many those are
    uint64_t n_range_tombstones
    uint64_t range_key_bytes
    MemOrder* order             # latest, under order_mutex
    pthread_mutex_t order_mutex


cdef inline const char* entry_key(const MemEntry* e) noexcept nogil:
    return <const char*>e + sizeof(MemEntry)


cdef inline size_t entry_klen(const MemEntry* e) noexcept nogil:
    return e.klen_op >> 8


cdef inline int entry_op(const MemEntry* e) noexcept nogil:
    return e.klen_op & 0xFF


cdef inline const char* entry_value(const MemEntry* e) noexcept nogil:
    return entry_key(e) + entry_klen(e)


cdef inline size_t entry_footprint(size_t klen, size_t vlen) noexcept nogil:
    return (sizeof(MemEntry) + klen + vlen + 7) & ~<size_t>7


# 0, or -1 where memory ran out (nothing changed then)
cdef int mem_reserve(MemC* m, size_t klen, size_t vlen) noexcept nogil
# A put whose value is NULL has its vlen bytes at mem_value_place already.
cdef int mem_insert(MemC* m, const char* key, size_t klen, const char* value, size_t vlen,
                    uint64_t seq, int op, uint64_t hash) noexcept nogil
# After mem_reserve: where the value of the next insert goes, for a caller that writes it there piece by piece.
cdef char* mem_value_place(const MemC* m, size_t klen) noexcept nogil
cdef int mem_delete_range(MemC* m, const char* start, size_t start_len, const char* stop, size_t stop_len,
                          uint64_t seq) noexcept nogil
# Bytes that the memtable takes now, and more while it is flushed.
cdef uint64_t mem_weight(const MemC* m) noexcept nogil
# Newest version with seq <= snapshot, or NULL.
cdef MemEntry* mem_find(const MemC* m, const char* key, size_t klen, uint64_t hash, uint64_t snapshot) noexcept nogil
cdef void mem_prefetch(const MemC* m, uint64_t hash) noexcept nogil
# Largest seq <= snapshot of a range tombstone over key, or 0.
cdef uint64_t mem_covering_seq(const MemC* m, const char* key, size_t klen, uint64_t snapshot,
                               size_t* steps=*) noexcept nogil
# The order of everything appended before (chunk, offset); the caller releases it. NULL: out of memory.
cdef MemOrder* mem_order(MemC* m, ArenaChunk* chunk, size_t offset) noexcept nogil
cdef void mem_order_release(MemOrder* order) noexcept nogil

# Walks one run at a snapshot: each key once, its newest visible version.
ctypedef struct RunIter:
    const MemRun* run           # borrowed from the MemOrder
    uint64_t snapshot
    size_t pos
    bint valid

cdef void run_seek(RunIter* it, const char* key, size_t klen) noexcept nogil          # first >= key
cdef void run_seek_before(RunIter* it, const char* key, size_t klen) noexcept nogil   # last < key
cdef void run_first(RunIter* it) noexcept nogil
cdef void run_last(RunIter* it) noexcept nogil
cdef void run_next(RunIter* it) noexcept nogil
cdef void run_prev(RunIter* it) noexcept nogil


cdef class Memtable:
    cdef MemC* c
    cdef readonly uint64_t seed
    cdef public uint64_t number
    cdef public uint64_t capacity
    cdef object __weakref__

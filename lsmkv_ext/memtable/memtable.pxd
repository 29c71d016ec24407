# The memtable: an arena of entries, a hash index for point lookups, a sorted order made on demand, and range tombstones.
#
# One writer at a time: a short write holds the GIL throughout, any other holds the writer's turn of the engine. Any number of
# readers, without a lock. Older versions of a key stay chained behind the newest, for snapshots that pin the memtable.
#
# GIL-protected: short writes, which take no turn

from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.arena cimport ArenaChunk, MemEntry
from lsmkv_ext.memtable.index cimport MemIndex
from lsmkv_ext.memtable.order cimport LatestOrder, MemOrder
from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone, Span, TombstoneNode
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC

ctypedef struct MemValueLog:    # a value log that entries may point into; never changes
    ValueLogC* log              # borrowed from Memtable.value_logs
    MemValueLog* next

ctypedef struct MemC:
    ArenaChunk* first
    ArenaChunk* last
    MemIndex* index
    uint64_t n_index            # distinct keys
    uint64_t expected_keys      # distinct keys of a full memtable; 0: unknown
    uint64_t n_entries          # atomic
    uint64_t n_deletes
    uint64_t n_expiring         # entries with an expiry
    uint64_t n_pointers         # entries whose value is in a value log
    MemValueLog* value_logs     # newest first; atomic
    uint64_t used               # bytes of entries, indexes and range tombstones
    uint64_t chunk_size
    uint64_t min_seq            # UINT64_MAX if nothing was written
    uint64_t max_seq            # atomic
    MemRangeTombstone* range_tombstones   # newest first
    TombstoneNode* tombstone_tree   # of all but the newest tombstone_tail
    int tombstone_tail
    uint64_t n_range_tombstones
    uint64_t range_key_bytes
    LatestOrder latest

# The writer's functions return 0, or -1 if out of memory (nothing changed).

# Makes room for an entry: the insert that follows cannot fail. An expiry of 0 is none. The value of OP_PUT_POINTER is a pointer
# into a value log that the Memtable holds.
cdef int mem_reserve(MemC* m, size_t klen, size_t vlen, uint64_t expiry) noexcept nogil
# With value NULL, the caller has written vlen bytes at mem_value_place.
cdef int mem_insert(MemC* m, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                    uint64_t seq, int op, uint64_t hash) noexcept nogil
# After mem_reserve: where the value of the next insert goes, for a caller that writes it piece by piece.
cdef char* mem_value_place(const MemC* m, size_t klen, uint64_t expiry) noexcept nogil
cdef int mem_delete_range(MemC* m, const char* start, size_t start_len, const char* stop, size_t stop_len,
                          uint64_t seq) noexcept nogil

# Bytes that the memtable takes, with those that its flush will take.
cdef uint64_t mem_weight(const MemC* m) noexcept nogil
# Newest version with seq <= snapshot, or NULL. Callers interpret tombstones.
cdef MemEntry* mem_find(const MemC* m, const char* key, size_t klen, uint64_t hash, uint64_t snapshot) noexcept nogil
cdef void mem_prefetch(const MemC* m, uint64_t hash) noexcept nogil
# A span over key of the newest range tombstone with seq <= snapshot, or NULL. `steps`: NULL, or a counter of comparisons.
cdef const Span* mem_covering_span(const MemC* m, const char* key, size_t klen, uint64_t snapshot,
                                   size_t* steps=*) noexcept nogil
cdef uint64_t mem_covering_seq(const MemC* m, const char* key, size_t klen, uint64_t snapshot) noexcept nogil   # its seq, or 0
# The order of everything appended before (chunk, offset); the caller releases it. NULL if out of memory.
cdef MemOrder* mem_order(MemC* m, ArenaChunk* chunk, size_t offset) noexcept nogil
# The same if that is short work, for a caller that holds the GIL. False: call mem_order without it.
cdef bint mem_order_short(MemC* m, ArenaChunk* chunk, size_t offset, MemOrder** out) noexcept nogil


cdef class Memtable:
    cdef MemC* c                # owned
    cdef readonly uint64_t seed
    cdef public uint64_t number
    cdef readonly list value_logs       # only ever appended to
    cdef object __weakref__
    # Before an entry points into it.
    cpdef int hold(self, ValueLog log) except -1

# The range tombstones of a memtable. The newest one over a key is found in a few steps, however many there are.
#
# They form a list, newest first. Consecutive ones are flattened into a node: disjoint spans in key order, each with the newest
# sequence number over it. The newest few are in no node yet. Two nodes of equal rank are joined, as a binary counter carries,
# so n range tombstones make about log n nodes. A joined node keeps its halves, for snapshots that see only part of it.
#
# The memtable owns list and nodes and frees them when it ends. One writer, whose sequence numbers only grow; any number of
# readers without a lock: a published node never changes.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.memtable.arena cimport ArenaChunk

ctypedef struct Span:           # keys are borrowed from the range tombstones
    const char* start
    const char* stop
    uint32_t start_len
    uint32_t stop_len
    uint64_t seq

ctypedef struct MemRangeTombstone:
    MemRangeTombstone* older
    Span span
    ArenaChunk* chunk           # the end of the arena when it was written: all entries before are older
    size_t offset
    uint64_t n_entries          # before it

ctypedef struct TombstoneNode:
    TombstoneNode* before       # the node of older range tombstones, or NULL
    TombstoneNode* newer        # owned halves, NULL in a leaf
    TombstoneNode* older
    const MemRangeTombstone* newest
    uint64_t min_seq
    uint64_t max_seq
    int rank
    size_t n
    Span* spans                 # owned

cdef enum:
    TOMBSTONE_LEAF = 16         # range tombstones in a leaf; fewer are compared one by one

# Adds a leaf of the newest `count` range tombstones before `head`, joins nodes of equal rank and returns the new head; NULL if
# out of memory. Adds the bytes it takes to *used.
cdef TombstoneNode* tombstone_tree_grow(TombstoneNode* head, const MemRangeTombstone* newest, int count,
                                        uint64_t* used) noexcept nogil
# A span over `key` with the largest seq <= snapshot, or NULL. It lives as long as the memtable. `steps`: NULL, or a counter of
# the spans and range tombstones compared.
cdef const Span* tombstone_tree_cover(const TombstoneNode* head, const char* key, size_t klen, uint64_t snapshot,
                                      size_t* steps) noexcept nogil
cdef const Span* tombstone_list_cover(const MemRangeTombstone* d, const MemRangeTombstone* end, const char* key, size_t klen,
                                      uint64_t snapshot, size_t* steps) noexcept nogil
cdef void tombstone_tree_free(TombstoneNode* head) noexcept nogil

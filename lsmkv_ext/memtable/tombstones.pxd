# The range tombstones of a memtable, so that the newest one over a key is found in a few steps however many there are.
#
# A node stands for some range tombstones that came one after another, flattened: disjoint spans in order, each with the newest
# sequence number over it. The last few range tombstones are in no node yet. Nodes of equal rank are joined, as a binary counter
# carries, so there are about as many as the logarithm of the range tombstones; a joined node keeps its halves for readers at a
# snapshot within it.
#
# One writer, whose sequence numbers only grow; any number of readers without a lock: a node never changes once it was published,
# and lives as long as the memtable.

from libc.stdint cimport uint32_t, uint64_t

ctypedef struct MemRangeTombstone:
    MemRangeTombstone* older
    const char* start
    const char* stop
    uint32_t start_len
    uint32_t stop_len
    uint64_t seq

ctypedef struct Span:           # keys are borrowed from the range tombstones
    const char* start
    const char* stop
    uint32_t start_len
    uint32_t stop_len
    uint64_t seq

ctypedef struct RangeNode:
    RangeNode* before           # of the range tombstones that came before these
    RangeNode* newer            # owned halves, NULL in a leaf
    RangeNode* older
    const MemRangeTombstone* newest
    uint64_t min_seq
    uint64_t max_seq
    int rank
    size_t n
    Span* spans                 # owned

cdef enum:
    RANGE_LEAF = 16             # range tombstones in a leaf: fewer are looked at one by one

# A leaf of the newest `count` range tombstones on top of `head`, joined as far as it goes; NULL without memory. Adds what it takes
# to *bytes_.
cdef RangeNode* range_tree_grow(RangeNode* head, const MemRangeTombstone* newest, int count, uint64_t* bytes_) noexcept nogil
# Largest seq <= snapshot over key, or 0. `steps`: NULL, or where to count spans and range tombstones looked at.
cdef uint64_t range_tree_cover(const RangeNode* head, const char* key, size_t klen, uint64_t snapshot,
                               size_t* steps) noexcept nogil
cdef uint64_t range_list_cover(const MemRangeTombstone* d, const MemRangeTombstone* end, const char* key, size_t klen,
                               uint64_t snapshot, size_t* steps) noexcept nogil
cdef void range_tree_free(RangeNode* head) noexcept nogil

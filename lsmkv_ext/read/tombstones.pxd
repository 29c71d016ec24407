# Range tombstones as fragments: disjoint ranges in key order, each with the newest sequence number over it. Fragments is a
# list of them; RangeSweep returns them one by one, for jobs that may have millions.

from libc.stdint cimport uint64_t
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.table.reader cimport TableC
from lsmkv_ext.table.tombstones cimport TombstoneWalk

ctypedef struct Fragments:      # zeroed = empty; keys are borrowed from memtables and tables
    RangeTombstone* items       # owned
    size_t n
    size_t capacity

# Add range tombstones, then flatten. -1: out of memory.
cdef int fragments_add(Fragments* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                       uint64_t seq) noexcept nogil
cdef int fragments_add_memtable(Fragments* s, const MemC* m, uint64_t snapshot) noexcept nogil
cdef int fragments_add_table(Fragments* s, const TableC* t) noexcept nogil
cdef int fragments_flatten(Fragments* s) noexcept nogil
cdef void fragments_free(Fragments* s) noexcept nogil
# Of flattened items: the fragment over `key`, or NULL.
cdef const RangeTombstone* fragments_find(const RangeTombstone* items, size_t n, const char* key, size_t klen) noexcept nogil

ctypedef struct RangeSource:    # range tombstones sorted by start: a table's, or a list in memory
    RangeTombstone now          # the current one
    TombstoneWalk walk
    const RangeTombstone* item  # of a list: the next one; NULL: use `walk`
    const RangeTombstone* end

# Flattens on the fly: besides its sources it holds only the range tombstones that overlap at its position. Zeroed = no sources.
# Keys are borrowed from memtables and tables, so they stay valid when it moves on.
ctypedef struct RangeSweep:
    RangeTombstone span         # the current fragment
    bint valid                  # False past the last one
    RangeTombstone following    # the next fragment, if has_following
    bint has_following
    Fragments gathered          # the range tombstones of all memtables
    RangeSource* sources        # owned; a heap, the one with the smallest start on top
    size_t n_sources
    size_t cap_sources
    RangeTombstone* covering    # owned; taken from the sources and not yet passed: a heap, the newest on top
    size_t n_covering
    size_t cap_covering
    const char* at              # fragments up to here were returned
    size_t at_len

# Add all sources, begin, then next until it is not valid; free in any case. -1: out of memory.
cdef int sweep_add_memtable(RangeSweep* s, const MemC* m, uint64_t snapshot) noexcept nogil
cdef int sweep_add_table(RangeSweep* s, const TableC* t) noexcept nogil
cdef int sweep_begin(RangeSweep* s) noexcept nogil
cdef int sweep_next(RangeSweep* s) noexcept nogil
cdef void sweep_free(RangeSweep* s) noexcept nogil

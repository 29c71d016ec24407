# Range tombstones, flattened: disjoint ranges in order of their keys, each with the newest sequence number that covers it. As a
# list (Fragments), or one after the other (RangeSweep) where there may be millions.

from libc.stdint cimport uint64_t
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.table.reader cimport TableC
from lsmkv_ext.table.tombstones cimport TombstoneWalk

ctypedef struct Fragments:        # zeroed = empty; keys are borrowed from the memtables and tables that gave them
    RangeTombstone* items          # owned
    size_t n
    size_t capacity

# Gather, then flatten. -1: out of memory.
cdef int fragments_add(Fragments* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                       uint64_t seq) noexcept nogil
cdef int fragments_add_memtable(Fragments* s, const MemC* m, uint64_t snapshot) noexcept nogil
cdef int fragments_add_table(Fragments* s, const TableC* t) noexcept nogil
cdef int fragments_flatten(Fragments* s) noexcept nogil
cdef void fragments_free(Fragments* s) noexcept nogil
# After flattening: the newest sequence number over `key`, or 0.
cdef uint64_t ranges_cover(const RangeTombstone* items, size_t n, const char* key, size_t klen) noexcept nogil

ctypedef struct RangeSource:    # a list in order of starts: a table's, or one in memory
    RangeTombstone now             # the first one that was not taken yet
    TombstoneWalk walk
    const RangeTombstone* item     # the one behind `now`; NULL: the walk knows
    const RangeTombstone* end

# Flattens as it goes, without a list of the result: besides its sources it holds the ranges that lie over each other at the
# place where it stands. Zeroed = without sources. Keys are borrowed from memtables and tables, and stay when it moves on.
ctypedef struct RangeSweep:
    RangeTombstone span            # where it stands,
    bint valid                  # unless it is behind the last one
    RangeTombstone ahead           # the one behind that, as far as it is known
    bint has_ahead
    Fragments gathered            # from memtables, in order of starts
    RangeSource* sources        # owned; a heap, the one with the smallest start on top
    size_t n_sources
    size_t cap_sources
    RangeTombstone* over           # owned; those that began: a heap, the newest on top
    size_t n_over
    size_t cap_over
    const char* at              # up to here everything was told
    size_t at_len

# Add all sources, begin, then next until it is not valid; free in any case. -1: out of memory.
cdef int sweep_add_memtable(RangeSweep* s, const MemC* m, uint64_t snapshot) noexcept nogil
cdef int sweep_add_table(RangeSweep* s, const TableC* t) noexcept nogil
cdef int sweep_begin(RangeSweep* s) noexcept nogil
cdef int sweep_next(RangeSweep* s) noexcept nogil
cdef void sweep_free(RangeSweep* s) noexcept nogil

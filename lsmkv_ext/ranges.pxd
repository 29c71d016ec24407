# Range deletes, flattened: a sorted list of disjoint ranges, each with the newest sequence number that covers it.

from libc.stdint cimport uint64_t
from lsmkv_ext.memtable cimport MemC
from lsmkv_ext.table cimport RangeDelete, TableC

ctypedef struct Skyline:        # zeroed = empty; keys are borrowed from the memtables and tables that gave them
    RangeDelete* items          # owned
    size_t n
    size_t capacity

# Gather, then flatten. -1: out of memory.
cdef int skyline_add(Skyline* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                     uint64_t seq) noexcept nogil
cdef int skyline_add_memtable(Skyline* s, const MemC* m, uint64_t snapshot) noexcept nogil
cdef int skyline_add_table(Skyline* s, const TableC* t) noexcept nogil
cdef int skyline_flatten(Skyline* s) noexcept nogil
cdef void skyline_free(Skyline* s) noexcept nogil
# After flattening: the newest sequence number over `key`, or 0. Also right for a table's own list, which is stored flat.
cdef uint64_t ranges_cover(const RangeDelete* items, size_t n, const char* key, size_t klen) noexcept nogil

# Merges sorted sources: each key once, from the newest source that has it.
#
# A source is a memtable run, a table, or a level (disjoint tables in key order). Rank 0 is the newest source. The merge returns
# tombstones like other entries; callers interpret them.

from libc.stdint cimport uint64_t
from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.memtable.order cimport MemOrder, RunIter
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.iterator cimport TableIter
from lsmkv_ext.table.reader cimport ReadContext, TableC

cdef enum SourceKind:
    SOURCE_RUN
    SOURCE_TABLE
    SOURCE_LEVEL

ctypedef struct Source:
    SourceKind kind
    int rank
    bint valid
    Entry* e                    # the current entry: points into `table`, or at `local`
    Entry local
    RunIter run
    TableIter table
    TableC** tables             # level: borrowed array
    int n_tables
    int at                      # level: index of the table that `table` is on, -1 = none

ctypedef struct MergeC:
    int n
    int capacity
    Source* sources             # owned
    Source** heap               # owned; the valid sources, next entry on top
    int n_heap
    int runner_up               # heap index of the source that follows the top, 0 = none
    bint by_seq                 # of equal keys the larger sequence number is newer, whatever the rank (repair)
    bint tie                    # the runner-up is on the same key as the top
    uint64_t dead               # tombstones of tables that the caller has counted
    int direction               # 1 forward, -1 backward
    ReadContext* rc             # borrowed
    Status* st                  # borrowed; the first failure ends the merge

# init for up to `capacity` sources, add newest first, then seek. close frees and unpins.
cdef int merge_init(MergeC* m, int capacity, ReadContext* rc, Status* st) noexcept nogil
cdef void merge_close(MergeC* m) noexcept nogil
cdef void merge_add_order(MergeC* m, const MemOrder* order, uint64_t snapshot) noexcept nogil   # its runs, newest first
cdef void merge_add_table(MergeC* m, TableC* t) noexcept nogil
cdef void merge_add_level(MergeC* m, TableC** tables, int n) noexcept nogil
# All return ST_OK or st.code. The entry is merge_entry(m), NULL at the end.
cdef int merge_first(MergeC* m) noexcept nogil
cdef int merge_last(MergeC* m) noexcept nogil
cdef int merge_seek(MergeC* m, const char* key, size_t klen) noexcept nogil             # first >= key, then forward
# last < (or <=) key, then backward
cdef int merge_seek_before(MergeC* m, const char* key, size_t klen, bint inclusive) noexcept nogil
cdef int merge_next(MergeC* m) noexcept nogil                                           # onward in the direction of the seek
# Skips entries before `bound` (forward: keys < bound; backward: keys >= bound), for callers that know those older than `seq` to
# be deleted. Reads no block that it skips. Only sources (of a level: tables) in which everything is older than `seq` move; the
# others stay, so the next entry may still be before `bound`.
cdef int merge_skip_to(MergeC* m, const char* bound, size_t blen, uint64_t seq) noexcept nogil

# Counts the current entry, a tombstone, in its table.
cdef void merge_count_dead(MergeC* m) noexcept nogil


cdef inline Entry* merge_entry(MergeC* m) noexcept nogil:
    return m.heap[0].e if m.n_heap else NULL

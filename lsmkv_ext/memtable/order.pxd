# The sorted order of a memtable, made on demand.
#
# A request sorts the entries appended since the last one into a new run, and merges runs of similar size: a scan after each put
# stays cheap, and a flush sorts everything once, without the GIL. A scan sorts a few new entries with the GIL held: beside a busy
# writer it would wait longer for the GIL than it takes to sort. Entries before and after a range tombstone are in different
# runs, so a scan can skip a run in which everything is older. Runs and orders are immutable and reference counted. They point
# into the arena, so they are valid only while the memtable lives.

from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.sort cimport SortItem
from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone
from lsmkv_ext.port.pthread cimport pthread_mutex_t

ctypedef struct MemRun:         # sorted by (key, newest first); shared by orders
    int refs
    size_t n
    uint64_t max_seq            # of its items
    size_t skip                 # all keys share their first `skip` bytes; the prefixes start there
    SortItem* items             # n items somewhere in `room`
    SortItem* room              # owned
    size_t capacity             # of the room

cdef enum:
    MAX_RUNS = 48

ctypedef struct MemOrder:       # runs, oldest first
    int refs
    int n_runs
    MemRun* runs[MAX_RUNS]
    ArenaChunk* chunk           # it covers the arena up to here
    size_t offset

ctypedef struct LatestOrder:    # embedded in the memtable
    pthread_mutex_t mutex       # guards `order`; held while sorting
    MemOrder* order             # owns a reference; NULL before the first request

# An order of at least the entries before (chunk, offset), which the caller releases. `n_entries` is the arena's entry count,
# `newest` the newest range tombstone or NULL. NULL if out of memory.
cdef MemOrder* latest_order(LatestOrder* latest, ArenaChunk* first, const uint64_t* n_entries, ArenaChunk* chunk,
                            size_t offset, const MemRangeTombstone* newest) noexcept nogil
# The same for a caller that holds the GIL. False, and no order, if another thread is sorting or there is much to sort.
cdef bint latest_order_short(LatestOrder* latest, ArenaChunk* first, const uint64_t* n_entries, ArenaChunk* chunk,
                             size_t offset, const MemRangeTombstone* newest, MemOrder** out) noexcept nogil
cdef void mem_order_release(MemOrder* order) noexcept nogil     # NULL is fine

# Walks one run at a snapshot: each key once, its newest visible version.
ctypedef struct RunIter:
    const MemRun* run           # borrowed from a MemOrder
    uint64_t snapshot
    size_t pos
    bint valid

cdef void run_seek(RunIter* it, const char* key, size_t klen) noexcept nogil          # first >= key
cdef void run_seek_before(RunIter* it, const char* key, size_t klen) noexcept nogil   # last < key
cdef void run_first(RunIter* it) noexcept nogil
cdef void run_last(RunIter* it) noexcept nogil
cdef void run_next(RunIter* it) noexcept nogil
cdef void run_prev(RunIter* it) noexcept nogil

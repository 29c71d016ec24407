# The point lookup. It probes the memtables (newest first), the tables of L0 (newest first), then one table of each deeper level,
# until a source has the key. A hot chain: it stays in one module. `explain` runs the same lookup with a Trace.
#
# Filters come first: a lookup prefetches the filter lines of all candidate tables, tests them together, and reads only the tables
# that pass. multi_get does the same for a group of keys, stage by stage.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.block.memory cimport BlockC
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.port.wall_clock cimport Moment
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.read_state cimport ReadStateC
from lsmkv_ext.table.reader cimport ReadContext, TableC

cdef enum Answer:               # of one source about one key
    ABSENT = 0
    FOUND = 1
    DELETED = 2
    RANGE_DELETED = 3
    EXPIRED = 4                 # hides older entries, as a tombstone does
    FAILED = 5                  # the Status says why

cdef enum Found:
    NOTHING = 0
    VALUE = 1
    POINTED = 2                 # the value is in a value log (read/values)

ctypedef struct TraceStep:      # one source that was probed
    int level                   # -1: a memtable
    int memtable                # index of the memtable in the state
    TableC* table               # borrowed
    double designed_fpr
    bint read                   # the filter did not rule the table out
    uint32_t block              # the block searched; n_blocks: the key is above the last block
    bint cached
    int answer
    uint64_t seq                # of the entry or range tombstone that answered
    uint64_t ns

ctypedef struct Trace:
    TraceStep* steps            # borrowed; room for every memtable and table of the state
    int n

ctypedef struct Lookup:
    const char* key
    size_t klen
    uint64_t hash               # with the state's seed
    uint64_t snapshot
    Moment* moment              # borrowed
    bint skip_bottom_filter
    int found                   # Found
    uint64_t seq                # of the entry or range tombstone that answered
    const char* value           # into a memtable the state holds, or into `pinned`
    size_t vlen
    char pointer[POINTER_SIZE]  # in place of the two, if POINTED
    uint64_t expiry             # of that value; 0: none
    BlockC* pinned              # the caller unpins it after copying (NULL is fine)
    TableC* owner               # the table of `pinned`
    const void* prefetched      # the slot of the table whose block prefetch_lookup looked up, or NULL
    uint32_t prefetched_block
    Trace* trace                # NULL: nothing is recorded

# Call before a lookup: its cache misses then overlap. Prefetches the index slots of the memtables. With `to_tables`, and while
# most gets find their key in a table, prefetches the block of the deepest table too.
cdef void prefetch_lookup(const ReadStateC* v, Lookup* q, bint to_tables) noexcept nogil
# Both return an Answer; probe_tables follows if probe_memtables returns ABSENT. With rc.gil_held, a value in a cached block is
# valid until the GIL is released.
cdef int probe_memtables(const ReadStateC* v, Lookup* q, Counters* counters) noexcept nogil
cdef int probe_tables(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil
# Looks up many keys at once. Returns ST_OK, or the code in *st.
cdef int probe_many(ReadStateC* v, Lookup* queries, size_t n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil

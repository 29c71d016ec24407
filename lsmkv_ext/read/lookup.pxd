# The point lookup: memtables from the newest on, then L0 from the newest on, then one table of each deeper level, until a source
# knows the key. A hot chain: it stays in one module. `explain` is the same lookup with a Trace.
#
# Filters come first: a lookup sends for the lines of all filters that may know the key, then tests them all at once, then reads
# only the tables that remain. multi_get does the same for a group of keys, stage by stage.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.block.memory cimport BlockC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.read_state cimport ReadStateC
from lsmkv_ext.table.reader cimport ReadContext, TableC

cdef enum Answer:               # of one source about one key
    ABSENT = 0
    FOUND = 1
    DELETED = 2
    RANGE_DELETED = 3
    FAILED = 4                  # the Status says why

ctypedef struct TraceStep:      # one source that was asked
    int level                   # -1: a memtable
    int memtable                # its index in the state
    TableC* table               # borrowed
    double designed_fpr
    bint read                   # its filter did not rule it out
    uint32_t block              # that was searched; n_blocks: the key lies behind the last one
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
    bint skip_bottom_filter
    bint found
    uint64_t seq                # of the entry or range tombstone that answered
    const char* value           # into a memtable the state holds, or into `pinned`
    size_t vlen
    BlockC* pinned              # the caller unpins it after copying (NULL is fine)
    TableC* owner
    const void* ahead           # the deepest table's slot, if prefetch_lookup found its block; or NULL
    uint32_t ahead_block
    Trace* trace                # NULL: nothing is recorded

# Before a lookup, so that its cache misses overlap: prefetches the memtables' slots and, where gets usually find their key in a
# table, the block of the deepest table as well.
cdef void prefetch_lookup(const ReadStateC* v, Lookup* q, bint to_tables) noexcept nogil
# What the memtables say, and if they say ABSENT, what the tables do. With rc.gil_held, a value in a cached block is good until
# the GIL is released.
cdef int probe_memtables(const ReadStateC* v, Lookup* q, Counters* counters) noexcept nogil
cdef int probe_tables(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil
# Many at once. ST_OK, or the code in *st.
cdef int probe_many(ReadStateC* v, Lookup* queries, size_t n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil

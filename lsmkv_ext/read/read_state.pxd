# What a reader sees: the memtables and tables of one moment, immutable once made. Publishing a new one is one assignment.
# A ReadState object keeps its memtables and tables alive; nogil code borrows the ReadStateC inside it.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from lsmkv_ext.block.block cimport BlockC
from lsmkv_ext.cache.block_cache cimport CacheC
from lsmkv_ext.limits cimport MAX_LEVELS
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.reader cimport ReadContext, TableC

cdef enum:
    # what one source says about a key
    ABSENT = 0
    FOUND = 1
    DELETED = 2
    FAILED = 3
    TIME_EVERY = 16             # of the sampled ones, one in so many is searched, to know how long that takes
    SAMPLE_EVERY = 64           # one in so many "no" verdicts is looked up in the index, to know what it saved

cdef extern from * nogil:
    """
    #ifndef LSMKV_COUNTERS
    #define LSMKV_COUNTERS 1
    #endif
    #if LSMKV_COUNTERS
    #define lsm_count(p, n) ((void)(*(p) += (n)))
    #else
    #define lsm_count(p, n) ((void)0)
    #endif
    """
    void lsm_count(uint64_t* p, uint64_t n) noexcept
    void lsm_count_double "lsm_count" (double* p, double n) noexcept
    enum:
        LSMKV_COUNTERS

# Each event is counted once; lookups, checks and positives are sums of these (engine.counters).
ctypedef struct LevelCounters:
    uint64_t negatives          # a healthy filter said no; begins at phase
    uint64_t true_positives     # it said maybe, and the key was there
    uint64_t false_positives
    uint64_t unfiltered         # the table has no filter, or the hint said not to ask
    uint64_t fail_open          # the table's filter is damaged
    uint64_t sampled
    uint64_t sampled_bytes
    uint64_t sampled_cached
    uint64_t sampled_disk
    double designed_fpr_sum     # over the checks: the designed rate of the filter asked
    uint64_t phase              # negatives counted elsewhere before, so that samples are picked as if in one row

ctypedef struct Counters:
    LevelCounters levels[MAX_LEVELS]
    uint64_t gets
    uint64_t gets_found
    uint64_t memtable_hits
    uint64_t row_hits           # answered by the row cache
    uint64_t shadow_checks
    uint64_t shadow_wrong
    uint64_t cache_timed        # sampled negatives whose cached block was searched all the same, for its cost
    uint64_t cache_timed_ns
    uint64_t shadow_period      # a setting: every so many negatives of a level one is proved by reading; 0 = never

# What a lookup that ends at the filter needs of a table, in one cache line: the table itself stays untouched.
ctypedef struct TableSlot:
    uint64_t first8             # of the table's smallest and largest key, the 8 bytes behind the state's common prefix:
    uint64_t last8              # nearly always enough to compare
    const uint8_t* bits         # of its filter
    uint64_t n_blocks
    double designed_fpr
    TableC* t
    uint32_t k                  # 0: no healthy filter of the database's seed; then ask t.filter
    bint foreign                # hashed with another seed than the database's
    uint64_t padding

ctypedef struct LevelC:
    int n
    TableSlot* slots            # a multiple of 64 bytes away from zero
    uint64_t* last8             # of each slot, side by side for the search

ctypedef struct ReadStateC:
    uint64_t seed               # of the hashes that lookups in this state take
    int n_memtables
    MemC** memtables            # newest first; [0] is the one being written
    int n_levels
    LevelC levels[MAX_LEVELS]   # [0] newest first, deeper ones by key
    TableC** flat[MAX_LEVELS]   # the same tables, as bare pointers, for merges
    int bottom                  # deepest level with tables, -1 = none
    int n_deep                  # levels below L0 that have tables
    int deep[MAX_LEVELS]        # which
    const char* common          # borrowed from a table: the bytes that all bounds of all tables begin with
    size_t common_len
    bint table_ranges           # some table holds range tombstones
    CacheC* cache               # borrowed; NULL while there is no table
    int hit_bias                    # rises with each get that a table answers, sinks with each that none does; GIL held

ctypedef struct Lookup:
    const char* key
    size_t klen
    uint64_t hash               # with the state's seed
    uint64_t snapshot
    bint skip_bottom_filter
    bint found
    const char* value           # into a memtable the state holds, or into `pinned`
    size_t vlen
    BlockC* pinned              # the caller unpins it after copying (NULL is fine)
    TableC* owner
    const void* ahead           # the deepest table's slot, where prefetch_lookup has found its block; or NULL
    uint32_t ahead_block

# Before a lookup, so that its misses overlap: sends for the memtables' slots and, where gets usually find their key in a
# table, for the block of the deepest table as well.
cdef void prefetch_lookup(const ReadStateC* v, Lookup* q, bint to_tables) noexcept nogil
# What the memtables say, and if that is nothing, what the tables do (FAILED: *st says why). With rc.gil_held, a value in a cached
# block is good until the GIL is let go.
cdef int probe_memtables(const ReadStateC* v, Lookup* q, Counters* counters) noexcept nogil
cdef int probe_tables(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil
# Many at once: hashes, filter lines and blocks are prefetched a group at a time.
cdef int probe_many(ReadStateC* v, Lookup* queries, size_t n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil
# The 8 bytes behind the common prefix. False: the key lies outside of every table.
cdef bint read_state_key8(const ReadStateC* v, const char* key, size_t klen, uint64_t* key8) noexcept nogil
# The table of a sorted level whose range holds the key, or NULL. key8: of read_state_key8.
cdef TableSlot* level_find(const LevelC* level, uint64_t key8, const char* key, size_t klen) noexcept nogil
cdef bint table_range_holds(const TableC* t, const char* key, size_t klen) noexcept nogil
# After work off the GIL, with the GIL held again: frees the blocks it evicted.
cdef void read_state_drain(ReadStateC* v) noexcept nogil
# Zero, with the settings and the place in the sampling of another: for a call off the GIL, added up when it is back.
cdef void counters_start(Counters* c, const Counters* like) noexcept nogil
cdef void counters_add(Counters* into, const Counters* other) noexcept nogil


cdef class ReadState:
    cdef ReadStateC c
    cdef readonly list memtables
    cdef readonly list levels
    cdef int _cut_common(self) except -1
    cdef int _add_level(self, int level, list tables) except -1
    cdef void _fill_slot(self, TableSlot* slot, TableC* t) noexcept

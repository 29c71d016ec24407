# What a reader sees: the memtables and tables of one moment, immutable once made. A tree publishes a new one by one assignment.
# A ReadState object keeps its memtables and tables alive; nogil code borrows the ReadStateC inside it.
#
# GIL-protected: hit_bias and seek_debt, the two fields that change

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from lsmkv_ext.cache.block_cache cimport CacheC
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.counters cimport MAX_LEVELS
from lsmkv_ext.table.reader cimport TableC

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
    TableSlot* slots            # 64-byte aligned
    uint64_t* last8             # of each slot, side by side for the search

ctypedef struct ReadStateC:
    uint64_t seed               # of the hashes that lookups in this state take
    int n_memtables
    MemC** memtables            # newest first; [0] is the active one
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
    int hit_bias                # rises with each get that a table answers, sinks with each that none does
    uint64_t seek_debt          # tables of L0 that seeks looked into besides the first
    uint64_t seek_limit         # from this debt on merging L0 is cheaper

# Call with the GIL held after work off the GIL: frees the blocks it evicted.
cdef void read_state_drain(ReadStateC* v) noexcept nogil


cdef class ReadState:
    cdef ReadStateC c
    cdef readonly list memtables
    cdef readonly list levels
    cdef int cut_common(self) except -1
    cdef int add_level(self, int level, list tables) except -1
    cdef void fill_slot(self, TableSlot* slot, TableC* t) noexcept


# Raises a failed read. Corruption names the table's file, the rest `path`.
cdef int raise_read(ReadState state, const Status* st, object path) except -1

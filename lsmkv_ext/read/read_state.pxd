# The memtables and tables of one moment, as a reader sees them. Immutable; a tree publishes a new one with one assignment. A
# ReadState object keeps its memtables and tables alive; nogil code borrows the ReadStateC inside it.
#
# GIL-protected: hit_bias, seek_debt and dead_debt, the only fields that change. The states of a tree share its dead spans.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from lsmkv_ext.cache.block_cache cimport CacheC
from lsmkv_ext.filter.fuse cimport FuseGeometry
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.counters cimport MAX_LEVELS
from lsmkv_ext.read.dead_spans cimport DeadSpans
from lsmkv_ext.table.reader cimport TableC
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC

# The fields of a table that a lookup reads up to its filter, in one cache line. A table that its filter rules out is not touched.
ctypedef struct TableSlot:
    uint64_t first8             # of the smallest key, the 8 bytes after the state's common prefix, as a big-endian number
    uint64_t last8              # the same of the largest key; the two decide nearly every comparison
    const uint8_t* bits         # of the filter
    uint64_t n_blocks
    double designed_fpr
    TableC* t
    uint32_t k                  # 0: no healthy Bloom filter with the state's seed; t.filter tells why
    bint foreign                # the table's seed is not the state's (ingested tables)
    FuseGeometry fuse           # width 0: no healthy fuse filter with the state's seed. With one, k and n_blocks are 0

ctypedef struct LevelC:
    int n
    TableSlot* slots            # 64-byte aligned
    uint64_t* last8             # of each slot, contiguous for the search

ctypedef struct ReadStateC:
    uint64_t seed               # of the hashes of lookups in this state
    int n_memtables
    MemC** memtables            # newest first; [0] is the active one
    int n_levels
    LevelC levels[MAX_LEVELS]   # [0] newest first, deeper ones by key
    TableC** flat[MAX_LEVELS]   # the same tables as plain pointers, for merges
    int bottom                  # deepest level with tables, -1 = none
    int n_deep                  # levels below L0 that have tables
    int deep[MAX_LEVELS]        # their numbers
    const char* common          # borrowed from a table: the prefix that the smallest and largest keys of all tables share
    size_t common_len
    bint table_tombstones       # some table has range tombstones
    bint fused                  # some slot has a fuse filter
    ValueLogC** value_logs      # that tables point into, by number. Those of memtables: MemC.value_logs
    Py_ssize_t n_value_logs
    CacheC* cache               # borrowed; NULL while there is no table
    int hit_bias                # +1 for each get that a table answers, -1 for each that none does; saturates
    uint64_t seek_debt          # L0 tables that seeks have searched, without the first of each seek
    uint64_t seek_limit         # above this debt, compacting L0 is cheaper
    uint64_t dead_debt          # tombstones of tables that scans have passed

# GIL held, after work without the GIL: frees the blocks that it evicted.
cdef void read_state_drain(ReadStateC* v) noexcept nogil


cdef class ReadState:
    cdef ReadStateC c
    cdef readonly list memtables
    cdef readonly list levels
    cdef readonly DeadSpans spans
    cdef int find_common_prefix(self) except -1
    cdef int add_level(self, int level, list tables) except -1
    cdef int add_value_logs(self) except -1
    cdef void fill_slot(self, TableSlot* slot, TableC* t) noexcept


# Raises the exception for a failed read. CorruptionError names the file of the table or value log, others name `path`.
cdef int raise_read(ReadState state, const Status* st, object path) except -1

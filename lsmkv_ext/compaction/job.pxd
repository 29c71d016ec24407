# Flush and compaction: merges the inputs, drops dead entries, writes tables, all in one nogil region. Other threads read the
# progress and set `cancelled` meanwhile, with atomic loads and stores.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.memtable.order cimport MemOrder
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.merge cimport MergeC
from lsmkv_ext.read.tombstones cimport RangeSweep
from lsmkv_ext.table.builder cimport BuilderC, BuilderOptions
from lsmkv_ext.table.meta cimport TableMetaC
from lsmkv_ext.table.reader cimport ReadContext, TableC
from lsmkv_ext.values.reader cimport ValueLogC
from lsmkv_ext.values.writer cimport ValueWriterC

ctypedef struct Interval:       # [start, stop]; keys are borrowed
    const char* start
    size_t start_len
    const char* stop
    size_t stop_len
    uint64_t weight             # of a grandparent: bytes of its file

ctypedef struct JobInput:
    MemC* memtable              # read up to (chunk, offset); NULL: the input is `tables`
    ArenaChunk* chunk
    size_t offset
    TableC** tables             # disjoint tables in key order
    int n_tables

ctypedef struct JobC:
    JobInput* inputs            # owned, with the arrays in them
    int n_inputs
    const char* directory       # borrowed
    uint64_t* next_number       # borrowed; atomic: the jobs of a database share it
    const char* start           # of a subcompaction: its keys are [start, stop); NULL = unbounded
    size_t start_len
    const char* stop
    size_t stop_len
    BuilderOptions options
    uint64_t target_size
    bint single_output
    bint drop_filter_if_bottom
    bint newest_by_seq          # repair: the levels are lost, so of equal keys the larger sequence number wins
    bint keep_deletes           # older tables may be below: no tombstone is dropped
    ValueLogC** value_logs      # that entries point into, by number, and `own`; borrowed
    Py_ssize_t n_value_logs
    const uint64_t* collected   # numbers of the value logs whose values are copied to a new one; borrowed
    Py_ssize_t n_collected
    uint64_t large_value        # values of so many bytes go to a value log; UINT64_MAX: none does
    int value_compression
    uint64_t now                # entries with an expiry up to it are expired: they become tombstones. 0: none is
    Interval* below             # owned; disjoint, sorted: the key ranges of older tables
    size_t n_below
    size_t below_at             # the first that ends at or after the current key
    Interval* grandparents      # owned; sorted: the ranges of the tables below the output level
    size_t n_grandparents
    size_t grandparent_at       # likewise
    uint64_t grandparent_overlap    # bytes of grandparents that the open output overlaps
    uint64_t max_grandparent_overlap
    # State of the run.
    MergeC merge
    MemOrder** orders           # owned
    int n_orders
    ReadContext rc
    RangeSweep sweep            # its fragment is the first one not yet written to its end
    ValueWriterC values         # the new value log, once it has a value
    ValueLogC own               # its number and identity
    BuilderC builder
    bint open                   # an output is open
    char* first_key             # of the open output; owned
    size_t first_len
    char* cut                   # where the open output begins; its range tombstones are clipped to it. Owned, NULL = unbounded
    size_t cut_len
    uint64_t number             # of the open output
    TableMetaC* outputs         # owned
    int n_outputs
    size_t cap_outputs
    uint64_t entries_in
    uint64_t entries_out
    uint64_t dropped_deletes
    uint64_t dropped_covered
    uint64_t expired
    uint64_t expired_bytes      # keys and values of these
    uint64_t bytes_written
    uint64_t values_copied      # to the new value log
    GrowBuf damaged_values      # uint64_t each: numbers of value logs that have to stay, because a value in them is damaged
    uint64_t filter_build_ns
    uint64_t filter_verify_ns
    int cancelled               # atomic

# On failure no output is left behind.
cdef int job_run(JobC* j, Status* st) noexcept nogil


cdef class FileNumbers:
    cdef uint64_t value


cdef class Job:
    cdef JobC j
    cdef object keep            # the objects that the pointers borrow from
    cdef bytes directory
    cdef FileNumbers numbers
    cdef uint64_t input_bytes
    cdef uint64_t input_entries
    cdef bint ran
    cdef int set_value_logs(self, collect) except -1

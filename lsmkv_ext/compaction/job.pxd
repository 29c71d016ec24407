# Flush and compaction, one routine: merge the inputs, drop what is dead, write tables. One nogil region from the first byte to
# the last; progress and cancel are plain words that other threads may look at meanwhile.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.memtable.memtable cimport ArenaChunk, MemC, MemOrder
from lsmkv_ext.read.merge cimport MergeC
from lsmkv_ext.read.tombstones cimport RangeSweep
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.builder cimport BuilderC, BuilderOptions
from lsmkv_ext.table.meta cimport TableMetaC
from lsmkv_ext.table.reader cimport ReadContext, TableC

ctypedef struct Interval:       # [start, stop], borrowed
    const char* start
    size_t start_len
    const char* stop
    size_t stop_len
    uint64_t weight

ctypedef struct JobInput:
    MemC* memtable              # with the end of what belongs to the job, or
    ArenaChunk* chunk
    size_t offset
    TableC** tables             # a sorted run of tables
    int n_tables

ctypedef struct JobC:
    JobInput* inputs
    int n_inputs
    const char* directory
    uint64_t* next_number
    const char* start           # the job's part of the keys, [start, stop); NULL: from the first, to the last
    size_t start_len
    const char* stop
    size_t stop_len
    BuilderOptions options
    uint64_t target_size
    bint single_output
    bint drop_filter_if_bottom
    bint newest_by_seq          # repair: levels are not known, so of equal keys the larger sequence number wins
    bint keep_deletes           # nothing is known about what lies below
    Interval* below             # disjoint, sorted: where older tables have keys
    size_t n_below
    size_t below_at
    Interval* grandparents
    size_t n_grandparents
    size_t grandparent_at
    uint64_t grandparent_overlap
    uint64_t max_grandparent_overlap
    # while it runs
    MergeC merge
    MemOrder** orders
    int n_orders
    ReadContext rc
    RangeSweep sweep            # on the first range tombstone that was not yet written to its end
    BuilderC builder
    bint open
    char* first_key             # of the open output; owned
    size_t first_len
    char* cut                   # where the open output begins (its ranges are clipped to it); owned, NULL = from the start
    size_t cut_len
    uint64_t number
    TableMetaC* outputs
    int n_outputs
    int cap_outputs
    uint64_t entries_in
    uint64_t entries_out
    uint64_t dropped_deletes
    uint64_t dropped_covered
    uint64_t bytes_written
    uint64_t filter_build_ns
    uint64_t filter_verify_ns
    int cancelled

cdef int job_run(JobC* j, Status* st) noexcept nogil


cdef class FileNumbers:
    cdef uint64_t value


cdef class Job:
    cdef JobC j
    cdef object keep            # everything the pointers borrow from
    cdef bytes directory
    cdef FileNumbers numbers
    cdef uint64_t input_bytes
    cdef uint64_t input_entries
    cdef bint ran

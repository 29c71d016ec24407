# A scan of one read state up to one sequence number: the base of iterators and cursors. It merges the state's sources and copies
# live entries out in chunks: small ones with the GIL held (a seek and a few steps), large ones without the GIL.
#
# A Scan belongs to one thread; `busy` detects a second one. Subclasses read the items of the chunk in place (item_key,
# item_value), so a step within a chunk calls nothing in this module.
#
# GIL-protected: every field, except for `c` while `busy`

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.memtable.order cimport MemOrder
from lsmkv_ext.port.handle cimport Dependent
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.port.wall_clock cimport Moment
from lsmkv_ext.read.dead_spans cimport DeadRun
from lsmkv_ext.read.merge cimport MergeC
from lsmkv_ext.read.read_state cimport ReadState, ReadStateC
from lsmkv_ext.read.tombstones cimport Fragments
from lsmkv_ext.table.reader cimport ReadContext, TableC

cdef enum:                      # where a chunk starts
    FROM_EDGE = 0
    FROM_KEY = 1
    CONTINUE = 2

cdef enum:
    POINTER_ITEM = 0x80000000   # above the size of any value

ctypedef struct ChunkItem:
    size_t at                   # offset of the key in the chunk's data; the value follows it
    uint32_t klen
    uint32_t vlen               # with POINTER_ITEM: the value is a pointer

ctypedef struct Chunk:
    char* data                  # owned
    size_t used
    size_t capacity
    ChunkItem* items            # owned
    int n
    int cap_items

ctypedef struct Bound:
    char* key                   # owned; NULL = unbounded
    size_t n
    bint inclusive

ctypedef struct ScanC:          # what filling a chunk needs
    const ReadStateC* state     # borrowed
    uint64_t snapshot
    Moment moment
    MergeC merge
    Fragments fragments
    bint search_memtables       # a memtable has too many range tombstones to flatten: search it for each entry
    uint64_t dead               # deleted entries passed one by one
    DeadRun run                 # those in a row
    Bound lower
    Bound upper
    bint want_value
    bint keep_pointers          # items get the pointer of a value in a value log, not the value
    ReadContext rc
    Status st
    Chunk chunk
    int chunk_limit             # most items of the next chunk

# For a subclass that takes entries elsewhere than into the chunk. It counts them in chunk.n, steps with merge_next, and ends with
# run_end.
# Begins a fill with an empty chunk, and seeks unless it continues. ST_OK, or st.code.
cdef int scan_start(ScanC* s, int direction, int origin, const char* key, size_t klen, bint inclusive) noexcept nogil
# The current entry, if it is live, or the next one that is. NULL beyond the bound, and after a failure: then st says so.
cdef Entry* scan_entry(ScanC* s) noexcept nogil


cdef class Scan(Dependent):
    cdef ScanC c
    cdef Dependent owner        # the database or snapshot that made the scan, kept alive by it
    cdef ReadState state
    cdef bytes prefix           # of every key in the range; None: there is none
    cdef MemOrder** orders      # owned
    cdef int n_orders
    cdef int n_items            # of the chunk; 0 while it is being filled
    cdef int chunk_direction
    cdef uint64_t fetched       # items since the last seek
    cdef uint64_t dead_counted  # of c.dead, so many are in the database's counters
    cdef bint live              # the merge is past the chunk's last item, and more may follow in chunk_direction
    cdef bint open_
    cdef bint busy              # a thread is filling the chunk
    cdef int n_l0               # L0 tables that each seek searches

    # A new scan takes its arguments first (`configure`), which may run Python code. Then `attach` joins the owner's handle and
    # opens the sources. The caller has just taken the state: nothing that could close the owner may have run since.
    cdef int configure(self, start, stop, bint include_start, bint include_stop, prefix, bint want_value,
                       bint fill_cache) except -1
    # `now` is the time by which a snapshot judges expiries; 0: the time when the scan meets the first one.
    cdef int attach(self, Dependent owner, ReadState state, uint64_t snapshot, uint64_t now) except -1
    cdef int set_bounds(self, bytes start, bytes stop, bint include_start, bint include_stop) except -1
    cdef bint may_hold(self, const TableC* t)
    cdef bytes common_prefix(self)
    cdef int add_tables(self) except -1
    cdef int add_level(self, TableC** tables, int n) except -1
    cdef int add_memtables(self) except -1
    cdef int add_range_tombstones(self) except -1
    cdef int fail(self) except -1
    cdef int check(self) except -1
    cdef int make_room(self) except -1
    cdef int refill(self, int direction, int origin, const char* key, size_t klen, bint inclusive) except -1
    # After a fill, with the GIL: passes on what it found, and its counters.
    cdef int record_dead(self) noexcept
    cdef int add_counters(self, bint seeking) noexcept
    # Each calls `refill`, which replaces the chunk. The chunk is empty if nothing follows in that direction.
    cdef int from_bound(self, int direction) except -1          # the first chunk of the range in that direction
    # From `key` on (>= forward; <= or < backward), but never from outside the bounds.
    cdef int from_key(self, int direction, const char* key, size_t klen, bint inclusive) except -1
    cdef int next_chunk(self) except -1                         # the next chunk in the same direction
    cdef int reverse(self) except -1                            # in the other direction, from the first item (exclusive)


cdef str shortened(bytes key)         # for a repr


cdef inline int check_again(Scan scan) except -1:
    """After anything that may have closed it, in a loop that has called `check`."""
    return scan.check() if scan.handle.closed or not scan.open_ else 0


cdef inline object item_key(Scan scan, int i):
    return PyBytes_FromStringAndSize(scan.c.chunk.data + scan.c.chunk.items[i].at, scan.c.chunk.items[i].klen)


cdef inline object item_value(Scan scan, int i):
    cdef ChunkItem* item = &scan.c.chunk.items[i]
    return PyBytes_FromStringAndSize(scan.c.chunk.data + item.at + item.klen, item.vlen)

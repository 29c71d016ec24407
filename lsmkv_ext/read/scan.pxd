# A walk over one read state up to one sequence number: what iterators and cursors share. A Scan merges the state's sources and
# copies live entries out a chunk at a time: small chunks with the GIL held (a seek and a few steps), large ones off the GIL.
#
# A Scan belongs to one thread; `busy` catches a second one. Its subclasses read the chunk's items in place (item_key,
# item_value), so a step within a chunk calls nothing in here.
#
# GIL-protected: every field, except for `c` while `busy`

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.memtable.order cimport MemOrder
from lsmkv_ext.port.handle cimport Dependent
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.merge cimport MergeC
from lsmkv_ext.read.read_state cimport ReadState, ReadStateC
from lsmkv_ext.read.tombstones cimport Fragments
from lsmkv_ext.table.reader cimport ReadContext, TableC

ctypedef struct ChunkItem:
    size_t at                   # key, then value, in the chunk's bytes
    uint32_t klen
    uint32_t vlen

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
    MergeC merge
    Fragments fragments
    bint ask_memtables          # some memtable has too many range tombstones for the fragments
    Bound lower
    Bound upper
    bint want_value
    ReadContext rc
    Status st
    Chunk chunk
    int most                    # items of the next chunk


cdef class Scan(Dependent):
    cdef ScanC c
    cdef object owner           # the database or snapshot it came from: a walk keeps it open
    cdef ReadState state
    cdef MemOrder** orders      # owned
    cdef int n_orders
    cdef int n_items            # of the chunk; 0 while it is being filled
    cdef int chunk_direction
    cdef uint64_t fetched       # items since the last seek
    cdef bint live              # the merge stands behind the chunk's last item, in chunk_direction
    cdef bint open_
    cdef bint busy              # a thread is filling the chunk
    cdef int n_l0               # tables of L0 that every seek looks into

    cdef int setup(self, ReadState state, uint64_t snapshot, start, stop, bint include_start, bint include_stop, prefix,
                   bint want_value, bint fill_cache) except -1
    cdef int set_bounds(self, start, stop, bint include_start, bint include_stop, bytes prefix) except -1
    cdef bint may_hold(self, const TableC* t, bytes prefix)
    cdef bytes common_prefix(self)
    cdef int add_tables(self, bytes prefix) except -1
    cdef int add_level(self, TableC** tables, int n, bytes prefix) except -1
    cdef int add_memtables(self) except -1
    cdef int add_ranges(self) except -1
    cdef int fail(self) except -1
    cdef int check(self) except -1
    cdef int make_room(self) except -1
    cdef int refill(self, int direction, int place, const char* key, size_t klen, bint inclusive) except -1
    cdef int tally(self, bint seeking) noexcept
    # Each replaces the chunk. An empty chunk: there is nothing more in that direction.
    cdef int from_bound(self, int direction) except -1          # the first one of the range in that direction
    # From `key` on (>= forward; <= or < backward), but never from outside the bounds.
    cdef int from_key(self, int direction, const char* key, size_t klen, bint inclusive) except -1
    cdef int go_on(self) except -1                              # the next one in the same direction
    cdef int turn(self) except -1                               # in the other direction, from the first item on (exclusive)


cdef inline object item_key(Scan scan, int i):
    return PyBytes_FromStringAndSize(scan.c.chunk.data + scan.c.chunk.items[i].at, scan.c.chunk.items[i].klen)


cdef inline object item_value(Scan scan, int i):
    cdef ChunkItem* item = &scan.c.chunk.items[i]
    return PyBytes_FromStringAndSize(scan.c.chunk.data + item.at + item.klen, item.vlen)


# The key as bytes; any bytes-like object is copied.

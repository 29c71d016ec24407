# Ordered walks over a state. A Scan merges the state's sources and hands their entries out a chunk at a time: small chunks with the
# GIL kept (a seek and a few steps), large ones off the GIL. It sees one state: its state up to its sequence number.
#
# Iterator stands between entries (plyvel's way); Cursor stands on one.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.memtable.order cimport MemOrder
from lsmkv_ext.port.handle cimport Dependent, HandleC
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.merge cimport MergeC
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.read.tombstones cimport Fragments
from lsmkv_ext.table.reader cimport ReadContext, TableC

ctypedef struct ChunkItem:
    size_t at                   # key, then value, in the chunk's bytes
    uint32_t klen
    uint32_t vlen

ctypedef struct Bound:
    char* key                   # owned; NULL = unbounded
    size_t n
    bint inclusive

cdef class Scan(Dependent):
    cdef object owner           # the database or snapshot it came from: a walk keeps it open
    cdef ReadState state
    cdef uint64_t snapshot
    cdef MergeC merge
    cdef MemOrder** orders
    cdef int n_orders
    cdef Fragments fragments
    cdef bint probe_memtables     # some have too many range tombstones for the fragments
    cdef ReadContext rc
    cdef Status st
    cdef Bound lower
    cdef Bound upper
    cdef bint want_value
    # the chunk
    cdef char* bytes_
    cdef size_t used
    cdef size_t capacity
    cdef ChunkItem* items
    cdef int n_items
    cdef int cap_items
    cdef int chunk_direction
    cdef int next_size
    cdef uint64_t fetched       # items since the last seek
    cdef bint live              # the merge stands behind the chunk's last item, in chunk_direction
    cdef bint open_
    cdef bint busy              # a thread is filling the chunk off the GIL
    cdef int n_l0               # tables of L0 that every seek looks into

    cdef int setup(self, ReadState state, uint64_t snapshot, start, stop, bint include_start, bint include_stop, prefix,
                   bint want_value, bint fill_cache) except -1
    cdef bint may_hold(self, const TableC* t, bytes prefix)
    cdef bytes common_prefix(self)
    cdef int add_level(self, TableC** tables, int n, bytes prefix) except -1
    cdef int add_memtables(self) except -1
    cdef int add_ranges(self) except -1
    cdef int fail(self) except -1
    cdef object path_of(self, uint64_t number)
    cdef int tally(self, bint seeking) noexcept
    cdef int make_room(self) except -1
    cdef int from_bound(self, int direction) except -1
    cdef int from_key(self, int direction, const char* key, size_t klen, bint inclusive) except -1
    cdef int check(self) except -1
    cdef int refill(self, int direction, int place, const char* key, size_t klen, bint inclusive) except -1
    cdef int go_on(self) except -1
    cdef int turn(self, int at) except -1
    cdef object item_key(self, int i)
    cdef object item_value(self, int i)


cdef class Iterator(Scan):
    cdef int at                 # items in front of the gap
    cdef int forward            # 1, or -1 for reverse=True
    cdef int shape              # 0 pairs, 1 keys, 2 values
    cdef int started
    cdef object give(self, int i)
    cdef object step(self, int direction)


cdef class Cursor(Scan):
    cdef int on                 # the item it stands on, -1 none
    cdef int settle(self) except -1
    cdef bint move(self, int direction) except -1
    cdef int stand(self) except -1


cdef Iterator new_iterator(HandleC* handle, ReadState state, uint64_t snapshot, start, stop, bint include_start, bint include_stop,
                           prefix, bint reverse, bint include_key, bint include_value, bint fill_cache)
cdef Cursor new_cursor(HandleC* handle, ReadState state, uint64_t snapshot, start, stop, prefix, bint fill_cache)

# A Cursor is on an entry, as RocksDB's iterators are; an Iterator (read/iterator) is between two.

from libc.stdint cimport uint64_t
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.read.scan cimport Scan


cdef class Cursor(Scan):
    cdef int on                 # index of the current item, -1 = none
    cdef bint enter_chunk(self) noexcept
    cdef bint seek_key(self, int direction, object target) except -1
    cdef bint seek_edge(self, int direction) except -1
    cdef bint move(self, int direction) except -1
    cdef int require_entry(self) except -1


cdef Cursor new_cursor(HandleC* handle, ReadState state, uint64_t snapshot, start, stop, prefix, bint fill_cache)

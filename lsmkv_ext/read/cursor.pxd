# A Cursor is on an entry, as RocksDB's iterators are; an Iterator (read/iterator) is between two.

from lsmkv_ext.read.scan cimport Scan


cdef class Cursor(Scan):
    cdef int on                 # index of the current item, -1 = none
    cdef bint enter_chunk(self) noexcept
    cdef bint seek_key(self, int direction, object target) except -1
    cdef bint seek_edge(self, int direction) except -1
    cdef bint move(self, int direction) except -1
    cdef int require_entry(self) except -1


# Not attached yet. May run Python code.
cdef Cursor new_cursor(start, stop, prefix, bint fill_cache)

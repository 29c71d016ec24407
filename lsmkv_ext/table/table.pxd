# The Python class of an open SSTable: owns the TableC (table/reader.pxd) and keeps its caches alive.
#
# nogil code may use `c` for as long as its caller holds the Table.
# GIL-protected: _obsolete: mark_obsolete sets it, __dealloc__ appends to it

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.cache.block_cache cimport BlockCache
from lsmkv_ext.cache.fd_cache cimport FdCache
from lsmkv_ext.table.reader cimport TableC
from lsmkv_ext.values.reader cimport ValueLog


cdef class Table:
    cdef TableC* c                 # owned
    cdef readonly object path
    cdef readonly BlockCache cache
    cdef readonly FdCache fds
    cdef readonly str keyspace     # the name in the properties; "" for the default keyspace
    cdef readonly list value_logs  # the open ones that its entries point into
    cdef bytes _path               # c.handle.path points into it
    cdef list _obsolete
    cdef int born                  # fork_count when it was opened
    cdef uint64_t _number
    cdef object __weakref__
    cdef bint _is_empty(self)
    cdef ValueLog _value_log(self, uint64_t number)
    cdef object _value(self, const Entry* e)
    cdef int _decode_keyspace(self) except -1
    cdef str _block_codec(self, uint32_t i)
    cdef dict _describe_block(self, uint32_t i, bytes separator)

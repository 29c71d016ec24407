# The calls that write. They check keys and values and pass them to the engine. Background threads refer to the engine, never to
# the Store, so a Store without references is collected and closes itself.
#
# GIL-protected: every field

from libc.stdint cimport uint64_t

from lsmkv_ext.engine cimport Engine
from lsmkv_ext.reader cimport Reader
from lsmkv_ext.tree cimport Tree


cdef class Store(Reader):
    cdef Engine engine
    cdef int check_writable(self) except -1
    cdef int write_op(self, int op, object key, object value, uint64_t expiry, int sync) except -1
    cdef int put_from(self, object key, object file, object length, uint64_t expiry, int sync) except -1
    # The expiry of a put that asks for none; 0: none. The tree is not None.
    cdef uint64_t default_expiry(self) noexcept

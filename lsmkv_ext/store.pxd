# The calls that write, of the database: they check keys and values and hand them to the engine. The engine outlives a Store that
# nobody holds any more, so the background holds the engine and never the Store.
#
# GIL-protected: every field

from lsmkv_ext.engine cimport Engine
from lsmkv_ext.reader cimport Reader


cdef class Store(Reader):
    cdef Engine engine
    cdef int check_writable(self) except -1
    cdef int write_op(self, int op, object key, object value, int sync) except -1

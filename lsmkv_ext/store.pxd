# The calls that write. They check keys and values and pass them to the engine. Background threads refer to the engine, never to
# the Store, so a Store without references is collected and closes itself.
#
# GIL-protected: every field

from lsmkv_ext.engine cimport Engine
from lsmkv_ext.reader cimport Reader
from lsmkv_ext.tree cimport Tree


cdef class Store(Reader):
    cdef Engine engine
    cdef int check_writable(self) except -1
    cdef int write_op(self, int op, object key, object value, int sync) except -1

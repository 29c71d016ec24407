# A value of a value log as a buffer, without a copy: a mapping of the file. A value log never changes where it is readable, and
# the view holds it, so the bytes stay. After the disk fails, reading them is a SIGBUS; value_read would report it.

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.mapping cimport ValueMap
from lsmkv_ext.values.reader cimport ValueLog


cdef class ValueView:
    cdef ValueLog log
    cdef ValueMap map
    cdef const char* data       # the value, in the mapping
    cdef Py_ssize_t size

# Maps and checks the value of an uncompressed pointer. NULL-safe on failure: *st says why, and the result is None.
cdef ValueView value_view(ValueLog log, const ValuePointer* p, Status* st)

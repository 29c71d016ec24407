# Writes values again, the same bytes at the same place: after a failed fsync of an earlier process the kernel may treat their
# pages as clean, and a sync would prove nothing.

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC

# Writes a value that passes its checksums. `fd` is the file of `log`, open for writing.
cdef int rewrite_value(int fd, ValueLogC* log, const ValuePointer* p, Status* st) noexcept nogil


cdef class ValueRewriter:
    cdef int fd                 # owned
    cdef ValueLog log

# Follows the pointers of entries to their values in value logs.

from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.read_state cimport ReadState, ReadStateC
from lsmkv_ext.table.reader cimport ReadContext
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLogC

# Decodes the POINTER_SIZE bytes of a pointer in the state, and finds its value log. NULL with *st set; the value lies within the
# log otherwise, so its size is safe to allocate.
cdef ValueLogC* find_value(const ReadStateC* v, const char* pointer, ValuePointer* p, Status* st) noexcept nogil
# The value of a pointer in the state as a memoryview: of the file, or of bytes if it is compressed.
cdef object view_of_pointer(ReadState state, const char* pointer)
# Reads the value, p.raw bytes, and counts it in rc. With rc.gil_held it may release the GIL.
cdef int read_value(ValueLogC* log, const ValuePointer* p, char* out, ReadContext* rc, Status* st) noexcept nogil

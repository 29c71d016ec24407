# A large value as a file: read in any order, in little memory. It reads and checks one chunk at a time, and holds its value log.

from libc.stdint cimport uint64_t

from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ChunkReader, ValueLog


cdef class StoredValue:
    cdef ValueLog log
    cdef ChunkReader r          # its table has the stored sizes, its data the stored chunk
    cdef uint64_t* offsets      # owned: of the stored chunks in the file
    cdef char* chunk            # owned: chunk `at`
    cdef uint64_t at            # UINT64_MAX: none
    cdef int open(self, ValueLog log, const ValuePointer* p) except -1
    cdef int load(self, uint64_t i) except -1

# A binary file object over the value.
cdef object open_value_file(ValueLog log, const ValuePointer* p)

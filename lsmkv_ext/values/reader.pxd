# Reads values of a value log, checked. Layout: values/format.pxd.
#
# A ValueLogC is immutable except for its descriptor and `end`, which grows while the log is written. The Python class ValueLog
# owns it. Tables and memtables hold the ValueLogs that they point into, so whoever holds a read state or the inputs of a job may
# borrow the C struct. A value below `end` never changes.
#
# Reads fail with ST_CORRUPT and the offset in the file, ST_IO or ST_NO_MEMORY. They use pread: in a mapping, a disk error would
# be SIGBUS.

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from lsmkv_ext.cache.fd_cache cimport FdCache, FdCacheC, FdHandle
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.values.format cimport VALUE_HEADER, ValuePointer
from lsmkv_ext.values.mapping cimport ValueMap

cdef enum:
    PIECE_CHUNKS = 16           # chunks that a ChunkReader reads at a time

ctypedef struct ValueLogC:
    uint64_t number             # of the file
    uint64_t stored_number      # in its head: the same, or 0 if it was written for an ingest
    uint64_t identity
    uint64_t end                # of the bytes that may be read; atomic
    FdCacheC* fds               # borrowed; NULL = own descriptor
    FdHandle handle
    PyObject* owner             # borrowed: the ValueLog; NULL: there is none

# Reads the p.raw bytes of a value.
cdef int value_read(ValueLogC* v, const ValuePointer* p, char* out, Status* st) noexcept nogil
# Reads the bytes of an uncompressed value from the page cache, without waiting for the disk. Returns whether it did; if not,
# value_read reads them or says what is wrong.
cdef bint value_read_cached(ValueLogC* v, const ValuePointer* p, char* out) noexcept nogil
# The descriptor of the file, for a value that lies within it; until value_release.
cdef int value_acquire(ValueLogC* v, const ValuePointer* p, int* fd, Status* st) noexcept nogil
cdef void value_release(ValueLogC* v) noexcept nogil
# Checks an uncompressed value in memory, from its header to its chunk table.
cdef int value_check(const ValueLogC* v, const ValuePointer* p, const char* value, Status* st) noexcept nogil
# Checks all checksums of a value. Takes little memory.
cdef int value_verify(ValueLogC* v, const ValuePointer* p, Status* st) noexcept nogil


# The stored chunks of one value, piece by piece, for values of any size. Zero it, then chunks_begin; chunks_end in any case.
ctypedef struct ChunkReader:
    ValueLogC* log              # borrowed
    ValuePointer p
    char header[VALUE_HEADER]
    char* table                 # owned: the chunk table
    char* data                  # owned: the stored chunks [first, first + count), checked
    size_t n                    # bytes in `data`
    uint64_t first
    uint64_t count
    uint64_t offset             # of these bytes in the file

cdef int chunks_begin(ChunkReader* r, ValueLogC* v, const ValuePointer* p, Status* st) noexcept nogil
# Moves to the next piece. `r.count` is 0 after the last one.
cdef int chunks_next(ChunkReader* r, Status* st) noexcept nogil
cdef void chunks_end(ChunkReader* r) noexcept nogil
# Reads chunk `i` of the value that `r` has begun, chunk_size(raw, i) bytes, uncompressed and checked. `offset` is that of the
# stored chunk in the file, `buffer` has room for it.
cdef int chunk_read(ChunkReader* r, uint64_t i, uint64_t offset, char* buffer, char* out, Status* st) noexcept nogil


cdef class ValueLog:
    cdef ValueLogC* c           # owned
    cdef readonly str path
    cdef FdCache fds            # keeps c.fds alive
    cdef bytes _path            # c.handle.path points into it
    cdef ValueMap map           # GIL-protected: the newest mapping of the file; None: there was no view yet
    cdef int born               # fork_count when it was opened
    cdef list _released         # GIL-protected: __dealloc__ appends to it; None
    cdef object __weakref__

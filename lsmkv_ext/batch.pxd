# Operations gathered for one atomic write. The bytes are the payload of the log record they will become (docs/format.md).

from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    OP_PUT = 0
    OP_DELETE = 1
    OP_DELETE_RANGE = 2

ctypedef struct BatchC:
    char* data
    size_t used
    size_t capacity
    uint32_t count
    uint32_t deletes            # of these; range tombstones too
    uint64_t footprint          # what the entries will take in a memtable
    int writers                 # calls that read `data` and may let the GIL go meanwhile: it must not move or change

# Bytes-like arguments unpacked: bytes without a copy or a count, everything else through the buffer protocol.
ctypedef struct Slice:
    const char* data
    size_t n

cdef enum:
    MAX_BATCH_COUNT = (1 << 24) - 1
    MAX_BATCH_BYTES = 0x7ff00000        # 2 GiB less 1 MiB; a literal, since 1 << 31 overflows a C int

cdef int batch_add(BatchC* b, int op, const char* key, size_t klen, const char* value, size_t vlen) except -1
cdef char* encode_op(char* p, int op, const char* key, size_t klen, const char* value, size_t vlen) noexcept nogil
cdef size_t encoded_size(int op, size_t klen, size_t vlen) noexcept nogil

cdef int refuse_key(object key, Py_ssize_t n) except -1
cdef int refuse_value(Py_ssize_t n) except -1
cdef int refuse_sync() except -1


cdef class WriteBatch:
    cdef BatchC b
    cdef object engine
    cdef object sync
    cdef bint transaction

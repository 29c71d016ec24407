# The hashes of the keys that a filter of the public family is given: of one key, or of many chunk by chunk. Many keys are an
# iterable of bytes-like objects, or a column (arrow/reader). Plain `bytes` and columns are hashed with the GIL released.
#
# take starts a chunk with the GIL held, hash_taken completes its hashes without it, and check raises what it found; repeat until
# take returns 0. A KeyHasher belongs to one call.

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from lsmkv_ext.arrow.reader cimport ColumnReader
from lsmkv_ext.port.bytes_like cimport get_bytes_view
from lsmkv_ext.port.codecs cimport xxh3

cdef enum:
    HASH_CHUNK = 4096             # keys per release of the GIL: long enough to pay for retaking it


cdef inline int hash_key(object key, uint64_t seed, uint64_t* out) except -1:
    cdef Py_buffer view
    if PyBytes_CheckExact(key):
        out[0] = xxh3(PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key), seed)
        return 0
    get_bytes_view(key, &view)
    out[0] = xxh3(<const char*>view.buf if view.len else <const char*>b"", <size_t>view.len, seed)
    PyBuffer_Release(&view)
    return 0


cdef class KeyHasher:
    cdef ColumnReader column      # the keys, if they came as a column
    cdef int64_t row              # of its chunk: the first one that take has not returned yet
    cdef int64_t rows_before      # in its earlier chunks
    cdef int problem              # what column_rows found, and where
    cdef int64_t bad
    cdef list sequence            # the keys, if they came as a list
    cdef Py_ssize_t position      # in it
    cdef object keys              # an iterator otherwise
    cdef list chunk               # owns the keys behind `pointers`
    cdef uint64_t seed
    cdef uint64_t* hashes         # owned
    cdef const char** pointers    # owned; NULL if the hash is already known
    cdef size_t* lengths          # owned
    cdef Py_ssize_t take(self) except -1
    cdef Py_ssize_t _take_rows(self) except -1
    cdef list _next_chunk(self)
    # Whether all n keys have a hash. If not, check raises the reason.
    cdef bint hash_taken(self, Py_ssize_t n) noexcept nogil
    cdef int check(self) except -1

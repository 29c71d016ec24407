# The hashes of the keys that a BlockedBloom is given: of one key, or of an iterable of keys chunk by chunk, plain `bytes` with
# the GIL released.
#
# take fills a chunk with the GIL held, hash_taken completes its hashes without it; repeat until take returns 0. A KeyHasher
# belongs to one call.

from cpython.buffer cimport Py_buffer, PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

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
    cdef list sequence            # the keys, if they came as a list
    cdef Py_ssize_t position      # in it
    cdef object keys              # an iterator otherwise
    cdef list chunk               # owns the keys behind `pointers`
    cdef uint64_t seed
    cdef uint64_t* hashes         # owned
    cdef const char** pointers    # owned; NULL if the hash is already known
    cdef size_t* lengths          # owned
    cdef Py_ssize_t take(self) except -1
    cdef list _next_chunk(self)
    cdef void hash_taken(self, Py_ssize_t n) noexcept nogil

# BlockedBloom, the public filter, and the hasher of its keys. The data plane itself uses filter/kernel.

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.filter.kernel cimport FilterC
from lsmkv_ext.port.pthread cimport pthread_mutex_t


cdef class _Hasher:
    cdef list sequence            # the keys, where they came as a list
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


cdef class BlockedBloom:
    cdef FilterC f
    cdef uint8_t* bits            # owned; f.bits is the same address
    cdef size_t n_bytes
    # Held by writers, and by readers that need a consistent copy. Probes take no lock. No holder waits for the GIL.
    cdef pthread_mutex_t mutex
    cdef bint made                # __init__ or from_bytes has run
    cdef int _own(self, uint64_t n_blocks) except -1
    cdef void _add_hashes(self, const uint64_t* hashes, size_t n) noexcept nogil
    cdef bint _add_one(self, object key) except -1              # whether it was new

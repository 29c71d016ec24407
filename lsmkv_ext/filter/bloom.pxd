# BlockedBloom, the public filter. The data plane itself uses filter/kernel.

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.filter.kernel cimport FilterC
from lsmkv_ext.port.pthread cimport pthread_mutex_t


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

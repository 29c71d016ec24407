# BlockedBloom, the public filter. The data plane itself uses filter/kernel.
#
# Threads without the GIL and, in a mapped file (filter/shared_file), other processes add at the same time: filter/concurrent_bits
# has the locking. Probes take no lock.
#
# GIL-protected: users, file, and which memory `bits` is

from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.filter.concurrent_bits cimport BitsC
from lsmkv_ext.filter.kernel cimport FilterC
from lsmkv_ext.filter.key_filter cimport GrowingFilter


cdef class BlockedBloom(GrowingFilter):
    cdef FilterC f                # f.n_keys is not kept up to date: see n_added
    cdef uint8_t* bits            # f.bits and to_change.bits are the same address; NULL once a shared filter is closed
    cdef size_t n_bytes
    cdef BitsC to_change
    cdef uint64_t* n_added        # atomic; &f.n_keys, or in the mapped file
    cdef bint made                # __init__, from_bytes or open_shared has run
    cdef object file              # SharedFile, whose mapping `bits` lies in; None: `bits` is owned
    cdef Py_buffer mapping        # of that file; owned if `mapped`
    cdef bint mapped
    cdef int users                # calls that work without the GIL: close refuses meanwhile
    cdef int born                 # fork_count when the file was opened
    cdef int _own(self, uint64_t n_blocks, uint32_t k, bint huge_pages, bint prefault) except -1
    cdef void _release(self) noexcept
    cdef int _refuse(self) except -1
    cdef bint add_hash(self, uint64_t h) noexcept nogil
    cdef size_t add_hashes(self, const uint64_t* hashes, size_t n) noexcept nogil

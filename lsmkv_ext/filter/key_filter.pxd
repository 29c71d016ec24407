# The base of the filters for Python: from keys to hashes, and everything that is the same for all of them.
#
# A filter overrides the hooks below. A call that passes many keys runs between _begin and _end.

from libc.stdint cimport uint8_t, uint64_t

# Of the n bytes that tell filters of equal parameters apart, for digest().
cdef uint64_t fingerprint(const uint8_t* bits, size_t n) noexcept nogil


cdef class KeyFilter:
    cdef uint64_t hash_seed
    cdef int _check(self) except -1                  # raises if the filter cannot be used: it is closed
    cdef int _begin(self) except -1
    cdef void _end(self) noexcept
    cdef bint _test_hash(self, uint64_t h) except -1
    # Called without the GIL; those that need it take it.
    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil    # out[i]: 1 maybe, 0 no


cdef class GrowingFilter(KeyFilter):
    # Whether the hash set something that was not set before.
    cdef bint _add_hash(self, uint64_t h) except -1
    cdef int _add_hashes(self, const uint64_t* hashes, size_t n) except -1 nogil      # as _test_hashes

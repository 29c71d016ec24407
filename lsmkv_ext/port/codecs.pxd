# Typed pointers to the C functions inside the lz4 and xxhash packages, resolved once at import; any nogil
# code calls them. Where a build hides them, the fallbacks go through the packages' Python API under the GIL.

from libc.stdint cimport uint64_t

ctypedef uint64_t (*xxh3_fn)(const void* data, size_t n, uint64_t seed) noexcept nogil
ctypedef int (*xxh3_pair_fn)(const void* a, size_t n, const void* b, size_t m, uint64_t seed, uint64_t* out) noexcept nogil
ctypedef int (*lz4_compress_fn)(const char* src, char* dst, int n, int capacity) noexcept nogil
ctypedef int (*lz4_decompress_fn)(const char* src, char* dst, int n, int capacity) noexcept nogil

cdef xxh3_fn xxh3              # XXH3_64bits_withSeed
# The same hash of two pieces as if they stood one behind the other: 0, or -1 without memory.
cdef xxh3_pair_fn xxh3_pair
cdef lz4_compress_fn lz4_compress        # bytes written, 0 where it does not fit
cdef lz4_decompress_fn lz4_decompress    # bytes written, negative on damage


cdef inline int lz4_bound(int n) noexcept nogil:
    return n + n // 255 + 16

# Typed pointers to the C functions inside the lz4 and xxhash packages, resolved at import and called without the GIL. Where a
# build of a package hides them, fallbacks call its Python API under the GIL.
#
# GIL-protected: the pointers; `use` changes them, and either choice gives the same bytes

from libc.stdint cimport uint64_t

ctypedef uint64_t (*xxh3_fn)(const void* data, size_t n, uint64_t seed) noexcept nogil
ctypedef int (*xxh3_pair_fn)(const void* a, size_t n, const void* b, size_t m, uint64_t seed, uint64_t* out) noexcept nogil
ctypedef int (*lz4_compress_fn)(const char* src, char* dst, int n, int capacity) noexcept nogil
ctypedef int (*lz4_decompress_fn)(const char* src, char* dst, int n, int capacity) noexcept nogil

cdef xxh3_fn xxh3              # XXH3_64bits_withSeed
# The same hash of the concatenation of two pieces. Returns 0, or -1 if out of memory.
cdef xxh3_pair_fn xxh3_pair
cdef lz4_compress_fn lz4_compress        # bytes written; 0 if they do not fit
cdef lz4_decompress_fn lz4_decompress    # bytes written; negative on damage


cdef inline int lz4_bound(int n) noexcept nogil:
    return n + n // 255 + 16

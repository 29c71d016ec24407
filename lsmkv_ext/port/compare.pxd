# Key order: memcmp, then the shorter key first.

from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_COMPARE_H
    #define LSMKV_COMPARE_H
    #include <stdint.h>
    #include <string.h>
    static inline int lsm_compare(const char* a, size_t an, const char* b, size_t bn) {
        size_t n = an < bn ? an : bn;
        if (n >= 8) {
            uint64_t x, y; memcpy(&x, a, 8); memcpy(&y, b, 8);
            if (x != y) { x = __builtin_bswap64(x); y = __builtin_bswap64(y); return x < y ? -1 : 1; }
        }
        int r = n ? memcmp(a, b, n) : 0;
        if (r) return r;
        return an < bn ? -1 : (an > bn ? 1 : 0);
    }
    /* the first 8 bytes as a big-endian number, zero padded: where two differ, they order as memcmp does */
    static inline uint64_t lsm_prefix8(const char* p, size_t n) {
        uint64_t x = 0;
        if (n >= 8) { memcpy(&x, p, 8); return __builtin_bswap64(x); }
        for (size_t i = 0; i < n; i++) x |= (uint64_t)(unsigned char)p[i] << (56 - 8 * i);
        return x;
    }
    #endif
    """
    int lsm_compare(const char* a, size_t an, const char* b, size_t bn) noexcept
    uint64_t lsm_prefix8(const char* p, size_t n) noexcept

# The smallest key greater than every key with this prefix, or None if there is none.
cpdef bytes prefix_end(bytes prefix)

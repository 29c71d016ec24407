# The monotonic clock.

from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_CLOCK_H
    #define LSMKV_CLOCK_H
    #include <stdint.h>
    #include <time.h>
    static inline uint64_t lsm_now_ns(void) {
        struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
    }
    #endif
    """
    uint64_t lsm_now_ns() noexcept

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    static inline uint64_t lsmkv_read_clock(clockid_t id) {
        struct timespec t;
        clock_gettime(id, &t);
        return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
    }
    static inline uint64_t lsmkv_clock_ns(void) { return lsmkv_read_clock(CLOCK_MONOTONIC); }
    static inline uint64_t lsmkv_thread_ns(void) { return lsmkv_read_clock(CLOCK_THREAD_CPUTIME_ID); }
    """
    uint64_t lsmkv_clock_ns() noexcept nogil
    uint64_t lsmkv_thread_ns() noexcept nogil   # CPU time of the calling thread

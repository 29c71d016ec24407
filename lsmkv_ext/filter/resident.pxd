# Which pages the memory of a filter is in, and whether it is resident.

cdef extern from * nogil:
    """
    #ifndef LSMKV_RESIDENT_H
    #define LSMKV_RESIDENT_H
    #include <stddef.h>
    #include <sys/mman.h>
    static inline void lsm_madvise_small(void* p, size_t n) {
    #ifdef MADV_NOHUGEPAGE
        (void)!madvise(p, n, MADV_NOHUGEPAGE);
    #endif
        (void)p; (void)n;
    }
    static inline void lsm_populate(void* p, size_t n, int whole_pages) {
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
        if (whole_pages && madvise(p, n, MADV_POPULATE_WRITE) == 0) return;
        for (size_t i = 0; i < n; i += 4096) *((volatile char*)p + i) = 0;
    }
    #endif
    """
    void lsm_madvise_small(void* p, size_t n) noexcept                      # whole pages: no huge ones
    void lsm_populate(void* p, size_t n, bint whole_pages) noexcept         # makes fresh zero memory resident

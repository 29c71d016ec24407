# Memory in whole pages, and mappings of files: the one place that declares mmap and madvise.
#
# Large pieces have pages of their own, which go back to the system when freed; malloc may keep them below live pieces of its
# heap. Random access to more than a few MiB needs huge pages, or each cache miss also costs a page walk.

from libc.stdint cimport uint64_t

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int madvise(void* addr, size_t n, int advice)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MADV_DONTNEED
    void* MAP_FAILED

cdef enum:
    PAGE = 4096
    HUGE_PAGE = 2 << 20
    CACHE_LINE = 64


cdef inline uint64_t page_floor(uint64_t n) noexcept nogil:
    return n & ~<uint64_t>(PAGE - 1)


cdef inline uint64_t page_ceil(uint64_t n) noexcept nogil:
    return (n + PAGE - 1) & ~<uint64_t>(PAGE - 1)


cdef extern from * nogil:
    """
    #ifndef LSMKV_PAGES_H
    #define LSMKV_PAGES_H
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #define LSM_HUGE_PAGE ((size_t)2 << 20)
    /* below this, malloc's heap is cheaper than a system call and page faults */
    #define LSM_PAGES_MAPPED ((size_t)256 << 10)

    static inline void* lsm_map_pages(size_t n) {
        void* p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }

    static inline void lsm_unmap_pages(void* p, size_t n) { munmap(p, n); }

    static inline void lsm_madvise_huge(void* p, size_t n) {
    #ifdef MADV_HUGEPAGE
        (void)!madvise(p, n, MADV_HUGEPAGE);
    #else
        (void)p; (void)n;
    #endif
    }

    static inline void lsm_madvise_huge_within(void* p, size_t n) {
        uintptr_t from = ((uintptr_t)p + LSM_HUGE_PAGE - 1) & ~(uintptr_t)(LSM_HUGE_PAGE - 1);
        uintptr_t to = ((uintptr_t)p + n) & ~(uintptr_t)(LSM_HUGE_PAGE - 1);
        if (to > from) lsm_madvise_huge((void*)from, to - from);
    }

    static inline void* lsm_map_aligned(size_t n, size_t alignment) {
        if (n > SIZE_MAX - alignment) return NULL;
        char* p = (char*)lsm_map_pages(n + alignment);
        if (p == NULL) return NULL;
        char* at = (char*)(((uintptr_t)p + alignment - 1) & ~(uintptr_t)(alignment - 1));
        char* end = (char*)(((uintptr_t)at + n + 4095) & ~(uintptr_t)4095);
        if (at > p) munmap(p, (size_t)(at - p));
        if (end < p + n + alignment) munmap(end, (size_t)(p + n + alignment - end));
        lsm_madvise_huge(at, n);
        return at;
    }

    static inline void* lsm_map_large(size_t n) {
        return n >= LSM_HUGE_PAGE ? lsm_map_aligned(n, LSM_HUGE_PAGE) : lsm_map_pages(n);
    }

    static inline void* lsm_pages_alloc(size_t n) {
        return n >= LSM_PAGES_MAPPED ? lsm_map_large(n) : calloc(n ? n : 1, 1);
    }

    static inline void* lsm_lines_alloc(size_t n) {
        void* p = NULL;
        if (n >= LSM_PAGES_MAPPED) return lsm_pages_alloc(n);
        if (posix_memalign(&p, 128, n ? n : 1) != 0) return NULL;
        memset(p, 0, n);
        return p;
    }

    static inline void lsm_pages_free(void* p, size_t n) {
        if (p == NULL) return;
        if (n >= LSM_PAGES_MAPPED) munmap(p, n);
        else free(p);
    }
    #endif
    """
    # n zero bytes in pages of their own, or NULL.
    void* lsm_map_pages(size_t n) noexcept
    # The same, aligned to a power of two of at least a page and advised to huge pages.
    void* lsm_map_aligned(size_t n, size_t alignment) noexcept
    # The same; from 2 MiB on aligned to and advised to huge pages.
    void* lsm_map_large(size_t n) noexcept
    void lsm_unmap_pages(void* p, size_t n) noexcept        # of these three
    void lsm_madvise_huge(void* p, size_t n) noexcept
    void lsm_madvise_huge_within(void* p, size_t n) noexcept    # the whole huge pages in p[:n]

    # n zero bytes, or NULL: from 256 KiB on in pages of their own, from 2 MiB on in huge pages.
    void* lsm_pages_alloc(size_t n) noexcept
    # The same, aligned to two cache lines: the processor fetches a line with its neighbour.
    void* lsm_lines_alloc(size_t n) noexcept
    void lsm_pages_free(void* p, size_t n) noexcept         # of either; n as allocated; NULL is fine

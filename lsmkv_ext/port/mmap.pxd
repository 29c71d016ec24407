# mmap and its kin, and page arithmetic.

from libc.stdint cimport uint64_t

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int madvise(void* addr, size_t n, int advice)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MADV_DONTNEED
    void* MAP_FAILED

cdef enum:
    PAGE = 4096


cdef inline uint64_t page_floor(uint64_t n) noexcept nogil:
    return n & ~<uint64_t>(PAGE - 1)


cdef inline uint64_t page_ceil(uint64_t n) noexcept nogil:
    return (n + PAGE - 1) & ~<uint64_t>(PAGE - 1)

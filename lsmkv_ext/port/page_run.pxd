# Memory for filters: runs of pages on huge pages. A probe reads a random line, and with 4 KiB pages each cache miss also costs a
# page walk.
#
# First fit in regions of 16 MiB, of which only the pages in use are resident. Small runs, and the first 64 KiB of all runs,
# come from malloc: a small database should not need a huge page. One pool serves the process, under a mutex of its own.

# n bytes, 64-byte aligned, or NULL.
cdef void* page_run_alloc(size_t n) noexcept nogil
cdef void page_run_free(void* p, size_t n) noexcept nogil       # n as passed to page_run_alloc; NULL is fine

# Memory for cached blocks and filters on huge pages: a lookup touches a random block or line, and with 4 KiB pages each of
# these costs a page walk besides the miss itself.
#
# Blocks. A region is 2 MiB, aligned to that, cut into slots of one size class; its header is found by masking a slot's
# address. One pool serves the whole process. Empty regions are kept while the caches may fill them again: a compaction empties
# whole regions whose successors are wanted at once, and a fresh region costs its zeroing, a page fault of milliseconds where
# the machine is a virtual one. What is beyond the caches' budgets goes back to the system.

from libc.stdint cimport int64_t

cdef enum:
    SLAB_MAX = 32 * 1024           # larger requests belong to malloc

# At least n bytes (n <= SLAB_MAX), 16-byte aligned, or NULL; *got is the size of the slot.
cdef void* slab_alloc(size_t n, size_t* got) noexcept nogil
cdef void slab_free(void* p) noexcept nogil
# So many bytes more, or less, may be cached: the sum over all caches is what regions may take, in use or empty.
cdef void slab_budget(int64_t change) noexcept nogil

# Filters. Runs of pages, first fit, in regions of 16 MiB of which only what is in use is resident. Tiny ones, and the first
# 64 KiB of all, come from malloc: a small database should not pay for a huge page. 64-byte aligned, or NULL.
cdef void* page_run_alloc(size_t n) noexcept nogil
cdef void page_run_free(void* p, size_t n) noexcept nogil       # n as it was asked for; NULL is fine

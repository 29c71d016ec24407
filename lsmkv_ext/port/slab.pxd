# Memory for cached blocks: slots on huge pages. A lookup reads a random block, and with 4 KiB pages each cache miss also costs a
# page walk.
#
# A region is 2 MiB, aligned to that and cut into slots of one size class; masking a slot's address gives its region's header.
# One pool serves the process, under a mutex of its own.
#
# Empty regions are kept within the budgets of the caches: a compaction empties regions that the blocks of its outputs need soon,
# and faulting in a new region takes milliseconds in a virtual machine. Regions beyond the budgets are unmapped.

from libc.stdint cimport int64_t

cdef enum:
    SLAB_MAX = 32 * 1024           # larger blocks belong to malloc

# At least n bytes (n <= SLAB_MAX), 16-byte aligned, or NULL; *got is the size of the slot.
cdef void* slab_alloc(size_t n, size_t* got) noexcept nogil
cdef void slab_free(void* p) noexcept nogil
# Adds `change` to the budget: the bytes that all regions, full or empty, may take.
cdef void slab_budget(int64_t change) noexcept nogil

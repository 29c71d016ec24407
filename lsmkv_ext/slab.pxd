# Memory for cached blocks on huge pages: a hit touches a random block, and with 4 KiB pages each of its lines costs a
# page walk besides the miss itself.
#
# A region is 2 MiB, aligned to that, cut into slots of one size class; its header is found by masking a slot's
# address. One pool serves the whole process. An empty region goes back to the system, but for one that is kept.

cdef enum:
    SLAB_MAX = 32 * 1024           # larger requests belong to malloc

# At least n bytes (n <= SLAB_MAX), 16-byte aligned, or NULL; *got is the size of the slot.
cdef void* slab_alloc(size_t n, size_t* got) noexcept nogil
cdef void slab_free(void* p) noexcept nogil

# The bits of a filter that several threads and processes change at the same time, without losing one.
#
# In private memory the blocks are divided into stripes, each with a mutex. A batch is sorted by stripe, so one lock serves dozens
# of keys. In a mapped file, where a process may die at any time, every store is an atomic OR of a 64-bit word: no lock, at four
# times the cost. Probes (filter/kernel) read plain lines beside both. They see all bits of a key whose add has returned to a
# caller that they happen after; for other keys they may answer either way.
#
# No thread waits for the GIL while it holds a stripe.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.port.pthread cimport pthread_mutex_t

ctypedef struct Stripe:
    pthread_mutex_t mutex
    char padding[24]              # to a cache line, where a mutex has 40 bytes

ctypedef struct BitsC:
    uint8_t* bits                 # borrowed, 64-byte aligned
    uint64_t n_blocks
    uint32_t k
    uint32_t shift                # the stripe of a block is block >> shift
    uint32_t n_stripes
    Stripe* stripes               # owned; NULL: atomic stores

# Returns 0, or -1 if out of memory.
cdef int bits_init(BitsC* b, uint8_t* bits, uint64_t n_blocks, uint32_t k, bint atomic) noexcept nogil
cdef void bits_free(BitsC* b) noexcept nogil             # not the bits; zeroed memory is fine

# Adds n hashes. Returns how many of them set a new bit.
cdef size_t bits_add_many(const BitsC* b, const uint64_t* hashes, size_t n) noexcept nogil
cdef bint bits_add(const BitsC* b, uint64_t hash) noexcept nogil
cdef void bits_or(const BitsC* b, const BitsC* other) noexcept nogil     # of the same size, and not the same
cdef void bits_clear(const BitsC* b) noexcept nogil
cdef void bits_copy(const BitsC* b, char* out) noexcept nogil

# For tests: locks all stripes, sets *held, and unlocks them when another thread waits for one (returns 1) or has set *ended
# (returns 0). -1 where the C library does not tell who waits.
cdef int bits_hold(const BitsC* b, uint8_t* held, const uint8_t* ended) noexcept nogil

# The size and k of a filter, and its false positive rate.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.filter.kernel cimport FilterC

cdef enum:
    FILTER_MAX_MILLIBITS = 100000

cdef uint32_t filter_millibits(double bits_per_key) except? 0       # ValueError if out of range
# At least 1, except 0 if millibits is 0 (no filter) or the size would overflow 64 bits.
cdef uint64_t filter_blocks_for(uint64_t n_keys, uint32_t millibits) noexcept nogil
cdef uint32_t filter_k_for(uint32_t millibits) noexcept nogil

# The expected rate for n_keys random keys in n_blocks blocks.
cdef double filter_fpr(uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil
# The same for a large filter with this many bits per key; k = 0 takes filter_k_for.
cdef double filter_curve(double bits_per_key, uint32_t k) noexcept nogil
cdef double filter_designed_fpr(const FilterC* f) noexcept nogil    # 1 if not usable

# From the number of set bits: distinct keys of a filter, and the rate of one block.
cdef double filter_keys_of(uint64_t ones, uint64_t n_blocks, uint32_t k) noexcept nogil
cdef double filter_block_fpr(uint32_t ones, uint32_t k) noexcept nogil
# From the bits as they are now: distinct keys, and the rate.
cdef double filter_estimate_keys(const FilterC* f) noexcept nogil
cdef double filter_current_fpr(const FilterC* f) noexcept nogil

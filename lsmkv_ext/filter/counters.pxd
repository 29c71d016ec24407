# All counters of a CountingBloom at once, a word of 16 at a time. Counter b of a block is the half b & 1 of byte b >> 1 of its
# 256 bytes; it stands for bit b of a Bloom filter's block.
#
# The caller sees to it that one thread changes counters at a time. Reads may run beside a change, so every access is atomic. All
# counters of a key are in one block: a caller that works through the blocks piece by piece never shows half of a key.

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    COUNTERS_BLOCK = 256          # bytes
    COUNTERS_STUCK = 15           # 15 or more: it never changes again

# Adds the counters of `from_`. Returns how many got stuck.
cdef uint64_t counters_add(uint8_t* counters, const uint8_t* from_, uint64_t n_blocks) noexcept nogil
# Sets all to 0. Returns how many were stuck.
cdef uint64_t counters_clear(uint8_t* counters, uint64_t n_blocks) noexcept nogil
cdef uint64_t counters_stuck(const uint8_t* counters, uint64_t n_blocks) noexcept nogil
# Sets the bits of counters that are not 0. `bits` has 64 bytes per block.
cdef void counters_to_bits(const uint8_t* counters, uint64_t n_blocks, uint8_t* bits) noexcept nogil
# How many are not 0.
cdef uint64_t counters_in_use(const uint8_t* counters, uint64_t n_blocks) noexcept nogil

# 64-bit random numbers without state: SplitMix64 of a position.

cdef extern from *:
    """
    static inline uint64_t lsmkv_mulhi(uint64_t a, uint64_t b) {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    """
    uint64_t lsmkv_mulhi(uint64_t, uint64_t) noexcept nogil


cdef inline uint64_t splitmix(uint64_t x) noexcept nogil:
    """SplitMix64's output for state x: a bijection on 64 bits."""
    x += <uint64_t>0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef inline uint64_t next_random(uint64_t *state) noexcept nogil:
    cdef uint64_t z = splitmix(state[0])
    state[0] += <uint64_t>0x9E3779B97F4A7C15
    return z

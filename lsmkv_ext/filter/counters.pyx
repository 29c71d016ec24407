"""Counters of four bits, 16 to a word."""

cdef extern from * nogil:
    """
    #define LSM_LOW_BITS 0x1111111111111111ull
    #define LSM_EVEN_HALVES 0x0f0f0f0f0f0f0f0full
    static inline uint64_t lsm_counters_load(const uint8_t* counters, uint64_t word) {
        return __atomic_load_n((const uint64_t*)counters + word, __ATOMIC_RELAXED);
    }
    static inline void lsm_counters_store(uint8_t* counters, uint64_t word, uint64_t x) {
        __atomic_store_n((uint64_t*)counters + word, x, __ATOMIC_RELAXED);
    }
    /* The lowest bit of each counter that is not 0. */
    static inline uint64_t lsm_counters_used(uint64_t x) {
        x |= x >> 1;
        return (x | x >> 2) & LSM_LOW_BITS;
    }
    /* The lowest bit of each counter that is 15. */
    static inline uint64_t lsm_counters_full(uint64_t x) {
        x &= x >> 1;
        return x & x >> 2 & LSM_LOW_BITS;
    }
    static inline uint64_t lsm_halves_add(uint64_t x, uint64_t y) {
        const uint64_t sum = x + y;
        return (sum | (sum >> 4 & 0x0101010101010101ull) * 15) & LSM_EVEN_HALVES;
    }
    static inline uint64_t lsm_counters_sum(uint64_t x, uint64_t y) {
        return lsm_halves_add(x & LSM_EVEN_HALVES, y & LSM_EVEN_HALVES)
            | lsm_halves_add(x >> 4 & LSM_EVEN_HALVES, y >> 4 & LSM_EVEN_HALVES) << 4;
    }
    /* How many of the lowest bits of 16 counters are set. */
    static inline uint64_t lsm_counters_count(uint64_t x) {
        return ((x + (x >> 4)) & LSM_EVEN_HALVES) * 0x0101010101010101ull >> 56;
    }
    /* From the lowest bits of 16 counters to 16 bits. */
    static inline uint16_t lsm_counters_pack(uint64_t x) {
        x = (x | x >> 3) & 0x0303030303030303ull;
        x = (x | x >> 6) & 0x000f000f000f000full;
        x = (x | x >> 12) & 0x000000ff000000ffull;
        return (uint16_t)(x | x >> 24);
    }
    """
    uint64_t lsm_counters_load(const uint8_t* counters, uint64_t word) noexcept
    void lsm_counters_store(uint8_t* counters, uint64_t word, uint64_t x) noexcept
    uint64_t lsm_counters_used(uint64_t x) noexcept
    uint64_t lsm_counters_full(uint64_t x) noexcept
    uint64_t lsm_counters_sum(uint64_t x, uint64_t y) noexcept
    uint64_t lsm_counters_pack(uint64_t x) noexcept
    uint64_t lsm_counters_count(uint64_t x) noexcept

cdef enum:
    WORDS = COUNTERS_BLOCK // 8   # of a block


cdef uint64_t counters_add(uint8_t* counters, const uint8_t* from_, uint64_t n_blocks) noexcept nogil:
    cdef uint64_t i, before, after, stuck = 0
    for i in range(n_blocks * WORDS):
        before = lsm_counters_load(counters, i)
        after = lsm_counters_sum(before, lsm_counters_load(from_, i))
        lsm_counters_store(counters, i, after)
        stuck += lsm_counters_count(lsm_counters_full(after) & ~lsm_counters_full(before))
    return stuck


cdef uint64_t counters_clear(uint8_t* counters, uint64_t n_blocks) noexcept nogil:
    cdef uint64_t i, stuck = 0
    for i in range(n_blocks * WORDS):
        stuck += lsm_counters_count(lsm_counters_full(lsm_counters_load(counters, i)))
        lsm_counters_store(counters, i, 0)
    return stuck


cdef uint64_t counters_stuck(const uint8_t* counters, uint64_t n_blocks) noexcept nogil:
    cdef uint64_t i, stuck = 0
    for i in range(n_blocks * WORDS):
        stuck += lsm_counters_count(lsm_counters_full(lsm_counters_load(counters, i)))
    return stuck


cdef void counters_to_bits(const uint8_t* counters, uint64_t n_blocks, uint8_t* bits) noexcept nogil:
    cdef uint64_t i, x
    for i in range(n_blocks * WORDS):
        x = lsm_counters_pack(lsm_counters_used(lsm_counters_load(counters, i)))
        bits[2 * i] = <uint8_t>x
        bits[2 * i + 1] = <uint8_t>(x >> 8)


cdef uint64_t counters_in_use(const uint8_t* counters, uint64_t n_blocks) noexcept nogil:
    cdef uint64_t i, used = 0
    for i in range(n_blocks * WORDS):
        used += lsm_counters_count(lsm_counters_used(lsm_counters_load(counters, i)))
    return used

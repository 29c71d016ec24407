# The binary fuse filter in memory: an array of fingerprints of 4 to 16 bits, three or four slots per key, whose exclusive or is
# the key's fingerprint. After T. M. Graf and D. Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters" (2022). Bytes:
# docs/format.md, "Filter kind 2". Static: built once, from all hashes.
#
# The slots of a key lie in as many adjacent segments of 2^shift slots. A filter of few keys has fewer empty slots with four
# positions, and all of its lines are in the cache; a large one has three, because each costs a cache miss. The probes are inline
# because every lookup runs them.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_FUSE_H
    #define LSMKV_FUSE_H
    #include <stdint.h>
    #include <string.h>
    typedef struct { uint32_t segments; uint8_t shift, width, attempt, positions; } lsm_fuse;

    static inline uint64_t lsm_fuse_slots(const lsm_fuse* f) {
        return ((uint64_t)f->segments + f->positions - 1) << f->shift;
    }
    static inline uint64_t lsm_fuse_bytes(const lsm_fuse* f) {
        return (lsm_fuse_slots(f) * f->width + 511) / 512 * 64;
    }
    /* Another attempt gives all keys other positions. */
    static inline uint64_t lsm_fuse_mix(uint64_t hash, uint32_t attempt) {
        uint64_t x = hash + attempt * 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
        x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
        return x ^ (x >> 33);
    }
    static inline void lsm_fuse_place(uint64_t g, uint32_t segments, uint32_t shift, uint64_t* at) {
        const uint64_t size = (uint64_t)1 << shift, mask = size - 1;
        at[0] = (uint64_t)(((unsigned __int128)g * ((uint64_t)segments << shift)) >> 64);
        at[1] = (at[0] + size) ^ ((g >> 18) & mask);
        at[2] = (at[0] + 2 * size) ^ (g & mask);
        at[3] = (at[0] + 3 * size) ^ ((g >> 36) & mask);
    }
    /* The fingerprint is its low `width` bits. */
    static inline uint32_t lsm_fuse_print(uint64_t g) { return (uint32_t)(g ^ (g >> 32)); }
    /* `last` is the offset of the array's last four bytes: no load passes its end. The slot is the low bits. */
    static inline uint32_t lsm_fuse_load(const uint8_t* bits, uint64_t last, uint64_t slot, uint32_t width) {
        const uint64_t bit = slot * width;
        const uint64_t byte = bit >> 3 < last ? bit >> 3 : last;
        uint32_t word;
        memcpy(&word, bits + byte, 4);
        return word >> (bit - 8 * byte);
    }
    static inline void lsm_fuse_store(uint8_t* bits, uint64_t last, uint64_t slot, uint32_t width, uint32_t print) {
        const uint64_t bit = slot * width;
        const uint64_t byte = bit >> 3 < last ? bit >> 3 : last;
        uint32_t word;
        memcpy(&word, bits + byte, 4);
        word |= print << (bit - 8 * byte);
        memcpy(bits + byte, &word, 4);
    }
    static inline uint32_t lsm_fuse_xor(const uint8_t* bits, uint64_t last, const uint64_t* at, uint32_t width,
                                        uint32_t positions) {
        uint32_t x = lsm_fuse_load(bits, last, at[0], width) ^ lsm_fuse_load(bits, last, at[1], width)
            ^ lsm_fuse_load(bits, last, at[2], width);
        if (positions == 4) x ^= lsm_fuse_load(bits, last, at[3], width);
        return x;
    }
    static inline int lsm_fuse_test_at(const uint8_t* bits, uint64_t last, const uint64_t* at, uint32_t width,
                                       uint32_t positions, uint32_t print) {
        const uint32_t differs = print ^ lsm_fuse_xor(bits, last, at, width, positions);
        return (differs & (((uint32_t)1 << width) - 1)) == 0;
    }
    static inline int lsm_fuse_test(const uint8_t* bits, const lsm_fuse* f, uint64_t hash) {
        const uint64_t g = lsm_fuse_mix(hash, f->attempt);
        uint64_t at[4];
        lsm_fuse_place(g, f->segments, f->shift, at);
        return lsm_fuse_test_at(bits, lsm_fuse_bytes(f) - 4, at, f->width, f->positions, lsm_fuse_print(g));
    }
    static inline void lsm_fuse_prefetch(const uint8_t* bits, const lsm_fuse* f, uint64_t hash) {
        uint64_t at[4];
        lsm_fuse_place(lsm_fuse_mix(hash, f->attempt), f->segments, f->shift, at);
        for (int i = 0; i < f->positions; i++) __builtin_prefetch(bits + (at[i] * f->width >> 3));
    }
    #endif
    """
    ctypedef struct FuseGeometry "lsm_fuse":     # zeroed: no fuse filter
        uint32_t segments         # in which first positions lie; positions - 1 more follow
        uint8_t shift             # a segment has 2^shift slots
        uint8_t width             # bits of a fingerprint
        uint8_t attempt           # how many attempts to build it failed before
        uint8_t positions         # of a key: 3 or 4
    uint64_t lsm_fuse_slots(const FuseGeometry* f) noexcept
    uint64_t lsm_fuse_bytes(const FuseGeometry* f) noexcept       # a multiple of 64
    uint64_t lsm_fuse_mix(uint64_t hash, uint32_t attempt) noexcept
    # Writes four positions; a filter with three ignores the last.
    void lsm_fuse_place(uint64_t g, uint32_t segments, uint32_t shift, uint64_t* at) noexcept
    uint32_t lsm_fuse_print(uint64_t g) noexcept
    uint32_t lsm_fuse_load(const uint8_t* bits, uint64_t last, uint64_t slot, uint32_t width) noexcept
    void lsm_fuse_store(uint8_t* bits, uint64_t last, uint64_t slot, uint32_t width, uint32_t p) noexcept
    # The exclusive or of the slots; its low `width` bits count.
    uint32_t lsm_fuse_xor(
        const uint8_t* bits, uint64_t last, const uint64_t* at, uint32_t width, uint32_t positions) noexcept
    # False only if no key with this hash was added. `bits` has lsm_fuse_bytes(f) bytes, of any alignment.
    bint lsm_fuse_test(const uint8_t* bits, const FuseGeometry* f, uint64_t hash) noexcept
    # The lines of a later lsm_fuse_test.
    void lsm_fuse_prefetch(const uint8_t* bits, const FuseGeometry* f, uint64_t hash) noexcept

cdef enum:
    FUSE_MIN_WIDTH = 4
    FUSE_MAX_WIDTH = 16
    FUSE_MIN_SHIFT = 2
    FUSE_MAX_SHIFT = 18
    FUSE_ATTEMPTS = 3             # of a table builder

cdef enum:                        # results of fuse_build
    FUSE_BUILT = 0
    FUSE_NO_MEMORY = 1
    FUSE_FAILED = 2               # on every attempt: the probability is below 1e-6 for large n

# A table with fewer keys gets a Bloom filter: a small fuse filter has many empty slots. 20,000, unless a test has changed it.
cdef uint64_t fuse_min_keys() noexcept nogil
# The geometry for n keys, n < 2^40, at attempt 0.
cdef void fuse_geometry(uint64_t n, uint32_t width, FuseGeometry* g) noexcept nogil
# Whether a stored geometry makes sense for an array of this many slots.
cdef bint fuse_geometry_fits(const FuseGeometry* g, uint64_t slots) noexcept nogil
# Builds a filter of the *n hashes into `bits`, which has room for fuse_geometry(*n, g.width). Needs no zeros there. Sets the rest
# of *g and overwrites lsm_fuse_bytes(g) bytes. Only if an attempt fails are the hashes sorted and repeated ones removed, which
# lowers *n: no attempt succeeds with a repeated hash, so *n is the number of distinct ones on success.
#
# Scratch memory: 8 bytes per hash and 9 per slot, together at most 20 per hash from 20,000 hashes on, rounded up to huge pages.
# Freed before it returns.
cdef int fuse_build(uint64_t* hashes, size_t* n, int attempts, FuseGeometry* g, uint8_t* bits) noexcept nogil
# out[i] = 1 for maybe, 0 for no.
cdef void fuse_test_batch(
    const uint8_t* bits, const FuseGeometry* g, const uint64_t* hashes, size_t n, uint8_t* out
) noexcept nogil

# The width for this many bits per key x 1000: of the widest fingerprints that take no more in a large table, 16 at most. 0: too
# few bits for a fuse filter.
cdef uint32_t fuse_width(uint32_t millibits) noexcept nogil
# The width of one table: milliwidth / 1000, rounded up for as many numbers as its fraction says, evenly spread. At most 16.
cdef uint32_t fuse_width_between(uint32_t milliwidth, uint64_t number) noexcept nogil
cdef double fuse_fpr(uint32_t width) noexcept nogil

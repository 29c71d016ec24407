# The blocked Bloom filter in memory: 512-bit blocks, k bits per key, all in one cache line.
#
# The block is the high half of hash x n_blocks (64 x 64 bits, so all blocks are equally likely at any size). Inside it, bit i
# is the top 9 bits of remix(hash) x LSM_FILTER_MUL[i], mod 2^32. The SIMD path and the portable path compute the same bits.
#
# The probes are inline because every lookup runs them. A FilterC is a filter of either kind: this or filter/fuse.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.filter.fuse cimport FuseGeometry, lsm_fuse_bytes, lsm_fuse_test

cdef extern from * nogil:
    """
    #ifndef LSMKV_FILTER_H
    #define LSMKV_FILTER_H
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
    #include <immintrin.h>
    #endif
    #define LSM_FILTER_MAX_K 16
    static const uint32_t LSM_FILTER_MUL[LSM_FILTER_MAX_K] = {
        0x9e3779b1u, 0x85ebca6bu, 0xc2b2ae35u, 0x27d4eb2fu, 0x165667b5u, 0xe47af04du, 0x6a09e667u, 0xbb67ae85u,
        0x3c6ef373u, 0xa54ff53bu, 0x510e527fu, 0x9b05688du, 0x1f83d9abu, 0x5be0cd19u, 0xcbbb9d5du, 0x629a292bu,
    };
    static inline uint64_t lsm_filter_block(uint64_t hash, uint64_t n_blocks) {
        return (uint64_t)(((unsigned __int128)hash * n_blocks) >> 64);
    }
    /* The block takes the high bits of the hash. The high half of this product depends on all other bits. */
    static inline uint32_t lsm_filter_remix(uint64_t hash) {
        return (uint32_t)((hash * 0x9e3779b97f4a7c15ull) >> 32);
    }
    /* No early exit: k loads from one line cost less than one mispredicted branch. */
    static inline int lsm_filter_test_line(const uint8_t* line, uint32_t h, uint32_t k) {
        uint32_t all = 1;
        for (uint32_t i = 0; i < k; i++) {
            uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            all &= (uint32_t)line[bit >> 3] >> (bit & 7);
            __asm__("" : "+r"(all));   /* keeps gcc from vectorizing for SSE2, which has neither product nor gather */
        }
        return (int)(all & 1);
    }
    static inline uint64_t lsm_filter_popcount(const uint8_t* p) {
        uint64_t w, n = 0;
        for (int i = 0; i < 64; i += 8) { memcpy(&w, p + i, 8); n += (uint64_t)__builtin_popcountll(w); }
        return n;
    }
    /* Sets the bits of one key. Not 0 where one of them is new. */
    static inline __attribute__((always_inline)) uint64_t lsm_filter_set_line(uint8_t* line, uint32_t h, uint32_t k) {
        uint32_t fresh = 0;
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            const uint32_t byte = line[bit >> 3], with = byte | 1u << (bit & 7);
            fresh |= byte ^ with;
            line[bit >> 3] = (uint8_t)with;
        }
        return fresh;
    }
    typedef struct {
        const uint8_t* line;
        void* owner;
        uint32_t k;
        uint32_t level;
    } lsm_filter_probe_line;
    static inline uint32_t lsm_filter_probe_portable(const lsm_filter_probe_line* q, int n, uint32_t h) {
        uint32_t maybe = 0;
        for (int i = 0; i < n; i++)
            maybe |= (uint32_t)(q[i].k == 0 || lsm_filter_test_line(q[i].line, h, q[i].k)) << i;
        return maybe;
    }
    #if defined(__x86_64__)
    static const uint32_t LSM_FILTER_LANES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint32_t LSM_FILTER_FIRST[16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0, 0, 0, 0, 0};
    /* Eight bits at a time: both halves of the line stay in registers, and each lane picks its 32-bit word. */
    __attribute__((target("avx2")))
    static int lsm_filter_test_line_avx2(const uint8_t* line, uint32_t h, uint32_t k) {
        const __m256i low = _mm256_loadu_si256((const __m256i*)line);
        const __m256i high = _mm256_loadu_si256((const __m256i*)(line + 32));
        const __m256i hashes = _mm256_set1_epi32((int)h);
        for (uint32_t i = 0; ; i += 8) {
            const uint32_t lanes = k - i < 8 ? k - i : 8;
            const __m256i v = _mm256_mullo_epi32(
                hashes, _mm256_loadu_si256((const __m256i*)(LSM_FILTER_MUL + i)));
            const __m256i word = _mm256_srli_epi32(v, 28);
            const __m256i words = _mm256_castps_si256(_mm256_blendv_ps(
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word)),
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word)),
                _mm256_castsi256_ps(v)));
            const __m256i one = _mm256_loadu_si256((const __m256i*)(LSM_FILTER_LANES + 8 - lanes));
            const __m256i wanted = _mm256_sllv_epi32(one, _mm256_srli_epi32(_mm256_slli_epi32(v, 4), 27));
            if (i + 8 >= k) return _mm256_testc_si256(words, wanted);
            if (!_mm256_testc_si256(words, wanted)) return 0;
        }
    }
    /* One hash, many lines: the masks are computed once, then each line costs two loads and a test. */
    __attribute__((target("avx2")))
    static uint32_t lsm_filter_probe_avx2(const lsm_filter_probe_line* q, int n, uint32_t h) {
        const __m256i hashes = _mm256_set1_epi32((int)h);
        const __m256i one = _mm256_set1_epi32(1);
        const __m256i va = _mm256_mullo_epi32(hashes, _mm256_loadu_si256((const __m256i*)LSM_FILTER_MUL));
        const __m256i vb = _mm256_mullo_epi32(hashes, _mm256_loadu_si256((const __m256i*)(LSM_FILTER_MUL + 8)));
        const __m256i word_a = _mm256_srli_epi32(va, 28), word_b = _mm256_srli_epi32(vb, 28);
        const __m256i bit_a = _mm256_sllv_epi32(one, _mm256_srli_epi32(_mm256_slli_epi32(va, 4), 27));
        const __m256i bit_b = _mm256_sllv_epi32(one, _mm256_srli_epi32(_mm256_slli_epi32(vb, 4), 27));
        uint32_t maybe = 0;
        for (int i = 0; i < n; i++) {
            const uint32_t k = q[i].k, lanes = k < 8 ? k : 8;
            if (k == 0) { maybe |= (uint32_t)1 << i; continue; }
            const __m256i low = _mm256_loadu_si256((const __m256i*)q[i].line);
            const __m256i high = _mm256_loadu_si256((const __m256i*)(q[i].line + 32));
            const __m256i seen_a = _mm256_castps_si256(_mm256_blendv_ps(
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word_a)),
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word_a)), _mm256_castsi256_ps(va)));
            const __m256i mask_a = _mm256_loadu_si256((const __m256i*)(LSM_FILTER_FIRST + 8 - lanes));
            uint32_t yes = (uint32_t)_mm256_testc_si256(seen_a, _mm256_and_si256(bit_a, mask_a));
            if (k > 8) {
                const __m256i seen_b = _mm256_castps_si256(_mm256_blendv_ps(
                    _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word_b)),
                    _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word_b)), _mm256_castsi256_ps(vb)));
                const __m256i mask_b = _mm256_loadu_si256((const __m256i*)(LSM_FILTER_FIRST + 16 - k));
                yes &= (uint32_t)_mm256_testc_si256(seen_b, _mm256_and_si256(bit_b, mask_b));
            }
            maybe |= yes << i;
        }
        return maybe;
    }
    /* The line is two registers of eight words. A shift by a negative or too large count gives 0, so word j of
       1 << (bit - 32 j) is the bit if it falls into that word, and 0 otherwise. */
    __attribute__((target("avx2")))
    static uint64_t lsm_filter_set_line_avx2(uint8_t* line, uint32_t h, uint32_t k) {
        const __m256i one = _mm256_set1_epi32(1);
        const __m256i from_low = _mm256_setr_epi32(0, 32, 64, 96, 128, 160, 192, 224);
        const __m256i from_high = _mm256_setr_epi32(256, 288, 320, 352, 384, 416, 448, 480);
        __m256i low = _mm256_setzero_si256(), high = low;
        for (uint32_t i = 0; i < k; i++) {
            const __m256i bit = _mm256_set1_epi32((int)((h * LSM_FILTER_MUL[i]) >> 23));
            low = _mm256_or_si256(low, _mm256_sllv_epi32(one, _mm256_sub_epi32(bit, from_low)));
            high = _mm256_or_si256(high, _mm256_sllv_epi32(one, _mm256_sub_epi32(bit, from_high)));
        }
        const __m256i was_low = _mm256_loadu_si256((const __m256i*)line);
        const __m256i was_high = _mm256_loadu_si256((const __m256i*)(line + 32));
        _mm256_storeu_si256((__m256i*)line, _mm256_or_si256(was_low, low));
        _mm256_storeu_si256((__m256i*)(line + 32), _mm256_or_si256(was_high, high));
        return !(_mm256_testc_si256(was_low, low) & _mm256_testc_si256(was_high, high));
    }
    /* One copy in each module that includes this, set when the module is loaded. */
    static int lsm_filter_simd = 0;
    __attribute__((constructor)) static void lsm_filter_choose_first(void) {
        __builtin_cpu_init();
        lsm_filter_simd = __builtin_cpu_supports("avx2") != 0;
    }
    static inline void lsm_filter_choose(int on) { lsm_filter_simd = on && __builtin_cpu_supports("avx2"); }
    static inline int lsm_filter_test(const uint8_t* line, uint32_t h, uint32_t k) {
        return lsm_filter_simd ? lsm_filter_test_line_avx2(line, h, k) : lsm_filter_test_line(line, h, k);
    }
    static inline uint64_t lsm_filter_set(uint8_t* line, uint32_t h, uint32_t k) {
        return lsm_filter_simd ? lsm_filter_set_line_avx2(line, h, k) : lsm_filter_set_line(line, h, k);
    }
    static inline uint32_t lsm_filter_probe(const lsm_filter_probe_line* q, int n, uint32_t h) {
        return lsm_filter_simd ? lsm_filter_probe_avx2(q, n, h) : lsm_filter_probe_portable(q, n, h);
    }
    #else
    static int lsm_filter_simd = 0;
    static inline void lsm_filter_choose(int on) { (void)on; }
    static inline int lsm_filter_test(const uint8_t* line, uint32_t h, uint32_t k) {
        return lsm_filter_test_line(line, h, k);
    }
    static inline uint64_t lsm_filter_set(uint8_t* line, uint32_t h, uint32_t k) {
        return lsm_filter_set_line(line, h, k);
    }
    static inline uint32_t lsm_filter_probe(const lsm_filter_probe_line* q, int n, uint32_t h) {
        return lsm_filter_probe_portable(q, n, h);
    }
    #endif
    #endif
    """
    uint64_t lsm_filter_block(uint64_t hash, uint64_t n_blocks) noexcept
    uint32_t lsm_filter_remix(uint64_t hash) noexcept
    bint lsm_filter_test(const uint8_t* line, uint32_t h, uint32_t k) noexcept
    # Sets the bits of one key. Not 0 where one of them is new.
    uint64_t lsm_filter_set(uint8_t* line, uint32_t h, uint32_t k) noexcept
    uint64_t lsm_filter_popcount(const uint8_t* line) noexcept
    ctypedef struct FilterProbe "lsm_filter_probe_line":
        const uint8_t* line
        void* owner               # the caller's
        uint32_t k                # 0: no filter, always "maybe"
        uint32_t level            # the caller's
    # Tests up to 32 lines for one remixed hash: bit i of the result is the "maybe" of line i.
    uint32_t lsm_filter_probe(const FilterProbe* q, int n, uint32_t h) noexcept
    # Whether this module's copy of the functions above uses SIMD; lsm_filter_choose changes it where the CPU has AVX2.
    bint lsm_filter_simd
    void lsm_filter_choose(bint on) noexcept

cdef enum:
    FILTER_BLOCK_BYTES = 64
    FILTER_BLOCK_BITS = 512
    FILTER_MAX_K = 16

# Borrowed bits and the parameters to probe them. A filter that is not usable answers "maybe" to everything; filter_decode
# alone makes stored bytes usable.
ctypedef struct FilterC:
    const uint8_t* bits       # borrowed, 64-byte aligned
    uint64_t n_blocks         # blocks; of a fuse filter its slots
    uint64_t n_keys           # keys and prefixes added; of a fuse filter distinct hashes
    uint64_t seed
    uint32_t millibits        # bits per key x 1000, as requested
    uint32_t k                # bits set per key; of a fuse filter the width of a fingerprint
    uint32_t level            # the level it was built for
    uint32_t prefix_kind      # filter/prefix.pxd
    uint32_t prefix_arg
    FuseGeometry fuse         # width 0: a blocked Bloom filter
    double designed_fpr       # of a usable filter, set by filter_decode; 0 = not computed yet
    int usable
    int problem               # FILTER_OK, or why it is not usable: filter/format.pxd

# Of a Bloom filter: sets the bits of n hashes in `bits` (n_blocks * 64 bytes). Returns how many hashes set a new bit.
cdef size_t filter_add_many(
    uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n
) noexcept nogil
# out[i] = 1 for maybe, 0 for no.
cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil
# How many of the n hashes answer "no" by the bits, whatever `usable` is: 0 for a correct filter. Checked before a table is
# published.
cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil
cdef uint64_t filter_count_ones(const FilterC* f) noexcept nogil
cdef double filter_fill_ratio(const FilterC* f) noexcept nogil       # share of bits set; 0 if not usable
# lsm_filter_choose for the functions above.
cdef void filter_choose(bint on) noexcept nogil


cdef inline bint filter_probe(const FilterC* f, uint64_t hash) noexcept nogil:
    """False only if a healthy filter says that no key with this hash was added."""
    if not f.usable:
        return True
    if f.fuse.width:
        return lsm_fuse_test(f.bits, &f.fuse, hash)
    return lsm_filter_test(
        f.bits + lsm_filter_block(hash, f.n_blocks) * FILTER_BLOCK_BYTES, lsm_filter_remix(hash), f.k
    )


cdef inline uint64_t filter_size(const FilterC* f) noexcept nogil:
    """Bytes of the bits; 0 without a filter."""
    return lsm_fuse_bytes(&f.fuse) if f.fuse.width else f.n_blocks * FILTER_BLOCK_BYTES

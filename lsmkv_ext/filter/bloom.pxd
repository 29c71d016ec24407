# The blocked Bloom filter: 512-bit blocks, k bits per key, all in one cache line. Byte grid: docs/format.md.
#
# A filter is borrowed memory (FilterC points at bits it does not own) plus the parameters to probe it. Only
# filter_decode decides whether stored bytes are a healthy filter; anything else leaves `usable` false, and an unusable filter
# answers "maybe" to everything.
#
# Which bits: the block is the high half of hash x n_blocks (64 x 64 bits, so the choice stays even for filters of any size);
# inside it, bit i is the top 9 bits of remix(hash) x LSM_FILTER_MUL[i], mod 2^32. The SIMD and the portable path
# compute just this, so they give the same bits.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.port.pthread cimport pthread_mutex_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_FILTER_H
    #define LSMKV_FILTER_H
    #include <stdint.h>
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
    /* the block took the high bits of the hash; the product's high half depends on all the rest */
    static inline uint32_t lsm_filter_remix(uint64_t hash) {
        return (uint32_t)((hash * 0x9e3779b97f4a7c15ull) >> 32);
    }
    /* no early exit: k predictable loads from one line cost less than one mispredicted branch */
    static inline int lsm_filter_test_line(const uint8_t* line, uint32_t h, uint32_t k) {
        uint32_t all = 1;
        for (uint32_t i = 0; i < k; i++) {
            uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            all &= (uint32_t)line[bit >> 3] >> (bit & 7);
            __asm__("" : "+r"(all));   /* or the loop is vectorised for SSE2, which has neither product nor gather */
        }
        return (int)(all & 1);
    }
    typedef struct {
        const uint8_t* line;
        void* owner;
        uint32_t k;             /* 0 is no line to ask, and always "maybe" */
        uint32_t level;
    } lsm_filter_probe_line;
    /* bit i of the result: question i's "maybe" */
    static inline uint32_t lsm_filter_probe_portable(const lsm_filter_probe_line* q, int n, uint32_t h) {
        uint32_t maybe = 0;
        for (int i = 0; i < n; i++)
            maybe |= (uint32_t)(q[i].k == 0 || lsm_filter_test_line(q[i].line, h, q[i].k)) << i;
        return maybe;
    }
    #if defined(__x86_64__)
    static const uint32_t LSM_FILTER_LANES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint32_t LSM_FILTER_FIRST[16] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0, 0, 0, 0, 0};
    /* Eight bits at a time: both halves of the line stay in registers, each lane picks its 32-bit word. */
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
    /* The same hash in many lines: what to look for is computed once, then each line costs two loads and a test. */
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
    /* one copy per module, set when the module is loaded; off it, one predictable branch */
    static int lsm_filter_simd = 0;
    __attribute__((constructor)) static void lsm_filter_choose_first(void) {
        __builtin_cpu_init();
        lsm_filter_simd = __builtin_cpu_supports("avx2") != 0;
    }
    static inline void lsm_filter_choose(int on) { lsm_filter_simd = on && __builtin_cpu_supports("avx2"); }
    static inline int lsm_filter_test(const uint8_t* line, uint32_t h, uint32_t k) {
        return lsm_filter_simd ? lsm_filter_test_line_avx2(line, h, k) : lsm_filter_test_line(line, h, k);
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
    static inline uint32_t lsm_filter_probe(const lsm_filter_probe_line* q, int n, uint32_t h) {
        return lsm_filter_probe_portable(q, n, h);
    }
    #endif
    #endif
    """
    uint64_t lsm_filter_block(uint64_t hash, uint64_t n_blocks) noexcept
    uint32_t lsm_filter_remix(uint64_t hash) noexcept
    bint lsm_filter_test_line(const uint8_t* line, uint32_t h, uint32_t k) noexcept      # portable
    bint lsm_filter_test(const uint8_t* line, uint32_t h, uint32_t k) noexcept           # the faster one
    ctypedef struct FilterProbe "lsm_filter_probe_line":
        const uint8_t* line
        void* owner               # the asker's
        uint32_t k                # 0 is no line to ask, and always "maybe"
        uint32_t level            # the asker's
    # Up to 32 lines and one hash: bit i of the answer is question i's "maybe".
    uint32_t lsm_filter_probe(const FilterProbe* q, int n, uint32_t h) noexcept
    bint lsm_filter_simd
    void lsm_filter_choose(bint on) noexcept
    void lsm_filter_prefetch "__builtin_prefetch"(const void* p) noexcept

cdef enum:
    FILTER_HEADER_SIZE = 64
    FILTER_BLOCK_BYTES = 64
    FILTER_BLOCK_BITS = 512
    FILTER_VERSION = 1
    FILTER_MAX_K = 16
    FILTER_MAX_MILLIBITS = 100000
    FILTER_KIND_NONE = 0
    FILTER_KIND_BLOCKED = 1
    FILTER_HASH_XXH3 = 1
    FILTER_PREFIX_NONE = 0
    FILTER_PREFIX_LENGTH = 1
    FILTER_PREFIX_SEPARATOR = 2
    # why a stored filter is not usable
    FILTER_OK = 0
    FILTER_ABSENT = 1
    FILTER_BAD_LENGTH = 2
    FILTER_BAD_CHECKSUM = 3
    FILTER_UNKNOWN = 4        # version, kind or hash
    FILTER_BAD_GEOMETRY = 5

ctypedef struct FilterC:
    const uint8_t* bits       # borrowed, 64-byte aligned
    uint64_t n_blocks
    uint64_t n_keys           # keys (and prefixes) added
    uint64_t seed
    uint32_t millibits        # bits per key x 1000, as asked for
    uint32_t k
    uint32_t level            # the level it was built for
    uint32_t prefix_kind      # 0 none, 1 first n bytes, 2 up to and including a separator byte
    uint32_t prefix_arg       # n, or the separator
    double designed_fpr       # of a usable filter, by filter_decode; 0 = not computed yet
    int usable
    int problem               # FILTER_OK, or why not usable

# At least 1, except 0 where millibits is 0 (no filter wanted) or the size would overflow 64 bits.
cdef uint64_t filter_blocks_for(uint64_t n_keys, uint32_t millibits) noexcept nogil
cdef uint32_t filter_k_for(uint32_t millibits) noexcept nogil
# Sets the bits of n hashes in `bits` (n_blocks * 64 bytes, zeroed by the caller), prefetching ahead.
cdef void filter_add_many(
    uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n
) noexcept nogil
# How many of the n hashes answer "no" by the bits alone, whatever `usable` says: 0 for a correct filter. The check before
# a table is published.
cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil
# out[i] = 1 for maybe, 0 for no; prefetched, SIMD where the CPU has it.
cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil
# Header <-> struct. encode reads f.bits (for their checksum); n_blocks == 0 writes a header that says "no filter".
# decode fills *f (usable/problem) from FILTER_HEADER_SIZE header bytes and the bits; it never fails otherwise. Where the header
# is sound but the bits are not, the descriptive fields are filled in.
cdef void filter_encode_header(const FilterC* f, char* out) noexcept nogil
cdef void filter_decode(
    const char* header, size_t header_size, const uint8_t* bits, uint64_t bits_size, FilterC* f
) noexcept nogil
# Hash of a key's prefix as added by a prefix extractor, or 0 with *has = 0 where the key is outside its domain.
# Prefixes are hashed under another seed than keys, so a prefix never answers for the key of the same bytes.
cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil
cdef double filter_fill_ratio(const FilterC* f) noexcept nogil
# The false positive rate that n_keys, n_blocks and k give for random keys; the mean over all fillings. 1 for an unusable filter.
cdef double filter_designed_fpr(const FilterC* f) noexcept nogil
cdef double filter_fpr(uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil
# The same on the design curve: many blocks, millibits/1000 bits per key; k = 0 takes filter_k_for.
cdef double filter_curve(double bits_per_key, uint32_t k) noexcept nogil
cdef const char* filter_problem_text(int problem) noexcept nogil     # static text


cdef inline bint filter_probe(const FilterC* f, uint64_t hash) noexcept nogil:
    """False only where a healthy filter says that no key with this hash was added."""
    if not f.usable:
        return True
    return lsm_filter_test(
        f.bits + lsm_filter_block(hash, f.n_blocks) * FILTER_BLOCK_BYTES, lsm_filter_remix(hash), f.k
    )


cdef inline void filter_prefetch(const FilterC* f, uint64_t hash) noexcept nogil:
    if f.usable:
        lsm_filter_prefetch(f.bits + lsm_filter_block(hash, f.n_blocks) * FILTER_BLOCK_BYTES)


cdef class _Hasher:
    cdef list sequence            # the keys where they came as a list
    cdef Py_ssize_t position      # in it
    cdef object keys              # else an iterator
    cdef list chunk               # owns the keys behind `pointers`
    cdef uint64_t seed
    cdef uint64_t* hashes         # owned
    cdef const char** pointers    # owned; NULL where the hash is already known
    cdef size_t* lengths          # owned
    cdef Py_ssize_t take(self) except -1
    cdef list _next_chunk(self)
    cdef void hash_taken(self, Py_ssize_t n) noexcept nogil


cdef class BlockedBloom:
    cdef FilterC f
    cdef uint8_t* bits            # owned; f.bits is the same address
    cdef pthread_mutex_t mutex    # guards the bits against two writers off the GIL; readers need it only for a consistent copy
    cdef bint made                # __init__ has run
    cdef int _own(self, uint64_t n_blocks) except -1
    cdef size_t _add(self, const uint64_t* hashes, size_t n) noexcept nogil
    cdef int _require_same(self, BlockedBloom other) except -1

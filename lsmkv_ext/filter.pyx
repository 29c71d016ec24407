from libc.math cimport exp, lgamma, log, log1p, sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memset

from lsmkv_ext cimport native
from lsmkv_ext.coding cimport get_u32, get_u64, put_u32, put_u64

cdef extern from * nogil:
    """
    #if defined(__x86_64__)
    #include <immintrin.h>
    static int lsm_filter_has_avx2(void) { __builtin_cpu_init(); return __builtin_cpu_supports("avx2"); }
    static const uint32_t LSM_FILTER_LANES[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    /* Eight bits at a time: both halves of the line stay in registers, each lane picks its 32-bit word. */
    __attribute__((target("avx2")))
    static inline int lsm_filter_test_line_avx2(const uint8_t* line, uint32_t h, uint32_t k) {
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
    __attribute__((target("avx2")))
    static void lsm_filter_test_lines_avx2(const uint8_t* const* lines, const uint32_t* h, uint32_t k,
                                           size_t n, uint8_t* out) {
        for (size_t i = 0; i < n; i++) out[i] = (uint8_t)lsm_filter_test_line_avx2(lines[i], h[i], k);
    }
    #else
    static int lsm_filter_has_avx2(void) { return 0; }
    static void lsm_filter_test_lines_avx2(const uint8_t* const* lines, const uint32_t* h, uint32_t k,
                                           size_t n, uint8_t* out) {
        for (size_t i = 0; i < n; i++) out[i] = (uint8_t)lsm_filter_test_line(lines[i], h[i], k);
    }
    #endif
    static inline uint32_t lsm_filter_set_line(uint8_t* line, uint32_t h, uint32_t k) {
        uint32_t fresh = 0;
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            const uint8_t mask = (uint8_t)(1u << (bit & 7));
            fresh |= (uint32_t)(uint8_t)(~line[bit >> 3] & mask);
            line[bit >> 3] |= mask;
        }
        return fresh != 0;
    }
    static inline uint64_t lsm_filter_popcount(const uint8_t* p) {
        uint64_t w, n = 0;
        for (int i = 0; i < 64; i += 8) { memcpy(&w, p + i, 8); n += (uint64_t)__builtin_popcountll(w); }
        return n;
    }
    """
    bint lsm_filter_has_avx2() noexcept
    void lsm_filter_test_lines_avx2(
        const uint8_t** lines, const uint32_t* h, uint32_t k, size_t n, uint8_t* out) noexcept
    uint32_t lsm_filter_set_line(uint8_t* line, uint32_t h, uint32_t k) noexcept
    uint64_t lsm_filter_popcount(const uint8_t* p) noexcept
    void lsm_filter_prefetch_write "__builtin_prefetch"(const void* p, int rw) noexcept

cdef enum:
    BATCH = 32                        # lines in flight: more than the memory system overlaps, less than the first-level cache
    MAGIC = 0x46564B4C                # "LKVF"
    OFFSET_BITS_SUM = 48
    OFFSET_HEADER_SUM = 56

cdef uint64_t BITS_SUM_SEED = 0x6269747366696C74ULL
cdef uint64_t HEADER_SUM_SEED = 0x68656164666C7472ULL
cdef uint64_t PREFIX_SEED = 0x7072656669786573ULL

cdef bint _use_avx2 = lsm_filter_has_avx2()

# K_FROM[i] is the smallest millibits for which k = i + 2: the smallest k whose false positive rate in 512-bit blocks is within
# 3 % of the best k's. (tests/unit/test_filter_curve.py holds the table against the curve.)
cdef uint32_t[15] K_FROM
K_FROM[:] = [2240, 3840, 5480, 7170, 8950, 10840, 12890, 15100, 17540, 20230, 23240, 26600, 30390, 34690, 39600]


# --- geometry ---

cdef uint64_t filter_blocks_for(uint64_t n_keys, uint32_t millibits) noexcept nogil:
    if millibits == 0:
        return 0
    if n_keys > (<uint64_t>-1) // millibits - 511999:
        return 0
    cdef uint64_t blocks = (n_keys * millibits + 511999) // 512000
    return blocks if blocks else 1


cdef uint32_t filter_k_for(uint32_t millibits) noexcept nogil:
    cdef uint32_t k = 1
    while k < FILTER_MAX_K and millibits >= K_FROM[k - 1]:
        k += 1
    return k


# --- bits ---

cdef void filter_add_many(
    uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n
) noexcept nogil:
    filter_add_counting(bits, n_blocks, k, hashes, n)


cdef size_t filter_add_counting(
    uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n
) noexcept nogil:
    """As filter_add_many; returns how many of the hashes set a bit that was not set."""
    cdef uint8_t* lines[BATCH]
    cdef size_t done = 0, i, m, fresh = 0
    while done < n:
        m = min(n - done, <size_t>BATCH)
        for i in range(m):
            lines[i] = bits + lsm_filter_block(hashes[done + i], n_blocks) * FILTER_BLOCK_BYTES
            lsm_filter_prefetch_write(lines[i], 1)
        for i in range(m):
            fresh += lsm_filter_set_line(lines[i], lsm_filter_remix(hashes[done + i]), k)
        done += m
    return fresh


cdef void _test_many(
    const uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n, uint8_t* out
) noexcept nogil:
    cdef const uint8_t* lines[BATCH]
    cdef uint32_t h[BATCH]
    cdef size_t done = 0, i, m
    while done < n:
        m = min(n - done, <size_t>BATCH)
        for i in range(m):
            lines[i] = bits + lsm_filter_block(hashes[done + i], n_blocks) * FILTER_BLOCK_BYTES
            lsm_filter_prefetch(lines[i])
            h[i] = lsm_filter_remix(hashes[done + i])
        if _use_avx2:
            lsm_filter_test_lines_avx2(lines, h, k, m, out + done)
        else:
            for i in range(m):
                out[done + i] = lsm_filter_test_line(lines[i], h[i], k)
        done += m


cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil:
    if not f.usable:
        memset(out, 1, n)
        return
    _test_many(f.bits, f.n_blocks, f.k, hashes, n, out)


cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil:
    cdef uint8_t out[BATCH * 8]
    cdef size_t done = 0, i, m, missing = 0
    if f.bits == NULL or f.n_blocks == 0:
        return n
    while done < n:
        m = min(n - done, <size_t>(BATCH * 8))
        _test_many(f.bits, f.n_blocks, f.k, hashes + done, m, out)
        for i in range(m):
            missing += 1 - out[i]
        done += m
    return missing


cdef uint64_t _count_ones(const uint8_t* bits, uint64_t n_blocks) noexcept nogil:
    cdef uint64_t i, ones = 0
    for i in range(n_blocks):
        ones += lsm_filter_popcount(bits + i * FILTER_BLOCK_BYTES)
    return ones


cdef double filter_fill_ratio(const FilterC* f) noexcept nogil:
    if not f.usable:
        return 0.0
    return <double>_count_ones(f.bits, f.n_blocks) / (<double>f.n_blocks * FILTER_BLOCK_BITS)


# --- the false positive rate of a blocked filter ---

cdef double _mean_over_loads(double load, uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil:
    """Sum over j of P(a block got j keys) x P(k random bits of such a block are all set).

    P(got j) is binomial where n_keys is given, Poisson with mean `load` where it is 0. `need[i]` is the probability that i
    given bits are all set by the throws so far; one more throw hits one of them with probability i/512.
    """
    cdef double need[FILTER_MAX_K + 1]
    cdef double distinct[FILTER_MAX_K + 1]
    cdef double total = 0, hit, log_p, log_q
    cdef double size = FILTER_BLOCK_BITS
    cdef uint64_t j, last
    cdef uint32_t i, t
    if load > 4096:
        return 1.0
    for i in range(k + 1):
        need[i] = distinct[i] = 0
    need[0] = distinct[0] = 1
    for t in range(k):                         # distinct[i]: k random bits are i different ones
        for i in range(k, 0, -1):
            distinct[i] = distinct[i] * i / size + distinct[i - 1] * (size - i + 1) / size
        distinct[0] = 0
    last = <uint64_t>(load + 12 * sqrt(load) + 20)
    if n_keys and last > n_keys:
        last = n_keys
    log_p = log(1.0 / n_blocks) if n_blocks else 0
    log_q = log1p(-1.0 / n_blocks) if n_blocks > 1 else 0
    for j in range(last + 1):
        hit = 0
        for i in range(1, k + 1):
            hit += distinct[i] * need[i]
        if n_keys == 0:
            total += hit * exp(j * log(load) - load - lgamma(j + 1.0))
        elif n_blocks == 1:
            if j == n_keys:
                total += hit
        else:
            total += hit * exp(lgamma(n_keys + 1.0) - lgamma(j + 1.0) - lgamma(n_keys - j + 1.0)
                               + j * log_p + (n_keys - j) * log_q)
        for t in range(k):
            for i in range(k, 0, -1):
                need[i] = need[i] * (1 - i / size) + need[i - 1] * i / size
            # need[0] stays 1
    return total if total < 1 else 1.0


cdef double filter_fpr(uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil:
    if n_blocks == 0 or k == 0 or k > FILTER_MAX_K:
        return 1.0
    if n_keys == 0:
        return 0.0
    # binomial only where it differs: its logarithms lose digits for large counts
    return _mean_over_loads(<double>n_keys / n_blocks, n_keys if n_blocks < 1024 else 0, n_blocks, k)


cdef double filter_designed_fpr(const FilterC* f) noexcept nogil:
    return filter_fpr(f.n_keys, f.n_blocks, f.k) if f.usable else 1.0


cdef double filter_curve(double bits_per_key, uint32_t k) noexcept nogil:
    if bits_per_key <= 0:
        return 1.0
    if k == 0:
        k = filter_k_for(<uint32_t>(min(bits_per_key, 100.0) * 1000 + 0.5))
    return _mean_over_loads(FILTER_BLOCK_BITS / bits_per_key, 0, 0, k)


# --- header ---

cdef void filter_encode_header(const FilterC* f, char* out) noexcept nogil:
    memset(out, 0, FILTER_HEADER_SIZE)
    put_u32(out, MAGIC)
    out[4] = FILTER_VERSION
    out[5] = FILTER_KIND_BLOCKED if f.n_blocks else FILTER_KIND_NONE
    out[6] = FILTER_HASH_XXH3
    out[7] = <char>f.k
    put_u64(out + 8, f.n_blocks)
    put_u64(out + 16, f.n_keys)
    put_u64(out + 24, f.seed)
    put_u32(out + 32, f.millibits)
    put_u32(out + 36, f.level)
    put_u32(out + 40, f.prefix_kind)
    put_u32(out + 44, f.prefix_arg)
    if f.n_blocks:
        put_u64(out + OFFSET_BITS_SUM, native.xxh3(f.bits, f.n_blocks * FILTER_BLOCK_BYTES, BITS_SUM_SEED))
    put_u64(out + OFFSET_HEADER_SUM, native.xxh3(out, OFFSET_HEADER_SUM, HEADER_SUM_SEED))


cdef int _decode_header(const char* header, size_t header_size, FilterC* f) noexcept nogil:
    """Fills the descriptive fields; FILTER_OK where they can be trusted and make sense."""
    if header_size < FILTER_HEADER_SIZE:
        return FILTER_BAD_LENGTH
    if get_u64(header + OFFSET_HEADER_SUM) != native.xxh3(header, OFFSET_HEADER_SUM, HEADER_SUM_SEED):
        return FILTER_BAD_CHECKSUM
    if get_u32(header) != MAGIC or header[4] != FILTER_VERSION or header[6] != FILTER_HASH_XXH3:
        return FILTER_UNKNOWN
    f.k = <uint8_t>header[7]
    f.n_blocks = get_u64(header + 8)
    f.n_keys = get_u64(header + 16)
    f.seed = get_u64(header + 24)
    f.millibits = get_u32(header + 32)
    f.level = get_u32(header + 36)
    f.prefix_kind = get_u32(header + 40)
    f.prefix_arg = get_u32(header + 44)
    if header[5] == FILTER_KIND_NONE:
        return FILTER_ABSENT
    if header[5] != FILTER_KIND_BLOCKED or f.prefix_kind > FILTER_PREFIX_SEPARATOR:
        return FILTER_UNKNOWN
    if f.k == 0 or f.k > FILTER_MAX_K or f.n_blocks == 0 or f.millibits > FILTER_MAX_MILLIBITS:
        return FILTER_BAD_GEOMETRY
    if f.prefix_kind == FILTER_PREFIX_SEPARATOR and f.prefix_arg > 255:
        return FILTER_BAD_GEOMETRY
    return FILTER_OK


cdef int _check_bits(const char* header, const uint8_t* bits, uint64_t bits_size, const FilterC* f) noexcept nogil:
    if bits == NULL or bits_size % FILTER_BLOCK_BYTES != 0 or bits_size // FILTER_BLOCK_BYTES != f.n_blocks:
        return FILTER_BAD_LENGTH
    if get_u64(header + OFFSET_BITS_SUM) != native.xxh3(bits, bits_size, BITS_SUM_SEED):
        return FILTER_BAD_CHECKSUM
    return FILTER_OK


cdef void filter_decode(
    const char* header, size_t header_size, const uint8_t* bits, uint64_t bits_size, FilterC* f
) noexcept nogil:
    memset(f, 0, sizeof(FilterC))
    f.problem = _decode_header(header, header_size, f)
    if f.problem == FILTER_ABSENT and bits_size != 0:
        f.problem = FILTER_BAD_LENGTH
    if f.problem == FILTER_OK:
        f.problem = _check_bits(header, bits, bits_size, f)
    if f.problem == FILTER_OK:
        f.bits = bits
        f.usable = 1


cdef const char* filter_problem_text(int problem) noexcept nogil:
    if problem == FILTER_OK:
        return "ok"
    if problem == FILTER_ABSENT:
        return "absent"
    if problem == FILTER_BAD_LENGTH:
        return "bad length"
    if problem == FILTER_BAD_CHECKSUM:
        return "bad checksum"
    if problem == FILTER_UNKNOWN:
        return "unknown version, kind or hash"
    return "impossible geometry"


cdef uint64_t filter_prefix_hash(
    uint32_t prefix_kind, uint32_t prefix_arg, const char* key, size_t n, uint64_t seed, int* has
) noexcept nogil:
    cdef const char* end
    has[0] = 0
    if prefix_kind == FILTER_PREFIX_LENGTH and n >= prefix_arg:
        has[0] = 1
        return native.xxh3(key, prefix_arg, seed ^ PREFIX_SEED)
    if prefix_kind == FILTER_PREFIX_SEPARATOR and n:
        end = <const char*>memchr(key, <int>prefix_arg, n)
        if end != NULL:
            has[0] = 1
            return native.xxh3(key, <size_t>(end - key) + 1, seed ^ PREFIX_SEED)
    return 0

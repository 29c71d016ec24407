from itertools import islice

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.math cimport exp, lgamma, log, log1p, sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u32, get_u64, put_u32, put_u64
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

from lsmkv_ext.errors import CorruptionError

cdef extern from * nogil:
    """
    /* A ring of lines on their way: the line asked for now is the one tested LSM_FILTER_AHEAD keys later, so as many
       reads are under way as the memory system takes. Written once, compiled for each way to test a line. */
    #define LSM_FILTER_AHEAD 32
    #define LSM_FILTER_TEST_MANY(name, test) \\
        static void name(const uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n, \\
                         uint8_t* out) { \\
            const uint8_t* lines[LSM_FILTER_AHEAD]; \\
            const size_t ahead = n < LSM_FILTER_AHEAD ? n : LSM_FILTER_AHEAD; \\
            for (size_t i = 0; i < n + ahead; i++) { \\
                if (i >= ahead) { \\
                    const size_t j = i - ahead; \\
                    out[j] = (uint8_t)test(lines[j % LSM_FILTER_AHEAD], lsm_filter_remix(hashes[j]), k); \\
                } \\
                if (i < n) { \\
                    lines[i % LSM_FILTER_AHEAD] = bits + lsm_filter_block(hashes[i], n_blocks) * 64; \\
                    __builtin_prefetch(lines[i % LSM_FILTER_AHEAD]); \\
                } \\
            } \\
        }
    LSM_FILTER_TEST_MANY(lsm_filter_test_many_portable, lsm_filter_test_line)
    #if defined(__x86_64__)
    __attribute__((target("avx2")))
    LSM_FILTER_TEST_MANY(lsm_filter_test_many_avx2, lsm_filter_test_line_avx2)
    #else
    #define lsm_filter_test_many_avx2 lsm_filter_test_many_portable
    #endif
    static inline void lsm_filter_test_many(const uint8_t* bits, uint64_t n_blocks, uint32_t k,
                                            const uint64_t* hashes, size_t n, uint8_t* out) {
        (lsm_filter_simd ? lsm_filter_test_many_avx2 : lsm_filter_test_many_portable)(
            bits, n_blocks, k, hashes, n, out);
    }
    /* Sets the bits of one key; not 0 where one of them was not set before. Little endian, as all of the data plane. */
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
    #define LSM_FILTER_SET_MANY(name, set) \\
        static size_t name(uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n) { \\
            uint8_t* lines[LSM_FILTER_AHEAD]; \\
            size_t fresh = 0; \\
            const size_t ahead = n < LSM_FILTER_AHEAD ? n : LSM_FILTER_AHEAD; \\
            for (size_t i = 0; i < n + ahead; i++) { \\
                if (i >= ahead) { \\
                    const size_t j = i - ahead; \\
                    fresh += set(lines[j % LSM_FILTER_AHEAD], lsm_filter_remix(hashes[j]), k) != 0; \\
                } \\
                if (i < n) { \\
                    lines[i % LSM_FILTER_AHEAD] = bits + lsm_filter_block(hashes[i], n_blocks) * 64; \\
                    __builtin_prefetch(lines[i % LSM_FILTER_AHEAD], 1); \\
                } \\
            } \\
            return fresh; \\
        }
    LSM_FILTER_SET_MANY(lsm_filter_set_many_portable, lsm_filter_set_line)
    #if defined(__x86_64__)
    /* The line as two registers of eight words; a shift by a negative or too large count gives 0, so word j of
       1 << (bit - 32 j) is the bit where it falls into that word, and 0 elsewhere. */
    __attribute__((target("avx2")))
    static inline uint64_t lsm_filter_set_line_avx2(uint8_t* line, uint32_t h, uint32_t k) {
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
    __attribute__((target("avx2")))
    LSM_FILTER_SET_MANY(lsm_filter_set_many_avx2, lsm_filter_set_line_avx2)
    #else
    #define lsm_filter_set_many_avx2 lsm_filter_set_many_portable
    #endif
    static inline size_t lsm_filter_set_many(uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes,
                                             size_t n) {
        return (lsm_filter_simd ? lsm_filter_set_many_avx2 : lsm_filter_set_many_portable)(
            bits, n_blocks, k, hashes, n);
    }
    static inline uint64_t lsm_filter_popcount(const uint8_t* p) {
        uint64_t w, n = 0;
        for (int i = 0; i < 64; i += 8) { memcpy(&w, p + i, 8); n += (uint64_t)__builtin_popcountll(w); }
        return n;
    }
    """
    void lsm_filter_test_many(const uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n,
                              uint8_t* out) noexcept
    size_t lsm_filter_set_many(
        uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n) noexcept
    uint64_t lsm_filter_popcount(const uint8_t* p) noexcept

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** p, size_t alignment, size_t n)

cdef extern from "<sys/mman.h>" nogil:
    int MADV_HUGEPAGE
    int madvise(void* p, size_t n, int advice)

cdef enum:
    PART = 256
    MAGIC = 0x46564B4C                # "LKVF"
    OFFSET_BITS_SUM = 48
    OFFSET_HEADER_SUM = 56
    HASH_CHUNK = 4096                # keys per release of the GIL: long enough to pay for retaking it
    HUGE_PAGE = 1 << 21

cdef uint64_t BITS_SUM_SEED = 0x6269747366696C74ULL
cdef uint64_t HEADER_SUM_SEED = 0x68656164666C7472ULL
cdef uint64_t PREFIX_SEED = 0x7072656669786573ULL

cdef const char* _EMPTY = ""
cdef bint _spoil_next = False

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
    global _spoil_next
    lsm_filter_set_many(bits, n_blocks, k, hashes, n)
    if _spoil_next and n:
        _spoil_next = False
        memset(bits + lsm_filter_block(hashes[n - 1], n_blocks) * FILTER_BLOCK_BYTES, 0, FILTER_BLOCK_BYTES)


cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil:
    if not f.usable:
        memset(out, 1, n)
        return
    lsm_filter_test_many(f.bits, f.n_blocks, f.k, hashes, n, out)


cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil:
    cdef uint8_t out[PART]
    cdef size_t done = 0, i, m, missing = 0
    if f.bits == NULL or f.n_blocks == 0:
        return n
    while done < n:
        m = min(n - done, <size_t>PART)
        lsm_filter_test_many(f.bits, f.n_blocks, f.k, hashes + done, m, out)
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
    cdef uint32_t i, _t
    if load > 4096:
        return 1.0
    for i in range(k + 1):
        need[i] = distinct[i] = 0
    need[0] = distinct[0] = 1
    for _t in range(k):                         # distinct[i]: k random bits are i different ones
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
        for _t in range(k):
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
    if not f.usable:
        return 1.0
    return f.designed_fpr if f.designed_fpr > 0 else filter_fpr(f.n_keys, f.n_blocks, f.k)


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
        put_u64(out + OFFSET_BITS_SUM, xxh3(f.bits, f.n_blocks * FILTER_BLOCK_BYTES, BITS_SUM_SEED))
    put_u64(out + OFFSET_HEADER_SUM, xxh3(out, OFFSET_HEADER_SUM, HEADER_SUM_SEED))


cdef int _decode_header(const char* header, size_t header_size, FilterC* f) noexcept nogil:
    """Fills the descriptive fields; FILTER_OK where they can be trusted and make sense."""
    if header_size < FILTER_HEADER_SIZE:
        return FILTER_BAD_LENGTH
    if get_u64(header + OFFSET_HEADER_SUM) != xxh3(header, OFFSET_HEADER_SUM, HEADER_SUM_SEED):
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
    if get_u64(header + OFFSET_BITS_SUM) != xxh3(bits, bits_size, BITS_SUM_SEED):
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
        f.designed_fpr = filter_fpr(f.n_keys, f.n_blocks, f.k)


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
        return xxh3(key, prefix_arg, seed ^ PREFIX_SEED)
    if prefix_kind == FILTER_PREFIX_SEPARATOR and n:
        end = <const char*>memchr(key, <int>prefix_arg, n)
        if end != NULL:
            has[0] = 1
            return xxh3(key, <size_t>(end - key) + 1, seed ^ PREFIX_SEED)
    return 0


# --- the curve and the header, for Python ---

def designed_fpr(double bits_per_key, uint32_t k=0):
    """The false positive rate of a full filter with this many bits per key; k = 0 takes the k the filter would choose."""
    if not bits_per_key >= 0:
        raise ValueError(f"bits_per_key must not be negative, not {bits_per_key}")
    if k > FILTER_MAX_K:
        raise ValueError(f"k must be at most {FILTER_MAX_K}, not {k}")
    cdef double rate
    with nogil:
        rate = filter_curve(bits_per_key, k)
    return rate


def fpr_for(uint64_t n_keys, uint64_t n_blocks, uint32_t k):
    """The false positive rate of n_keys in n_blocks blocks of 512 bits with k bits per key."""
    cdef double rate
    with nogil:
        rate = filter_fpr(n_keys, n_blocks, k)
    return rate


def bits_for_fpr(double fpr):
    """The fewest bits per key (a multiple of 0.001) whose designed rate is at most `fpr`."""
    if not 0 < fpr <= 1:
        raise ValueError(f"the false positive rate must be above 0 and at most 1, not {fpr}")
    cdef uint32_t low = 0, high = FILTER_MAX_MILLIBITS, middle
    if filter_curve(high / 1000.0, 0) > fpr:
        raise ValueError(f"no filter of at most {FILTER_MAX_MILLIBITS // 1000} bits per key reaches {fpr}")
    while high - low > 1:
        middle = (low + high) // 2
        if filter_curve(middle / 1000.0, 0) <= fpr:
            high = middle
        else:
            low = middle
    return 0.0 if fpr == 1 else high / 1000.0


def k_for(double bits_per_key):
    """Bits set per key by a filter with this many bits per key."""
    return filter_k_for(_millibits(bits_per_key))


def blocks_for(uint64_t n_keys, double bits_per_key):
    """Number of 64-byte blocks of a filter for n_keys keys."""
    return filter_blocks_for(n_keys, _millibits(bits_per_key))


def describe_filter(const unsigned char[::1] header not None, const unsigned char[::1] bits not None):
    """What a stored filter says of itself, and whether it can be used (`problem` is "ok") or why not."""
    cdef FilterC f
    cdef size_t header_size = <size_t>header.shape[0], bits_size = <size_t>bits.shape[0]
    filter_decode(
        <const char*>&header[0] if header_size else NULL, header_size, &bits[0] if bits_size else NULL, bits_size, &f
    )
    return {
        "problem": filter_problem_text(f.problem).decode(), "usable": bool(f.usable), "n_blocks": f.n_blocks,
        "n_keys": f.n_keys, "seed": f.seed, "k": f.k, "millibits": f.millibits, "level": f.level,
        "prefix_kind": f.prefix_kind, "prefix_arg": f.prefix_arg, "fill_ratio": filter_fill_ratio(&f),
        "designed_fpr": filter_designed_fpr(&f),
    }


def prefix_hash(uint32_t kind, uint32_t arg, const unsigned char[::1] key not None, uint64_t seed=0):
    """The hash under which a key's prefix is added; None where the key is outside the extractor's domain."""
    cdef int has = 0
    cdef size_t n = <size_t>key.shape[0]
    cdef uint64_t h = filter_prefix_hash(kind, arg, <const char*>&key[0] if n else _EMPTY, n, seed, &has)
    return h if has else None


def simd():
    """The probe in use: "avx2" or "portable"."""
    return "avx2" if lsm_filter_simd else "portable"


def use_simd(bint on):
    """Turns the SIMD probe of this module on (where the CPU has it) or off; both give the same answers."""
    lsm_filter_choose(on)


def spoil_next():
    """For tests: the next filter made for a table loses the block of its last key, as by a fault of the machine."""
    global _spoil_next
    _spoil_next = True


cdef uint32_t _millibits(double bits_per_key) except? 0:
    if not 0 < bits_per_key <= FILTER_MAX_MILLIBITS // 1000:
        raise ValueError(
            f"bits_per_key must be above 0 and at most {FILTER_MAX_MILLIBITS // 1000}, not {bits_per_key}"
        )
    cdef uint32_t millibits = <uint32_t>(bits_per_key * 1000 + 0.5)
    return millibits if millibits else 1


# --- the public filter ---

cdef int _hash_of(object key, uint64_t seed, uint64_t* out) except -1:
    cdef Py_buffer view
    if PyBytes_CheckExact(key):
        out[0] = xxh3(PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key), seed)
        return 0
    if isinstance(key, str):
        raise TypeError("keys are bytes-like; encode the str first")
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    out[0] = xxh3(view.buf if view.len else <void*>_EMPTY, <size_t>view.len, seed)
    PyBuffer_Release(&view)
    return 0


cdef class _Hasher:
    """Turns an iterable of keys into chunks of hashes, hashing plain `bytes` with the GIL released."""

    def __cinit__(self, keys, uint64_t seed):
        self.hashes = NULL
        self.pointers = NULL
        self.lengths = NULL
        self.sequence = keys if type(keys) is list else None
        self.keys = None if self.sequence is not None else iter(keys)
        self.position = 0
        self.seed = seed
        self.hashes = <uint64_t*>malloc(HASH_CHUNK * sizeof(uint64_t))
        self.pointers = <const char**>malloc(HASH_CHUNK * sizeof(char*))
        self.lengths = <size_t*>malloc(HASH_CHUNK * sizeof(size_t))
        if self.hashes == NULL or self.pointers == NULL or self.lengths == NULL:
            raise MemoryError("no memory to hash a batch of keys")

    def __dealloc__(self):
        free(self.hashes)
        free(self.pointers)
        free(self.lengths)

    cdef Py_ssize_t take(self) except -1:
        """Takes the next chunk of keys; 0 at the end. `hash_taken` (no GIL needed) completes `hashes`."""
        cdef list chunk = self._next_chunk()
        cdef Py_ssize_t n = len(chunk), i
        cdef PyObject* key
        for i in range(n):
            key = <PyObject*>PyList_GET_ITEM(chunk, i)
            if PyBytes_CheckExact(<object>key):
                self.pointers[i] = PyBytes_AS_STRING(<object>key)
                self.lengths[i] = <size_t>PyBytes_GET_SIZE(<object>key)
            else:
                self.pointers[i] = NULL
                _hash_of(<object>key, self.seed, &self.hashes[i])
        self.chunk = chunk           # keeps the pointers alive
        return n

    cdef list _next_chunk(self):
        """A list of our own: no other thread can change it while the GIL is released."""
        cdef Py_ssize_t start = self.position
        if self.sequence is None:
            return list(islice(self.keys, HASH_CHUNK))
        self.position = min(start + HASH_CHUNK, len(self.sequence))
        return self.sequence[start:self.position]

    cdef void hash_taken(self, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n):
            if self.pointers[i] != NULL:
                self.hashes[i] = xxh3(self.pointers[i], self.lengths[i], self.seed)


cdef uint8_t* _allocate_bits(uint64_t n_blocks) except NULL:
    """Zeroed, aligned to the cache line; large ones to huge pages, which halve the cost of a far probe."""
    cdef void* p = NULL
    cdef uint64_t limit = <uint64_t>1 << 57
    cdef size_t n = n_blocks * FILTER_BLOCK_BYTES
    cdef size_t alignment = HUGE_PAGE if n >= 2 * HUGE_PAGE else FILTER_BLOCK_BYTES
    if n_blocks == 0 or n_blocks >= limit or posix_memalign(&p, alignment, n) != 0:
        raise MemoryError(f"no memory for a filter of {n_blocks} blocks of 64 bytes")
    if alignment == HUGE_PAGE:
        madvise(p, n, MADV_HUGEPAGE)
    memset(p, 0, n)
    return <uint8_t*>p


cdef class BlockedBloom:
    """A set that may say "maybe" for a key it never saw, but never "no" for one it did.

    Sized by capacity and either a false positive rate or bits per key (default: 1 %). Filters with equal parameters
    and seeds can be merged. May be shared between threads.

    >>> seen = BlockedBloom(1000, 0.01)
    >>> seen.add(b"ant")
    >>> b"ant" in seen
    True
    """

    def __cinit__(self, *args, **options):
        memset(&self.f, 0, sizeof(FilterC))
        self.bits = NULL
        self.made = False
        pthread_mutex_init(&self.mutex, NULL)
        self.f.k = 1                 # until __init__ has run: one valid, empty block
        self.f.millibits = 1000
        self._own(1)

    def __init__(self, capacity, fpr=None, *, bits_per_key=None, seed=0):
        if self.made:
            raise TypeError("a BlockedBloom is made once")
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity must be an int, not {type(capacity).__name__}")
        if not 0 < capacity < 1 << 57:
            raise ValueError(f"capacity must be positive and below 2**57, not {capacity}")
        if fpr is not None and bits_per_key is not None:
            raise TypeError("give fpr or bits_per_key, not both")
        if not isinstance(seed, int):
            raise TypeError(f"seed must be an int, not {type(seed).__name__}")
        if not 0 <= seed < 1 << 64:
            raise ValueError("seed must be an unsigned 64-bit number")
        if bits_per_key is None:
            rate = 0.01 if fpr is None else fpr
            if not 0 < rate < 1:
                raise ValueError(f"fpr must be between 0 and 1, not {fpr}")
            bits_per_key = bits_for_fpr(rate)
        self.f.millibits = _millibits(bits_per_key)
        self.f.k = filter_k_for(self.f.millibits)
        self.f.seed = seed
        self._own(filter_blocks_for(capacity, self.f.millibits))
        self.made = True

    def __dealloc__(self):
        free(self.bits)
        pthread_mutex_destroy(&self.mutex)

    cdef int _own(self, uint64_t n_blocks) except -1:
        cdef uint8_t* bits = _allocate_bits(n_blocks)
        free(self.bits)
        self.bits = bits
        self.f.bits = bits
        self.f.n_blocks = n_blocks
        self.f.usable = 1
        return 0

    cdef size_t _add(self, const uint64_t* hashes, size_t n) noexcept nogil:
        """How many of the hashes were new. The mutex is never held while waiting for the GIL."""
        cdef size_t fresh
        pthread_mutex_lock(&self.mutex)
        fresh = lsm_filter_set_many(self.bits, self.f.n_blocks, self.f.k, hashes, n)
        self.f.n_keys += fresh
        pthread_mutex_unlock(&self.mutex)
        return fresh

    def add(self, key):
        """Adds a bytes-like key."""
        cdef uint64_t h = 0
        _hash_of(key, self.f.seed, &h)
        self._add(&h, 1)

    def __contains__(self, key):
        cdef uint64_t h = 0
        _hash_of(key, self.f.seed, &h)
        return filter_probe(&self.f, h)

    def test_and_add(self, key):
        """Adds the key; True where it may have been there already."""
        cdef uint64_t h = 0
        _hash_of(key, self.f.seed, &h)
        return self._add(&h, 1) == 0

    def add_many(self, keys):
        """Adds every key of an iterable; the GIL is released while hashing and setting bits."""
        cdef _Hasher hasher = _Hasher(keys, self.f.seed)
        cdef Py_ssize_t n = hasher.take()
        while n:
            with nogil:
                hasher.hash_taken(n)
                self._add(hasher.hashes, <size_t>n)
            n = hasher.take()

    def test_many(self, keys):
        """A list of bool, one per key in order: False where the key was certainly never added."""
        cdef _Hasher hasher = _Hasher(keys, self.f.seed)
        cdef uint8_t* verdicts = <uint8_t*>malloc(HASH_CHUNK)
        cdef Py_ssize_t n, i
        cdef list out = []
        if verdicts == NULL:
            raise MemoryError("no memory to test a batch of keys")
        try:
            n = hasher.take()
            while n:
                with nogil:
                    hasher.hash_taken(n)
                    filter_probe_many(&self.f, hasher.hashes, <size_t>n, verdicts)
                for i in range(n):
                    out.append(True if verdicts[i] else False)
                n = hasher.take()
        finally:
            free(verdicts)
        return out

    def merge(self, BlockedBloom other not None):
        """Adds all that `other` holds. Both must have the same size, bits per key and seed."""
        cdef uint64_t i, words = self.f.n_blocks * 8
        cdef uint64_t* mine = <uint64_t*>self.bits
        cdef const uint64_t* theirs = <const uint64_t*>other.bits
        self._require_same(other)
        if other is self:
            return
        with nogil:
            pthread_mutex_lock(&self.mutex)
            for i in range(words):
                mine[i] |= theirs[i]
            self.f.n_keys = <uint64_t>(_estimate(&self.f) + 0.5)
            pthread_mutex_unlock(&self.mutex)

    cdef int _require_same(self, BlockedBloom other) except -1:
        for name in ("seed", "bits_per_key", "n_blocks", "k"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"cannot merge filters of different {name}: {getattr(self, name)} and {getattr(other, name)}"
                )
        return 0

    def clear(self):
        """Forgets every key."""
        with nogil:
            pthread_mutex_lock(&self.mutex)
            memset(self.bits, 0, self.f.n_blocks * FILTER_BLOCK_BYTES)
            self.f.n_keys = 0
            pthread_mutex_unlock(&self.mutex)

    def copy(self):
        """An independent filter with the same keys."""
        return BlockedBloom.from_bytes(self.to_bytes())

    def to_bytes(self):
        """Header and bits, as docs/format.md describes a filter."""
        cdef size_t n = self.f.n_blocks * FILTER_BLOCK_BYTES
        cdef bytes blob = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(n + FILTER_HEADER_SIZE))
        cdef char* out = PyBytes_AS_STRING(blob)
        cdef FilterC described
        with nogil:
            pthread_mutex_lock(&self.mutex)
            memcpy(out + FILTER_HEADER_SIZE, self.bits, n)
            described = self.f
            pthread_mutex_unlock(&self.mutex)
            described.bits = <const uint8_t*>(out + FILTER_HEADER_SIZE)
            filter_encode_header(&described, out)
        return blob

    @staticmethod
    def from_bytes(const unsigned char[::1] data not None):
        """The filter that `to_bytes` wrote. CorruptionError where the bytes are not one, whole and undamaged."""
        cdef size_t n = <size_t>data.shape[0]
        cdef FilterC f
        cdef BlockedBloom made
        if n <= FILTER_HEADER_SIZE:
            raise CorruptionError(f"not a filter: {n} bytes are too few")
        filter_decode(
            <const char*>&data[0], FILTER_HEADER_SIZE, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE, &f
        )
        if not f.usable or f.millibits == 0:
            raise CorruptionError(f"not a filter: {filter_problem_text(f.problem or FILTER_BAD_GEOMETRY).decode()}")
        made = BlockedBloom.__new__(BlockedBloom)
        made.f = f
        made._own(f.n_blocks)
        made.made = True
        memcpy(made.bits, &data[FILTER_HEADER_SIZE], n - FILTER_HEADER_SIZE)
        return made

    def __eq__(self, other):
        if not isinstance(other, BlockedBloom):
            return NotImplemented
        cdef BlockedBloom o = other
        return (
            self.f.seed == o.f.seed and self.f.millibits == o.f.millibits and self.f.k == o.f.k
            and self.f.n_blocks == o.f.n_blocks
            and memcmp(self.bits, o.bits, self.f.n_blocks * FILTER_BLOCK_BYTES) == 0
        )

    __hash__ = None

    def __repr__(self):
        return (f"<BlockedBloom capacity={self.capacity} bits_per_key={self.bits_per_key:g} k={self.k} "
                f"count={self.count} fill={self.fill_ratio:.3f}>")

    def __sizeof__(self):
        return sizeof(BlockedBloom) + self.f.n_blocks * FILTER_BLOCK_BYTES

    @property
    def capacity(self):
        """Keys it holds at its designed rate: what was asked for, rounded up to whole blocks."""
        return self.f.n_blocks * 512000 // self.f.millibits

    @property
    def bits_per_key(self):
        return self.f.millibits / 1000.0

    @property
    def k(self):
        return self.f.k

    @property
    def n_blocks(self):
        return self.f.n_blocks

    @property
    def nbytes(self):
        return self.f.n_blocks * FILTER_BLOCK_BYTES

    @property
    def seed(self):
        return self.f.seed

    @property
    def count(self):
        """Added keys that set at least one new bit; after a merge, the estimate."""
        return self.f.n_keys

    @property
    def fill_ratio(self):
        """Share of the bits that are set."""
        cdef double ratio
        with nogil:
            ratio = filter_fill_ratio(&self.f)
        return ratio

    @property
    def approximate_count(self):
        """Distinct keys, estimated from the bits."""
        cdef double estimate
        with nogil:
            estimate = _estimate(&self.f)
        return round(estimate)

    @property
    def designed_fpr(self):
        """The false positive rate at capacity."""
        return designed_fpr(self.bits_per_key, self.f.k)

    @property
    def expected_fpr(self):
        """The false positive rate of the bits as they are now."""
        cdef double rate
        with nogil:
            rate = _rate_of_bits(&self.f)
        return rate

    @property
    def saturated(self):
        """True once it holds more keys than it was sized for."""
        return self.approximate_count > self.capacity


cdef double _estimate(const FilterC* f) noexcept nogil:
    """Keys, from the share of unset bits: with Poisson loads its mean is exp(-load x (1 - (1 - 1/512)^k))."""
    cdef double bits = <double>f.n_blocks * FILTER_BLOCK_BITS
    cdef double unset = bits - <double>_count_ones(f.bits, f.n_blocks)
    cdef double per_key = 1 - exp(f.k * log1p(-1.0 / FILTER_BLOCK_BITS))
    if unset < 0.5:
        unset = 0.5                       # all set: the estimate is a lower bound
    return -log(unset / bits) / per_key * f.n_blocks


cdef double _rate_of_bits(const FilterC* f) noexcept nogil:
    cdef double total = 0, share, power
    cdef uint64_t i
    cdef uint32_t _j
    for i in range(f.n_blocks):
        share = lsm_filter_popcount(f.bits + i * FILTER_BLOCK_BYTES) / <double>FILTER_BLOCK_BITS
        power = 1
        for _j in range(f.k):
            power *= share
        total += power
    return total / f.n_blocks


def probe_all(list filters not None, const unsigned char[::1] key not None):
    """Whether each filter may hold the key, asked the way a lookup asks all tables on its way; None always may.

    All of one seed, at most 32."""
    cdef FilterProbe questions[32]
    cdef BlockedBloom bloom
    cdef uint64_t h = 0
    cdef size_t n = <size_t>key.shape[0]
    cdef uint32_t maybe
    cdef int i
    if len(filters) > 32 or len({one.seed for one in filters if one is not None}) > 1:
        raise ValueError("at most 32 filters, all of one seed")
    for i in range(len(filters)):
        memset(&questions[i], 0, sizeof(FilterProbe))
        if filters[i] is not None:
            bloom = filters[i]
            h = xxh3(<const char*>&key[0] if n else _EMPTY, n, bloom.f.seed)
            questions[i].k = bloom.f.k
            questions[i].line = bloom.f.bits + lsm_filter_block(h, bloom.f.n_blocks) * FILTER_BLOCK_BYTES
    maybe = lsm_filter_probe(questions, len(filters), lsm_filter_remix(h))
    return [bool((maybe >> i) & 1) for i in range(len(filters))]

"""Adding to and probing many lines of a filter."""

from libc.string cimport memset

from lsmkv_ext.filter.fuse cimport fuse_test_batch

cdef extern from * nogil:
    """
    /* A ring of prefetched lines: a line is tested LSM_FILTER_AHEAD keys after its prefetch, so the memory system always has that
       many reads under way. A macro, compiled once for each way to test a line. */
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
    """
    void lsm_filter_test_many(const uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n,
                              uint8_t* out) noexcept
    size_t lsm_filter_set_many(
        uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n) noexcept

cdef enum:
    CHUNK = 256

# A test hook; production code never sets it.
cdef bint _spoil_next = False


cdef size_t filter_add_many(
    uint8_t* bits, uint64_t n_blocks, uint32_t k, const uint64_t* hashes, size_t n
) noexcept nogil:
    global _spoil_next
    cdef size_t fresh = lsm_filter_set_many(bits, n_blocks, k, hashes, n)
    if _spoil_next and n:
        _spoil_next = False
        memset(bits + lsm_filter_block(hashes[n - 1], n_blocks) * FILTER_BLOCK_BYTES, 0, FILTER_BLOCK_BYTES)
    return fresh


cdef inline void _test_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil:
    if f.fuse.width:
        fuse_test_batch(f.bits, &f.fuse, hashes, n, out)
    else:
        lsm_filter_test_many(f.bits, f.n_blocks, f.k, hashes, n, out)


cdef void filter_probe_many(const FilterC* f, const uint64_t* hashes, size_t n, uint8_t* out) noexcept nogil:
    if not f.usable:
        memset(out, 1, n)
        return
    _test_many(f, hashes, n, out)


cdef size_t filter_count_missing(const FilterC* f, const uint64_t* hashes, size_t n) noexcept nogil:
    cdef uint8_t out[CHUNK]
    cdef size_t done = 0, i, m, missing = 0
    if f.bits == NULL or f.n_blocks == 0:
        return n
    while done < n:
        m = min(n - done, <size_t>CHUNK)
        _test_many(f, hashes + done, m, out)
        for i in range(m):
            missing += 1 - out[i]
        done += m
    return missing


cdef uint64_t filter_count_ones(const FilterC* f) noexcept nogil:
    cdef uint64_t i, ones = 0
    for i in range(filter_size(f) // FILTER_BLOCK_BYTES):
        ones += lsm_filter_popcount(f.bits + i * FILTER_BLOCK_BYTES)
    return ones


cdef double filter_fill_ratio(const FilterC* f) noexcept nogil:
    if not f.usable:
        return 0.0
    return <double>filter_count_ones(f) / (<double>filter_size(f) * 8)


cdef void filter_choose(bint on) noexcept nogil:
    lsm_filter_choose(on)


def spoil_next():
    """For tests: zero the block of the last key in the next filter that is built, as faulty memory might."""
    global _spoil_next
    _spoil_next = True

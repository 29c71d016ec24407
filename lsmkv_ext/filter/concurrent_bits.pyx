"""Bits that several threads and processes set."""

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    filter_add_many,
    lsm_filter_block,
    lsm_filter_remix,
    lsm_filter_set,
)
from lsmkv_ext.port.atomics cimport lsm_load8, lsm_store8
from lsmkv_ext.port.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef extern from "<sched.h>" nogil:
    int sched_yield() noexcept

cdef extern from * nogil:
    """
    #include <features.h>
    /* Whether another thread waits for a mutex that this one holds; -1 where the C library is not known to tell. */
    #ifdef __GLIBC__
    static inline int lsm_mutex_contended(pthread_mutex_t* m) {
        return __atomic_load_n(&m->__data.__lock, __ATOMIC_RELAXED) > 1;
    }
    #else
    static inline int lsm_mutex_contended(pthread_mutex_t* m) { (void)m; return -1; }
    #endif
    static inline uint64_t lsm_word_load(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline void lsm_word_store(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    /* Whether it set a new bit. A word that has its bits is only read: an atomic OR costs 5 ns. */
    static inline int lsm_word_or(uint64_t* p, uint64_t v) {
        if (!(v & ~lsm_word_load(p))) return 0;
        __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
        return 1;
    }
    static inline int lsm_line_or(uint64_t* line, uint32_t h, uint32_t k) {
        uint64_t mask[8] = {0};
        int fresh = 0;
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t bit = (h * LSM_FILTER_MUL[i]) >> 23;
            mask[bit >> 6] |= (uint64_t)1 << (bit & 63);
        }
        for (int w = 0; w < 8; w++) fresh |= lsm_word_or(line + w, mask[w]);
        return fresh;
    }
    """
    int lsm_mutex_contended(pthread_mutex_t* m) noexcept
    uint64_t lsm_word_load(const uint64_t* p) noexcept
    void lsm_word_store(uint64_t* p, uint64_t v) noexcept
    bint lsm_word_or(uint64_t* p, uint64_t v) noexcept
    bint lsm_line_or(uint64_t* line, uint32_t h, uint32_t k) noexcept
    void prefetch_write "__builtin_prefetch"(const void* p, int write) noexcept

cdef enum:
    MAX_STRIPES = 64
    CHUNK = 4096                  # hashes sorted at once
    AHEAD = 32                    # hashes between the prefetch of a line and its use
    WORDS = 8                     # of a block


cdef int bits_init(BitsC* b, uint8_t* bits, uint64_t n_blocks, uint32_t k, bint atomic) noexcept nogil:
    cdef uint32_t i
    memset(b, 0, sizeof(BitsC))
    b.bits = bits
    b.n_blocks = n_blocks
    b.k = k
    while (n_blocks - 1) >> b.shift >= MAX_STRIPES:
        b.shift += 1
    b.n_stripes = <uint32_t>((n_blocks - 1) >> b.shift) + 1
    if not atomic:
        b.stripes = <Stripe*>calloc(b.n_stripes, sizeof(Stripe))
        if b.stripes == NULL:
            return -1
        for i in range(b.n_stripes):
            pthread_mutex_init(&b.stripes[i].mutex, NULL)
    return 0


cdef void bits_free(BitsC* b) noexcept nogil:
    cdef uint32_t i
    if b.stripes != NULL:
        for i in range(b.n_stripes):
            pthread_mutex_destroy(&b.stripes[i].mutex)
        free(b.stripes)
    memset(b, 0, sizeof(BitsC))


# --- adding ------------------------------------------------------------------------------------------------------------

cdef size_t _add_atomic(const BitsC* b, const uint64_t* hashes, size_t n) noexcept nogil:
    cdef uint8_t* lines[AHEAD]
    cdef size_t i, j, fresh = 0, ahead = min(n, <size_t>AHEAD)
    for i in range(n + ahead):
        if i >= ahead:
            j = i - ahead
            fresh += lsm_line_or(<uint64_t*>lines[j % AHEAD], lsm_filter_remix(hashes[j]), b.k)
        if i < n:
            lines[i % AHEAD] = b.bits + lsm_filter_block(hashes[i], b.n_blocks) * FILTER_BLOCK_BYTES
            prefetch_write(lines[i % AHEAD], 1)
    return fresh


cdef size_t _add_sorted(const BitsC* b, const uint64_t* hashes, size_t n) noexcept nogil:
    """At most CHUNK hashes, stripe by stripe. Threads begin at different stripes, so that they rarely wait."""
    cdef uint64_t in_order[CHUNK]
    cdef size_t end[MAX_STRIPES]
    cdef size_t i, at = 0, count, fresh = 0
    cdef uint32_t s, t, first
    memset(end, 0, sizeof(end))
    for i in range(n):
        end[lsm_filter_block(hashes[i], b.n_blocks) >> b.shift] += 1
    for s in range(b.n_stripes):
        count = end[s]
        end[s] = at
        at += count
    for i in range(n):
        s = <uint32_t>(lsm_filter_block(hashes[i], b.n_blocks) >> b.shift)
        in_order[end[s]] = hashes[i]
        end[s] += 1
    first = <uint32_t>(hashes[0] % b.n_stripes)
    for t in range(b.n_stripes):
        s = (first + t) % b.n_stripes
        at = end[s - 1] if s else 0
        if end[s] > at:
            pthread_mutex_lock(&b.stripes[s].mutex)
            fresh += filter_add_many(b.bits, b.n_blocks, b.k, in_order + at, end[s] - at)
            pthread_mutex_unlock(&b.stripes[s].mutex)
    return fresh


cdef size_t bits_add_many(const BitsC* b, const uint64_t* hashes, size_t n) noexcept nogil:
    cdef size_t done = 0, part, fresh = 0
    while done < n:
        part = min(n - done, <size_t>CHUNK)
        if b.stripes == NULL:
            fresh += _add_atomic(b, hashes + done, part)
        else:
            fresh += _add_sorted(b, hashes + done, part)
        done += part
    return fresh


cdef bint bits_add(const BitsC* b, uint64_t hash) noexcept nogil:
    cdef uint64_t block = lsm_filter_block(hash, b.n_blocks)
    cdef uint8_t* line = b.bits + block * FILTER_BLOCK_BYTES
    cdef pthread_mutex_t* mutex
    cdef bint fresh
    if b.stripes == NULL:
        return lsm_line_or(<uint64_t*>line, lsm_filter_remix(hash), b.k)
    mutex = &b.stripes[block >> b.shift].mutex
    pthread_mutex_lock(mutex)
    fresh = lsm_filter_set(line, lsm_filter_remix(hash), b.k) != 0
    pthread_mutex_unlock(mutex)
    return fresh


# --- all bits ----------------------------------------------------------------------------------------------------------

cdef inline void _lock(const BitsC* b, uint32_t stripe) noexcept nogil:
    if b.stripes != NULL:
        pthread_mutex_lock(&b.stripes[stripe].mutex)


cdef inline void _unlock(const BitsC* b, uint32_t stripe) noexcept nogil:
    if b.stripes != NULL:
        pthread_mutex_unlock(&b.stripes[stripe].mutex)


cdef inline size_t _first_word(const BitsC* b, uint32_t stripe) noexcept nogil:
    return min(<uint64_t>stripe << b.shift, b.n_blocks) * WORDS


cdef void bits_or(const BitsC* b, const BitsC* other) noexcept nogil:
    cdef uint32_t s
    cdef size_t i
    for s in range(b.n_stripes):
        _lock(b, s)
        for i in range(_first_word(b, s), _first_word(b, s + 1)):
            lsm_word_or(<uint64_t*>b.bits + i, lsm_word_load(<const uint64_t*>other.bits + i))
        _unlock(b, s)


cdef void bits_clear(const BitsC* b) noexcept nogil:
    cdef uint32_t s
    cdef size_t i
    for s in range(b.n_stripes):
        _lock(b, s)
        for i in range(_first_word(b, s), _first_word(b, s + 1)):
            lsm_word_store(<uint64_t*>b.bits + i, 0)
        _unlock(b, s)


cdef void bits_copy(const BitsC* b, char* out) noexcept nogil:
    cdef uint32_t s
    cdef size_t i
    cdef uint64_t word
    for s in range(b.n_stripes):
        _lock(b, s)
        for i in range(_first_word(b, s), _first_word(b, s + 1)):
            word = lsm_word_load(<const uint64_t*>b.bits + i)
            memcpy(out + 8 * i, &word, 8)
        _unlock(b, s)


# --- for tests ---------------------------------------------------------------------------------------------------------

cdef int _contended(const BitsC* b) noexcept nogil:
    cdef uint32_t s
    cdef int found = 0
    for s in range(b.n_stripes):
        found |= lsm_mutex_contended(&b.stripes[s].mutex)
    return found


cdef int bits_hold(const BitsC* b, uint8_t* held, const uint8_t* ended) noexcept nogil:
    cdef uint32_t s
    cdef int found = 0
    for s in range(b.n_stripes):
        _lock(b, s)
    lsm_store8(held, 1)
    while found == 0 and b.stripes != NULL and not lsm_load8(ended):
        found = _contended(b)
        sched_yield()
    for s in range(b.n_stripes):
        _unlock(b, s)
    return found

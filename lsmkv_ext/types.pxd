# The C vocabulary of the data plane: fixed-width integers, atomics, prefetch, locks, the clock.
# Everything here is inline or libc; nothing owns memory.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_TYPES_H
    #define LSMKV_TYPES_H
    #include <stdint.h>
    #include <string.h>
    #include <time.h>
    #define LSM_MAX_SEQ (1ULL << 62)
    #define lsm_prefetch(p) __builtin_prefetch((p), 0, 3)
    #define lsm_prefetch_write(p) __builtin_prefetch((p), 1, 3)
    #define lsm_likely(x) __builtin_expect(!!(x), 1)
    #define lsm_unlikely(x) __builtin_expect(!!(x), 0)
    static inline void* lsm_load_ptr(void* const* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store_ptr(void** p, void* v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline uint64_t lsm_load64(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store64(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline uint64_t lsm_fetch_add64(uint64_t* p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
    static inline uint8_t lsm_load8(const uint8_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline void lsm_store8(uint8_t* p, uint8_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    static inline int32_t lsm_load32(const int32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store32(int32_t* p, int32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int32_t lsm_fetch_add32(int32_t* p, int32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
    static inline uint64_t lsm_now_ns(void) {
        struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
    }
    /* memcmp order, then the shorter first */
    static inline int lsm_compare(const char* a, size_t an, const char* b, size_t bn) {
        size_t n = an < bn ? an : bn;
        if (n >= 8) {
            uint64_t x, y; memcpy(&x, a, 8); memcpy(&y, b, 8);
            if (x != y) { x = __builtin_bswap64(x); y = __builtin_bswap64(y); return x < y ? -1 : 1; }
        }
        int r = n ? memcmp(a, b, n) : 0;
        if (r) return r;
        return an < bn ? -1 : (an > bn ? 1 : 0);
    }
    /* the first 8 bytes as a big-endian number, zero padded: orders like memcmp where it differs */
    static inline uint64_t lsm_prefix8(const char* p, size_t n) {
        uint64_t x = 0;
        if (n >= 8) { memcpy(&x, p, 8); return __builtin_bswap64(x); }
        for (size_t i = 0; i < n; i++) x |= (uint64_t)(unsigned char)p[i] << (56 - 8 * i);
        return x;
    }
    #endif
    """
    const uint64_t MAX_SEQ "LSM_MAX_SEQ"    # sequence numbers are below it
    void lsm_prefetch(const void* p) noexcept
    void lsm_prefetch_write(const void* p) noexcept
    bint lsm_likely(bint x) noexcept
    bint lsm_unlikely(bint x) noexcept
    void* lsm_load_ptr(void** p) noexcept
    void lsm_store_ptr(void** p, void* v) noexcept
    uint64_t lsm_load64(const uint64_t* p) noexcept
    void lsm_store64(uint64_t* p, uint64_t v) noexcept
    uint64_t lsm_fetch_add64(uint64_t* p, uint64_t v) noexcept
    uint8_t lsm_load8(const uint8_t* p) noexcept             # these two order nothing
    void lsm_store8(uint8_t* p, uint8_t v) noexcept
    int lsm_load32(const int* p) noexcept
    void lsm_store32(int* p, int v) noexcept
    int lsm_fetch_add32(int* p, int v) noexcept
    uint64_t lsm_now_ns() noexcept
    int lsm_compare(const char* a, size_t an, const char* b, size_t bn) noexcept
    uint64_t lsm_prefix8(const char* p, size_t n) noexcept

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* m, void* attr)
    int pthread_mutex_destroy(pthread_mutex_t* m)
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_trylock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_cond_init(pthread_cond_t* c, void* attr)
    int pthread_cond_destroy(pthread_cond_t* c)
    int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m)
    int pthread_cond_broadcast(pthread_cond_t* c)

# Limits that every writer enforces and every decoder checks against.
cdef enum:
    MAX_KEY = 65535
    MAX_VALUE = 1 << 30
    OP_PUT = 0
    OP_DELETE = 1
    OP_DELETE_RANGE = 2

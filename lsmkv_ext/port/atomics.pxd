# Atomic loads and stores, prefetch and branch hints.

from libc.stdint cimport int32_t, uint8_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef LSMKV_ATOMICS_H
    #define LSMKV_ATOMICS_H
    #include <stdint.h>
    #define lsm_prefetch(p) __builtin_prefetch((p), 0, 3)
    #define lsm_prefetch_write(p) __builtin_prefetch((p), 1, 3)
    #define lsm_likely(x) __builtin_expect(!!(x), 1)
    #define lsm_unlikely(x) __builtin_expect(!!(x), 0)
    static inline void* lsm_load_ptr(void* const* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store_ptr(void** p, void* v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline uint64_t lsm_load64(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store64(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline uint64_t lsm_fetch_add64(uint64_t* p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
    static inline int lsm_cas64(uint64_t* p, uint64_t old, uint64_t v) {
        return __atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline uint8_t lsm_load8(const uint8_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline void lsm_store8(uint8_t* p, uint8_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    static inline int32_t lsm_load32(const int32_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void lsm_store32(int32_t* p, int32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int32_t lsm_fetch_add32(int32_t* p, int32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
    #endif
    """
    void lsm_prefetch(const void* p) noexcept
    void lsm_prefetch_write(const void* p) noexcept
    bint lsm_likely(bint x) noexcept
    bint lsm_unlikely(bint x) noexcept
    void* lsm_load_ptr(void** p) noexcept
    void lsm_store_ptr(void** p, void* v) noexcept
    uint64_t lsm_load64(const uint64_t* p) noexcept
    void lsm_store64(uint64_t* p, uint64_t v) noexcept
    uint64_t lsm_fetch_add64(uint64_t* p, uint64_t v) noexcept
    bint lsm_cas64(uint64_t* p, uint64_t old, uint64_t v) noexcept      # stores v if *p is old
    uint8_t lsm_load8(const uint8_t* p) noexcept             # these two order nothing
    void lsm_store8(uint8_t* p, uint8_t v) noexcept
    int lsm_load32(const int* p) noexcept
    void lsm_store32(int* p, int v) noexcept
    int lsm_fetch_add32(int* p, int v) noexcept

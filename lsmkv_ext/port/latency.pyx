from lsmkv_ext.port.atomics cimport lsm_load64, lsm_store64

cdef extern from * nogil:
    """
    static const uint64_t lsm_latency_bounds[] = {
        100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 25000000, 50000000, 100000000, 250000000, 500000000,
        1000000000, 2500000000, 5000000000, 10000000000, 30000000000, 60000000000,
    };
    """
    const uint64_t lsm_latency_bounds[]

# In seconds.
BOUNDS = tuple([lsm_latency_bounds[i] / 1e9 for i in range(LATENCY_BUCKETS - 1)])


cdef void latency_count(uint64_t* buckets, uint64_t ns) noexcept nogil:
    cdef int i = 0
    while i < LATENCY_BUCKETS - 1 and lsm_latency_bounds[i] < ns:
        i += 1
    lsm_store64(&buckets[i], lsm_load64(&buckets[i]) + 1)

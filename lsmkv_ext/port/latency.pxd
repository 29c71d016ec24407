# Histograms of durations, for operations that take a system call or longer: counting one is a short search.

from libc.stdint cimport uint64_t

cdef enum:
    LATENCY_BUCKETS = 19        # the last one is for longer durations than any bound

# Counts a duration in the bucket of the first bound that is not below it. One thread at a time; others may read the buckets.
cdef void latency_count(uint64_t* buckets, uint64_t ns) noexcept nogil

# What point lookups count, for each tree. Each event is counted once; sums of these (lookups, checks, positives) are made when
# somebody asks (Tree.counters).
#
# GIL-protected: the Counters of a tree; a call off the GIL counts in its own and adds them when the GIL is back

from libc.stdint cimport uint64_t

from lsmkv_ext.limits cimport MAX_LEVELS

cdef extern from * nogil:
    """
    #ifndef LSMKV_COUNTERS
    #define LSMKV_COUNTERS 1
    #endif
    #if LSMKV_COUNTERS
    #define lsm_count(p, n) ((void)(*(p) += (n)))
    #else
    #define lsm_count(p, n) ((void)0)
    #endif
    """
    void lsm_count(uint64_t* p, uint64_t n) noexcept
    void lsm_count_double "lsm_count" (double* p, double n) noexcept
    enum:
        LSMKV_COUNTERS

ctypedef struct LevelCounters:
    uint64_t negatives          # a healthy filter said no; begins at phase
    uint64_t true_positives     # it said maybe, and the key was there
    uint64_t false_positives
    uint64_t unfiltered         # the table has no filter, or the caller's hint skipped it
    uint64_t fail_open          # the table's filter is damaged
    uint64_t sampled            # negatives looked up in the index, to know what they saved
    uint64_t sampled_bytes
    uint64_t sampled_cached
    uint64_t sampled_disk
    double designed_fpr_sum     # over the checks: the designed rate of the filter asked
    uint64_t phase              # negatives counted elsewhere before: continues the sampling of another Counters

ctypedef struct Counters:
    LevelCounters levels[MAX_LEVELS]
    uint64_t gets
    uint64_t gets_found
    uint64_t memtable_hits
    uint64_t row_hits           # answered by the row cache
    uint64_t shadow_checks
    uint64_t shadow_wrong
    uint64_t cache_timed        # sampled negatives whose cached block was searched to time the search
    uint64_t cache_timed_ns
    uint64_t shadow_period      # a setting: one in so many negatives of a level is proved by reading; 0 = never

# Zeroes c but takes over the settings and the place in the sampling of `like`.
cdef void counters_start(Counters* c, const Counters* like) noexcept nogil
cdef void counters_add(Counters* into, const Counters* other) noexcept nogil
# Zeroes all but the settings.
cdef void counters_reset(Counters* c) noexcept nogil
cdef dict counters_dict(const Counters* c)

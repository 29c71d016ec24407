# The counters of point lookups, one set per tree. Each event is counted once; counters_dict derives the sums (lookups, checks,
# positives).
#
# GIL-protected: the Counters of a tree. A call without the GIL counts in Counters of its own and adds them afterwards.

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
    uint64_t negatives          # a healthy filter ruled the table out; starts at `phase`
    uint64_t true_positives     # the filter passed, and the table had the key
    uint64_t false_positives    # the filter passed, and the table did not have the key
    uint64_t remembered         # the filter passed, and the table was known not to have the key: not read
    uint64_t unfiltered         # the table has no filter, or the caller's hint skipped it
    uint64_t fail_open          # the table's filter is damaged
    uint64_t sampled            # negatives looked up in the index, to estimate the reads saved
    uint64_t sampled_bytes
    uint64_t sampled_cached
    uint64_t sampled_disk
    double designed_fpr_sum     # of the filters tested for absent keys: negatives and false positives
    uint64_t phase              # `negatives` at the start: a call's own Counters continue the sampling of the tree's

ctypedef struct Counters:
    LevelCounters levels[MAX_LEVELS]
    uint64_t gets
    uint64_t gets_found
    uint64_t memtable_hits
    uint64_t row_hits           # answered by the row cache
    uint64_t shadow_checks      # negatives verified by reading the table
    uint64_t shadow_wrong       # of these, the table had the key: the filter is wrong
    uint64_t cache_timed        # sampled negatives whose cached block was searched to time the search
    uint64_t cache_timed_ns
    uint64_t shadow_period      # setting: every n-th negative of a level is verified by reading the table; 0 = never

# Zeroes *c, then copies the settings and the sampling position of *like.
cdef void counters_start(Counters* c, const Counters* like) noexcept nogil
cdef void counters_add(Counters* into, const Counters* other) noexcept nogil
# Zeroes everything but the settings.
cdef void counters_reset(Counters* c) noexcept nogil
cdef dict counters_dict(const Counters* c)

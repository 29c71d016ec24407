from libc.string cimport memset


cdef void counters_reset(Counters* c) noexcept nogil:
    cdef uint64_t period = c.shadow_period
    memset(c, 0, sizeof(Counters))
    c.shadow_period = period


cdef void counters_start(Counters* c, const Counters* like) noexcept nogil:
    cdef int i
    c.shadow_period = like.shadow_period
    counters_reset(c)
    for i in range(MAX_LEVELS):
        c.levels[i].negatives = c.levels[i].phase = like.levels[i].negatives


cdef void counters_add(Counters* into, const Counters* other) noexcept nogil:
    cdef int i
    cdef LevelCounters* a
    cdef const LevelCounters* b
    for i in range(MAX_LEVELS):
        a = &into.levels[i]
        b = &other.levels[i]
        a.negatives += b.negatives - b.phase
        a.true_positives += b.true_positives
        a.false_positives += b.false_positives
        a.remembered += b.remembered
        a.unfiltered += b.unfiltered
        a.fail_open += b.fail_open
        a.sampled += b.sampled
        a.sampled_bytes += b.sampled_bytes
        a.sampled_cached += b.sampled_cached
        a.sampled_disk += b.sampled_disk
        a.designed_fpr_sum += b.designed_fpr_sum
    into.gets += other.gets
    into.gets_found += other.gets_found
    into.memtable_hits += other.memtable_hits
    into.row_hits += other.row_hits
    into.shadow_checks += other.shadow_checks
    into.shadow_wrong += other.shadow_wrong
    into.cache_timed += other.cache_timed
    into.cache_timed_ns += other.cache_timed_ns


cdef dict counters_dict(const Counters* c):
    cdef dict out, level
    cdef int i
    out = c[0]
    del out["shadow_period"]
    levels = []
    for i in range(MAX_LEVELS):
        level = c.levels[i]
        del level["phase"]
        level["positives"] = level["true_positives"] + level["false_positives"] + level["remembered"]
        level["checks"] = level["positives"] + level["negatives"]
        level["lookups"] = level["checks"] + level["unfiltered"] + level["fail_open"]
        levels.append(level)
    out["levels"] = levels
    return out

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.block.block cimport block_prefetch
from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.cache.block_cache cimport cache_release, cache_reserve
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, expiry_of
from lsmkv_ext.filter.format cimport FILTER_ABSENT
from lsmkv_ext.filter.fuse cimport lsm_fuse_prefetch, lsm_fuse_test
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    FilterProbe,
    filter_probe,
    lsm_filter_block,
    lsm_filter_probe,
    lsm_filter_remix,
    lsm_filter_test,
)
from lsmkv_ext.memtable.arena cimport MemEntry, entry_kind, entry_value
from lsmkv_ext.memtable.memtable cimport MemC, mem_covering_seq, mem_find, mem_prefetch
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_prefetch, lsm_store64, lsm_unlikely
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.status cimport ST_NOT_FOUND, ST_OK, fail_corrupt
from lsmkv_ext.port.wall_clock cimport has_passed
from lsmkv_ext.read.counters cimport LSMKV_COUNTERS, LevelCounters, lsm_count, lsm_count_double
from lsmkv_ext.read.read_state cimport LevelC, TableSlot
from lsmkv_ext.table.cold cimport table_is_cold, table_start_block
from lsmkv_ext.table.reader cimport (
    table_ends_before,
    table_find_block,
    table_get,
    table_get_in,
    table_peek_block,
    table_pin_cached,
    table_prefetch_block,
    table_unpin,
)
from lsmkv_ext.table.absent_keys cimport absent_keys_add, absent_keys_hold, absent_keys_match
from lsmkv_ext.table.tombstones cimport tombstones_cover

cdef extern from * nogil:
    """
    /* Index of the first of n >= 1 ascending numbers that is >= x, or n. Branchless: the branch would be unpredictable. */
    static inline uint32_t lsm_lower_bound(const uint64_t* a, uint32_t n, uint64_t x) {
        uint32_t at = 0;
        while (n > 1) {
            const uint32_t half = n >> 1;
            at += half & (uint32_t)-(int32_t)(a[at + half - 1] < x);
            n -= half;
        }
        return at + (a[at] < x);
    }
    """
    uint32_t lsm_lower_bound(const uint64_t* a, uint32_t n, uint64_t x) noexcept

cdef enum:
    CANDIDATES = 32             # tables probed at a time: one bit each in a uint32_t
    GROUP = 32                  # lookups whose cache misses overlap
    NOT_LOOKED_UP = 0x7FFFFFFF
    BIAS_MAX = 16
    BIAS_TO_HITS = 8            # from here on a get is expected to find its key
    SAMPLE_EVERY = 256          # every n-th negative of a level is looked up in the index: several cache misses
    TIME_EVERY = 4              # the cached block of every n-th sample is searched, to time the search


# --- tracing ---------------------------------------------------------------------------------------------------------

cdef void trace_source(Trace* trace, int memtable, int level, const TableSlot* slot) noexcept nogil:
    """Starts the step of the next source."""
    cdef TraceStep* step = &trace.steps[trace.n]
    memset(step, 0, sizeof(TraceStep))
    step.level = level
    step.memtable = memtable
    if slot != NULL:
        step.table = slot.t
        step.designed_fpr = slot.designed_fpr
    step.ns = lsm_now_ns()
    trace.n += 1


cdef void trace_read(Trace* trace, TableC* t, uint32_t block) noexcept nogil:
    """Records that the current table is read."""
    cdef TraceStep* step = &trace.steps[trace.n - 1]
    step.read = True
    step.block = block
    step.cached = block < t.n_blocks and table_peek_block(t, block) != NULL


cdef void trace_answer(const Lookup* q, int answer) noexcept nogil:
    cdef TraceStep* step = &q.trace.steps[q.trace.n - 1]
    step.ns = lsm_now_ns() - step.ns
    step.answer = answer
    step.seq = q.seq


# --- the entry found --------------------------------------------------------------------------------------------------

cdef int judge_kind(Lookup* q, int kind, const char* value, size_t vlen) noexcept nogil:
    """Of an entry that is no plain value."""
    if kind == ENTRY_DELETE:
        return DELETED
    q.expiry = 0
    if kind & ENTRY_EXPIRY:
        if has_passed(q.moment, expiry_of(value)):
            return EXPIRED
        q.expiry = expiry_of(value)
        value += EXPIRY_SIZE
        vlen -= EXPIRY_SIZE
    if kind & ENTRY_POINTER:
        q.found = POINTED
        memcpy(q.pointer, value, POINTER_SIZE)      # the block may go once the GIL is released
        return FOUND
    q.found = VALUE
    q.value = value
    q.vlen = vlen
    return FOUND


cdef inline int judge(Lookup* q, int kind, const char* value, size_t vlen) noexcept nogil:
    """The answer of a source that has the key."""
    if lsm_unlikely(kind):
        return judge_kind(q, kind, value, vlen)
    q.found = VALUE
    q.expiry = 0
    q.value = value
    q.vlen = vlen
    return FOUND


# --- memtables -------------------------------------------------------------------------------------------------------

cdef inline int probe_memtable(const MemC* m, Lookup* q) noexcept nogil:
    cdef MemEntry* e = mem_find(m, q.key, q.klen, q.hash, q.snapshot)
    cdef uint64_t covered = 0
    if m.range_tombstones != NULL:
        covered = mem_covering_seq(m, q.key, q.klen, q.snapshot)
    if covered and (e == NULL or e.seq < covered):
        q.seq = covered
        return RANGE_DELETED
    if e == NULL:
        return ABSENT
    q.seq = e.seq
    return judge(q, entry_kind(e), entry_value(e), e.vlen)


# --- tables ----------------------------------------------------------------------------------------------------------

cdef inline bint slot_before(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """All of the table lies below the key."""
    if slot.last8 != key8:
        return slot.last8 < key8
    return table_ends_before(slot.t, key, klen)


cdef inline bint slot_after(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """All of the table lies above the key."""
    if slot.first8 != key8:
        return slot.first8 > key8
    return lsm_compare(slot.t.smallest, slot.t.smallest_len, key, klen) > 0


cdef inline bint slot_holds(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    return not slot_after(slot, key8, key, klen) and not slot_before(slot, key8, key, klen)


cdef inline bint key_after_common(const ReadStateC* v, const char* key, size_t klen, uint64_t* key8) noexcept nogil:
    """Sets *key8 to the 8 bytes after the common prefix. False if the key is outside every table."""
    cdef size_t shared = v.common_len
    if shared and (klen < shared or memcmp(key, v.common, shared) != 0):
        return False
    key8[0] = lsm_prefix8(key + shared, klen - shared)
    return True


cdef uint32_t first_not_below(const LevelC* level, uint32_t low, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """The first table from `low` on that does not lie below the key. `low` is the first whose last8 is key8."""
    cdef uint32_t high = level.n
    cdef uint32_t mid
    while low < high:
        mid = low + (high - low) // 2
        if slot_before(&level.slots[mid], key8, key, klen):
            low = mid + 1
        else:
            high = mid
    return low


cdef inline TableSlot* level_find(const LevelC* level, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """The table of a sorted level whose range holds the key, or NULL. The level is not empty."""
    cdef uint32_t i = lsm_lower_bound(level.last8, level.n, key8)
    if i < <uint32_t>level.n and level.last8[i] == key8:
        i = first_not_below(level, i, key8, key, klen)
    if i == <uint32_t>level.n or slot_after(&level.slots[i], key8, key, klen):
        return NULL
    return &level.slots[i]


cdef inline int source_level(const ReadStateC* v, int i) noexcept nogil:
    return 0 if i < v.levels[0].n else v.deep[i - v.levels[0].n]


cdef inline TableSlot* source_slot(const ReadStateC* v, int i, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """The table of source i that may hold the key, or NULL. Sources, newest first: each table of L0, then each deeper level."""
    if i < v.levels[0].n:
        return &v.levels[0].slots[i] if slot_holds(&v.levels[0].slots[i], key8, key, klen) else NULL
    return level_find(&v.levels[v.deep[i - v.levels[0].n]], key8, key, klen)


cdef inline const uint8_t* slot_line(const TableSlot* slot, uint64_t hash) noexcept nogil:
    """The cache line of the Bloom filter for this hash."""
    return slot.bits + lsm_filter_block(hash, slot.n_blocks) * FILTER_BLOCK_BYTES


cdef inline void prefetch_filter(const TableSlot* slot, uint64_t hash) noexcept nogil:
    if slot.fuse.width:
        lsm_fuse_prefetch(slot.bits, &slot.fuse, hash)
    else:
        lsm_prefetch(slot_line(slot, hash))


cdef inline int probe_range_tombstones(const TableC* t, Lookup* q) noexcept nogil:
    """A table's entries are newer than its range tombstones over them, so the tombstones only hide older sources."""
    if t.tombstones.n == 0:
        return ABSENT
    q.seq = tombstones_cover(&t.tombstones, q.key, q.klen)
    return RANGE_DELETED if q.seq else ABSENT


cdef void sample_negative(TableC* t, const Lookup* q, uint64_t hash, const ReadContext* rc, LevelCounters* c,
                          Counters* counters) noexcept nogil:
    """Counts what the lookup would have cost without the filter."""
    cdef uint32_t i = table_find_block(t, q.key, q.klen)
    c.sampled += 1
    if i < t.n_blocks:
        c.sampled_bytes += t.offsets[i + 1] - t.offsets[i]
        if table_peek_block(t, i) != NULL:
            c.sampled_cached += 1
            if c.negatives % (SAMPLE_EVERY * TIME_EVERY) == 0:
                time_cached(t, q, hash, rc, counters)
        else:
            c.sampled_disk += 1


cdef void time_cached(TableC* t, const Lookup* q, uint64_t hash, const ReadContext* rc, Counters* counters) noexcept nogil:
    """Times a search of the cached block. It does not count as a read."""
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef Status st
    cdef ReadContext uncounted = rc[0]
    cdef uint64_t began = lsm_now_ns()
    if table_get(t, q.key, q.klen, hash, &uncounted, &e, &pinned, &st) == ST_OK:
        table_unpin(t, pinned)
    if uncounted.disk_reads == rc.disk_reads:
        counters.cache_timed += 1
        counters.cache_timed_ns += lsm_now_ns() - began


cdef int verify_negative(TableC* t, Lookup* q, uint64_t hash, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    """Reads a table that its filter ruled out. A key found there means that the filter is wrong."""
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef int code = table_get(t, q.key, q.klen, hash, rc, &e, &pinned, st)
    counters.shadow_checks += 1
    if code == ST_OK:
        table_unpin(t, pinned)
        counters.shadow_wrong += 1
        return fail_corrupt(st, b"a filter denies a key that its table holds", t.number, t.footer.filter.at)
    return ST_OK if code == ST_NOT_FOUND else code


cdef inline void count_negative(const TableSlot* slot, const Lookup* q, uint64_t hash, const ReadContext* rc, Counters* counters,
                                LevelCounters* c) noexcept nogil:
    """Counts a table that a healthy filter ruled out."""
    lsm_count_double(&c.designed_fpr_sum, slot.designed_fpr)
    lsm_count(&c.negatives, 1)
    if LSMKV_COUNTERS and lsm_unlikely(c.negatives % SAMPLE_EVERY == 0):
        sample_negative(slot.t, q, hash, rc, c, counters)


cdef int skip_table(const TableSlot* slot, Lookup* q, uint64_t hash, ReadContext* rc, Counters* counters, LevelCounters* c,
                    Status* st) noexcept nogil:
    """A healthy filter ruled the table out: only its range tombstones are probed."""
    count_negative(slot, q, hash, rc, counters, c)
    if (counters.shadow_period and c.negatives % counters.shadow_period == 0
            and verify_negative(slot.t, q, hash, rc, counters, st) != ST_OK):
        return FAILED
    return probe_range_tombstones(slot.t, q)


cdef inline bint count_read(const TableSlot* slot, bint skip_filter, LevelCounters* c) noexcept nogil:
    """Counts a table that is read. True if a healthy filter passed: read_table then counts whether it was right."""
    cdef TableC* t = slot.t
    if not skip_filter and (slot.k or t.filter.usable):
        return True
    if t.filter.usable or t.filter.problem == FILTER_ABSENT:
        lsm_count(&c.unfiltered, 1)
    else:
        lsm_count(&c.fail_open, 1)
    return False


cdef inline uint64_t hash_for(const TableSlot* slot, const Lookup* q) noexcept nogil:
    return xxh3(q.key, q.klen, slot.t.seed) if slot.foreign else q.hash


cdef inline bint is_known_absent(const TableSlot* slot, const Lookup* q, uint64_t hash) noexcept nogil:
    """Whether an earlier lookup of this key has read the table for nothing. A trace reads it again."""
    return (lsm_unlikely(absent_keys_match(&slot.t.absent, hash)) and q.trace == NULL
            and absent_keys_hold(slot.t.absent, q.key, q.klen, hash))


cdef inline int skip_known_absent(const TableSlot* slot, Lookup* q, LevelCounters* c) noexcept nogil:
    lsm_count(&c.remembered, 1)
    return probe_range_tombstones(slot.t, q)


cdef void remember_absent(TableC* t, const Lookup* q, uint64_t hash, const ReadContext* rc) noexcept nogil:
    cdef int64_t grown = absent_keys_add(&t.absent, q.key, q.klen, hash)
    if t.charged and grown > 0:
        cache_reserve(t.cache, <uint64_t>grown, rc.gil_held)
    elif t.charged and grown < 0:
        cache_release(t.cache, <uint64_t>-grown)


cdef int read_table(const TableSlot* slot, uint32_t block, BlockC* held, Lookup* q, uint64_t hash, bint filtered, ReadContext* rc,
                    LevelCounters* c, Status* st) noexcept nogil:
    """Searches `block`, where the key would be. `filtered`: a filter passed, so count whether it was right."""
    cdef TableC* t = slot.t
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef int code
    if lsm_unlikely(q.trace != NULL):
        trace_read(q.trace, t, block)
    code = table_get_in(t, block, held, q.key, q.klen, hash, rc, &e, &pinned, st)
    if code == ST_NOT_FOUND:
        lsm_store64(&t.wasted, lsm_load64(&t.wasted) + 1)
        if filtered:
            lsm_count(&c.false_positives, 1)
            lsm_count_double(&c.designed_fpr_sum, slot.designed_fpr)
            remember_absent(t, q, hash, rc)
        return probe_range_tombstones(t, q)
    if code != ST_OK:
        return FAILED
    if filtered:
        lsm_count(&c.true_positives, 1)
    q.seq = e.seq
    code = judge(q, e.kind, e.value, e.vlen)
    if code != FOUND:
        table_unpin(t, pinned)
        return code
    q.pinned = pinned
    q.owner = t
    return FOUND


ctypedef struct Candidates:     # tables whose key range holds the key, newest first, with their filter lines
    int first                   # filled from the end: [first, CANDIDATES)
    FilterProbe probes[CANDIDATES]        # owner: the TableSlot
    uint32_t last_block         # the key's block in the last candidate, or NOT_LOOKED_UP


cdef inline void prefetch_deepest(Candidates* found, const Lookup* q) noexcept nogil:
    """Prefetches the key's block in the deepest table, where most keys are, while the filter lines come from memory."""
    cdef TableC* t
    if found.first == CANDIDATES:
        return
    if found.probes[CANDIDATES - 1].owner == q.prefetched:
        found.last_block = q.prefetched_block
        return
    t = (<TableSlot*>found.probes[CANDIDATES - 1].owner).t
    found.last_block = table_find_block(t, q.key, q.klen)
    if found.last_block < t.n_blocks:
        table_prefetch_block(t, found.last_block)


cdef inline void add_candidate(Candidates* found, TableSlot* slot, int level, uint64_t hash) noexcept nogil:
    cdef FilterProbe* probe
    found.first -= 1
    probe = &found.probes[found.first]
    probe.line = slot_line(slot, hash)
    lsm_prefetch(probe.line)
    probe.owner = slot
    probe.k = slot.k
    probe.level = level


cdef int probe_foreign(const TableSlot* slot, Lookup* q, ReadContext* rc, Counters* counters, LevelCounters* c,
                       Status* st) noexcept nogil:
    """Probes a table with a seed of its own: its filter was not tested with the others."""
    cdef uint64_t hash = xxh3(q.key, q.klen, slot.t.seed)
    if slot.t.filter.usable and not filter_probe(&slot.t.filter, hash):
        return skip_table(slot, q, hash, rc, counters, c, st)
    if is_known_absent(slot, q, hash):
        return skip_known_absent(slot, q, c)
    return read_table(slot, table_find_block(slot.t, q.key, q.klen), NULL, q, hash, count_read(slot, False, c), rc, c, st)


cdef int probe_passed(ReadStateC* v, const TableSlot* slot, uint32_t block, int level, Lookup* q, ReadContext* rc,
                      Counters* counters, Status* st) noexcept nogil:
    cdef LevelCounters* c = &counters.levels[level]
    cdef bint skip_filter = q.skip_bottom_filter and level == v.bottom
    if slot.foreign and not skip_filter:
        return probe_foreign(slot, q, rc, counters, c, st)
    if not skip_filter and is_known_absent(slot, q, q.hash):
        return skip_known_absent(slot, q, c)
    if block == NOT_LOOKED_UP:
        block = table_find_block(slot.t, q.key, q.klen)
    return read_table(slot, block, NULL, q, hash_for(slot, q), count_read(slot, skip_filter, c), rc, c, st)


cdef int probe_in_order(ReadStateC* v, Lookup* q, Candidates* found, uint32_t maybe, ReadContext* rc, Counters* counters,
                        Status* st) noexcept nogil:
    """Probes the candidates, newest first, until one answers. The filters after that one are not counted."""
    cdef FilterProbe* probe
    cdef TableSlot* slot
    cdef uint32_t block
    cdef int i, answer
    for i in range(found.first, CANDIDATES):
        probe = &found.probes[i]
        slot = <TableSlot*>probe.owner
        if lsm_unlikely(q.trace != NULL):
            trace_source(q.trace, -1, probe.level, slot)
        if maybe & 1:
            block = found.last_block if i == CANDIDATES - 1 else NOT_LOOKED_UP
            answer = probe_passed(v, slot, block, probe.level, q, rc, counters, st)
        else:
            answer = skip_table(slot, q, q.hash, rc, counters, &counters.levels[probe.level], st)
        if lsm_unlikely(q.trace != NULL):
            trace_answer(q, answer)
        if answer != ABSENT:
            return answer
        maybe >>= 1
    return ABSENT


cdef void prefetch_fused(const Candidates* found, uint64_t hash) noexcept nogil:
    """Prefetches the lines of the fuse filters."""
    cdef const TableSlot* slot
    cdef int i
    for i in range(CANDIDATES - 1, found.first - 1, -1):
        slot = <const TableSlot*>found.probes[i].owner
        if slot.fuse.width:
            lsm_fuse_prefetch(slot.bits, &slot.fuse, hash)


cdef uint32_t test_fused(const ReadStateC* v, const Candidates* found, const Lookup* q, uint32_t maybe) noexcept nogil:
    """Tests the fuse filters, to which the test of the others has said "maybe"."""
    cdef const TableSlot* slot
    cdef int i
    for i in range(found.first, CANDIDATES):
        slot = <const TableSlot*>found.probes[i].owner
        if (slot.fuse.width and not (q.skip_bottom_filter and found.probes[i].level == <uint32_t>v.bottom)
                and not lsm_fuse_test(slot.bits, &slot.fuse, q.hash)):
            maybe &= ~(<uint32_t>1 << (i - found.first))
    return maybe


cdef int probe_candidates(ReadStateC* v, Lookup* q, Candidates* found, ReadContext* rc, Counters* counters,
                          Status* st) noexcept nogil:
    """Tests all filters together, then probes the tables that pass."""
    cdef int i
    cdef uint32_t maybe
    if q.skip_bottom_filter:
        for i in range(found.first, CANDIDATES):
            if found.probes[i].level == <uint32_t>v.bottom:
                found.probes[i].k = 0
    found.last_block = NOT_LOOKED_UP
    if lsm_unlikely(v.fused):
        prefetch_fused(found, q.hash)
    if v.hit_bias >= BIAS_TO_HITS:
        prefetch_deepest(found, q)
    maybe = lsm_filter_probe(&found.probes[found.first], CANDIDATES - found.first, lsm_filter_remix(q.hash))
    if lsm_unlikely(v.fused):
        maybe = test_fused(v, found, q, maybe)
    if maybe or v.table_tombstones or counters.shadow_period or q.trace != NULL:
        return probe_in_order(v, q, found, maybe, rc, counters, st)
    for i in range(found.first, CANDIDATES):
        count_negative(<TableSlot*>found.probes[i].owner, q, q.hash, rc, counters,
                       &counters.levels[found.probes[i].level])
    return ABSENT


cdef int search_levels(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef Candidates found
    cdef TableSlot* slot
    cdef uint64_t key8 = 0
    cdef int n_sources = v.levels[0].n + v.n_deep
    cdef int start = 0, stop, i, answer
    if n_sources == 0 or not key_after_common(v, q.key, q.klen, &key8):
        return ABSENT
    while True:
        stop = n_sources if n_sources - start <= CANDIDATES else start + CANDIDATES
        # Backward: the filter line of the deepest table, the least likely to be cached, is prefetched first.
        found.first = CANDIDATES
        for i in range(stop - 1, start - 1, -1):
            slot = source_slot(v, i, key8, q.key, q.klen)
            if slot != NULL:
                add_candidate(&found, slot, source_level(v, i), q.hash)
        answer = probe_candidates(v, q, &found, rc, counters, st)
        if answer != ABSENT or stop == n_sources:
            return answer
        start = stop


cdef void prefetch_lookup(const ReadStateC* v, Lookup* q, bint to_tables) noexcept nogil:
    cdef TableSlot* slot
    cdef uint64_t key8 = 0
    cdef int i
    q.prefetched = NULL
    for i in range(v.n_memtables):
        mem_prefetch(v.memtables[i], q.hash)
    if not to_tables or v.hit_bias < BIAS_TO_HITS or v.n_deep == 0 or not key_after_common(v, q.key, q.klen, &key8):
        return
    slot = level_find(&v.levels[v.deep[v.n_deep - 1]], key8, q.key, q.klen)
    if slot == NULL:
        return
    prefetch_filter(slot, q.hash)
    q.prefetched = slot
    q.prefetched_block = table_find_block(slot.t, q.key, q.klen)
    if q.prefetched_block < slot.t.n_blocks:
        table_prefetch_block(slot.t, q.prefetched_block)


cdef int probe_memtables(const ReadStateC* v, Lookup* q, Counters* counters) noexcept nogil:
    cdef int i, answer
    q.found = NOTHING
    q.pinned = NULL
    lsm_count(&counters.gets, 1)
    for i in range(v.n_memtables):
        if lsm_unlikely(q.trace != NULL):
            trace_source(q.trace, i, -1, NULL)
        answer = probe_memtable(v.memtables[i], q)
        if lsm_unlikely(q.trace != NULL):
            trace_answer(q, answer)
        if answer != ABSENT:
            lsm_count(&counters.memtable_hits, 1)
            lsm_count(&counters.gets_found, answer == FOUND)
            return answer
    return ABSENT


cdef int probe_tables(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef int answer = search_levels(v, q, rc, counters, st)
    lsm_count(&counters.gets_found, answer == FOUND)
    if answer == ABSENT:
        v.hit_bias -= v.hit_bias > 0
    else:
        v.hit_bias += v.hit_bias < BIAS_MAX
    return answer


# --- many keys ------------------------------------------------------------------------------------------------------------

ctypedef struct Pending:        # one lookup of a group, until it is answered
    Lookup* q
    TableSlot* slot             # the table to probe in this round, or NULL
    uint64_t hash
    uint64_t key8
    bint outside                # the key is outside every table
    uint32_t block
    BlockC* held                # that block, pinned, if it is cached
    bint filtered


cdef inline bint ruled_out(const Pending* p, bint skip_filter) noexcept nogil:
    """Whether a healthy filter rules the table out."""
    if skip_filter:
        return False
    if p.slot.k:
        return not lsm_filter_test(slot_line(p.slot, p.hash), lsm_filter_remix(p.hash), p.slot.k)
    if p.slot.fuse.width:
        return not lsm_fuse_test(p.slot.bits, &p.slot.fuse, p.hash)
    return p.slot.foreign and not filter_probe(&p.slot.t.filter, p.hash)


cdef int probe_round(Pending* group, int n, bint bottom, ReadContext* rc, Counters* counters, LevelCounters* c,
                     Status* st) noexcept nogil:
    """Probes the table of each pending lookup, in stages whose cache misses overlap. Sets q = NULL if answered."""
    cdef bint skip_filter
    cdef int i, answer
    cdef Pending* p
    for i in range(n):
        p = &group[i]
        if p.q != NULL and p.slot != NULL:
            p.hash = hash_for(p.slot, p.q)
            prefetch_filter(p.slot, p.hash)
    for i in range(n):
        p = &group[i]
        if p.q == NULL or p.slot == NULL:
            continue
        skip_filter = bottom and p.q.skip_bottom_filter
        if ruled_out(p, skip_filter):
            answer = skip_table(p.slot, p.q, p.hash, rc, counters, c, st)
        elif not skip_filter and is_known_absent(p.slot, p.q, p.hash):
            answer = skip_known_absent(p.slot, p.q, c)
        else:
            p.filtered = count_read(p.slot, skip_filter, c)
            p.block = table_find_block(p.slot.t, p.q.key, p.q.klen)
            continue
        if answer == FAILED:
            return FAILED
        if answer != ABSENT:
            p.q = NULL
        p.slot = NULL
    for i in range(n):
        p = &group[i]
        if p.q != NULL and p.slot != NULL and p.block < p.slot.t.n_blocks:
            table_prefetch_block(p.slot.t, p.block)
    for i in range(n):
        p = &group[i]
        p.held = NULL
        if p.q != NULL and p.slot != NULL and p.block < p.slot.t.n_blocks:
            p.held = table_pin_cached(p.slot.t, p.block, rc.gil_held)
            if p.held != NULL:
                block_prefetch(p.held, p.hash)
    return read_blocks(group, n, rc, counters, c, st)


cdef void start_reads(const Pending* group, int n) noexcept nogil:
    """Starts reading all missing blocks, which are read one after the other."""
    cdef int i
    for i in range(n):
        if group[i].q != NULL and group[i].slot != NULL and group[i].held == NULL:
            table_start_block(group[i].slot.t, group[i].block)


cdef int read_blocks(Pending* group, int n, ReadContext* rc, Counters* counters, LevelCounters* c, Status* st) noexcept nogil:
    """The last stage: searches the blocks. After a failure it only unpins the others."""
    cdef int i
    cdef int answer = ABSENT
    cdef bint started = False
    cdef Pending* p
    for i in range(n):
        p = &group[i]
        if p.q == NULL or p.slot == NULL:
            continue
        if answer == FAILED:
            table_unpin(p.slot.t, p.held)
            continue
        if not started and p.held == NULL and table_is_cold(p.slot.t):
            # From here on: the reads before were fast, or found out that others will not be.
            start_reads(&group[i], n - i)
            started = True
        answer = read_table(p.slot, p.block, p.held, p.q, p.hash, p.filtered, rc, c, st)
        if answer != ABSENT and answer != FAILED:
            lsm_count(&counters.gets_found, answer == FOUND)
            p.q = NULL
    return FAILED if answer == FAILED else ABSENT


cdef int probe_group(ReadStateC* v, Lookup* queries, int n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef Pending group[GROUP]
    cdef Pending* p
    cdef int i, k, level
    for i in range(n):
        prefetch_lookup(v, &queries[i], False)
    for i in range(n):
        p = &group[i]
        p.q = &queries[i] if probe_memtables(v, &queries[i], counters) == ABSENT else NULL
        p.outside = not key_after_common(v, queries[i].key, queries[i].klen, &p.key8)
    for k in range(v.levels[0].n + v.n_deep):
        for i in range(n):
            p = &group[i]
            p.slot = NULL
            if p.q != NULL and not p.outside:
                p.slot = source_slot(v, k, p.key8, p.q.key, p.q.klen)
        level = source_level(v, k)
        if probe_round(group, n, v.bottom == level, rc, counters, &counters.levels[level], st) == FAILED:
            return st.code
    return ST_OK


cdef int probe_many(ReadStateC* v, Lookup* queries, size_t n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef size_t done = 0
    cdef int take
    while done < n:
        take = GROUP if n - done > GROUP else <int>(n - done)
        if probe_group(v, queries + done, take, rc, counters, st) != ST_OK:
            return st.code
        done += take
    return ST_OK

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from lsmkv_ext.batch cimport OP_DELETE
from lsmkv_ext.block.block cimport Entry, block_prefetch
from lsmkv_ext.cache.block_cache cimport cache_drain
from lsmkv_ext.filter.curve cimport filter_designed_fpr
from lsmkv_ext.filter.format cimport FILTER_ABSENT
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BYTES,
    FilterProbe,
    filter_probe,
    lsm_filter_block,
    lsm_filter_probe,
    lsm_filter_remix,
    lsm_filter_test,
)
from lsmkv_ext.memtable.arena cimport MemEntry, entry_op, entry_value
from lsmkv_ext.memtable.memtable cimport Memtable, mem_covering_seq, mem_find, mem_prefetch
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_prefetch, lsm_store64, lsm_unlikely
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.status cimport ST_NOT_FOUND, ST_OK, fail_corrupt
from lsmkv_ext.table.reader cimport (
    table_find_block,
    table_get,
    table_get_in,
    table_peek_block,
    table_pin_cached,
    table_prefetch_block,
    table_unpin,
)
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.table.tombstones cimport tombstones_cover

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef extern from * nogil:
    """
    /* First of n >= 1 ascending numbers that is >= x, or n. Which half is no branch: it could not be predicted. */
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
    CANDIDATES = 32             # tables asked at a time: the bits of one word
    GROUP = 32                  # lookups whose cache misses overlap
    NOT_LOOKED_UP = 0x7FFFFFFF
    LEAN_MAX = 16
    LEAN_TO_HITS = 8            # from here on a get is expected to find its key


# --- memtables -------------------------------------------------------------------------------------------------------

cdef inline int probe_memtable(const MemC* m, Lookup* q) noexcept nogil:
    cdef MemEntry* e = mem_find(m, q.key, q.klen, q.hash, q.snapshot)
    cdef uint64_t covered = 0
    if m.range_tombstones != NULL:
        covered = mem_covering_seq(m, q.key, q.klen, q.snapshot)
    if e == NULL:
        return DELETED if covered else ABSENT
    if e.seq < covered or entry_op(e) == OP_DELETE:
        return DELETED
    q.found = True
    q.value = entry_value(e)
    q.vlen = e.vlen
    return FOUND


# --- tables ----------------------------------------------------------------------------------------------------------

cdef bint table_range_holds(const TableC* t, const char* key, size_t klen) noexcept nogil:
    cdef int r
    if lsm_compare(key, klen, t.smallest, t.smallest_len) < 0:
        return False
    r = lsm_compare(key, klen, t.largest, t.largest_len)
    return r < 0 or (r == 0 and not t.largest_exclusive)


cdef inline bint slot_before(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """All of the table lies below the key."""
    cdef int r
    if slot.last8 != key8:
        return slot.last8 < key8
    r = lsm_compare(slot.t.largest, slot.t.largest_len, key, klen)
    return r < 0 or (r == 0 and slot.t.largest_exclusive)


cdef inline bint slot_after(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """All of the table lies above the key."""
    if slot.first8 != key8:
        return slot.first8 > key8
    return lsm_compare(slot.t.smallest, slot.t.smallest_len, key, klen) > 0


cdef inline bint slot_holds(const TableSlot* slot, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    return not slot_after(slot, key8, key, klen) and not slot_before(slot, key8, key, klen)


cdef bint read_state_key8(const ReadStateC* v, const char* key, size_t klen, uint64_t* key8) noexcept nogil:
    cdef size_t shared = v.common_len
    if shared and (klen < shared or memcmp(key, v.common, shared) != 0):
        return False
    key8[0] = lsm_prefix8(key + shared, klen - shared)
    return True


cdef uint32_t among_ties(const LevelC* level, uint32_t low, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    """From the first table whose last8 is the key's: the first that does not lie below the key."""
    cdef uint32_t high = level.n
    cdef uint32_t mid
    while low < high:
        mid = low + (high - low) // 2
        if slot_before(&level.slots[mid], key8, key, klen):
            low = mid + 1
        else:
            high = mid
    return low


cdef inline TableSlot* find_slot(const LevelC* level, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    cdef uint32_t i = lsm_lower_bound(level.last8, level.n, key8)
    if i < <uint32_t>level.n and level.last8[i] == key8:
        i = among_ties(level, i, key8, key, klen)
    if i == <uint32_t>level.n or slot_after(&level.slots[i], key8, key, klen):
        return NULL
    return &level.slots[i]


cdef TableSlot* level_find(const LevelC* level, uint64_t key8, const char* key, size_t klen) noexcept nogil:
    return find_slot(level, key8, key, klen) if level.n else NULL


cdef inline const uint8_t* slot_line(const TableSlot* slot, uint64_t hash) noexcept nogil:
    """Where the filter's bits for this hash are."""
    return slot.bits + lsm_filter_block(hash, slot.n_blocks) * FILTER_BLOCK_BYTES


cdef void sample_negative(TableC* t, const Lookup* q, uint64_t hash, const ReadContext* rc, LevelCounters* c,
                          Counters* counters) noexcept nogil:
    """What would this "no" have cost without the filter?"""
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
    """Searches the cached block for nothing, for the clock alone: nothing of it is counted as a read."""
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef Status st
    cdef ReadContext unseen = rc[0]
    cdef uint64_t began = lsm_now_ns()
    if table_get(t, q.key, q.klen, hash, &unseen, &e, &pinned, &st) == ST_OK:
        table_unpin(t, pinned)
    if unseen.disk_reads == rc.disk_reads:
        counters.cache_timed += 1
        counters.cache_timed_ns += lsm_now_ns() - began


cdef int prove_negative(TableC* t, Lookup* q, uint64_t hash, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    """Reads the block a filter said no for. A key found there means the filter lied."""
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef int code = table_get(t, q.key, q.klen, hash, rc, &e, &pinned, st)
    counters.shadow_checks += 1
    if code == ST_OK:
        table_unpin(t, pinned)
        counters.shadow_wrong += 1
        return fail_corrupt(st, b"a filter denies a key that its table holds", t.number, t.footer.filter.at)
    return ST_OK if code == ST_NOT_FOUND else code


cdef int count_negative(const TableSlot* slot, Lookup* q, uint64_t hash, ReadContext* rc, Counters* counters,
                        LevelCounters* c, Status* st) noexcept nogil:
    """A healthy filter said no. ST_OK, or what proving it brought to light."""
    lsm_count_double(&c.designed_fpr_sum, slot.designed_fpr)
    lsm_count(&c.negatives, 1)
    if LSMKV_COUNTERS and c.negatives % SAMPLE_EVERY == 0:
        sample_negative(slot.t, q, hash, rc, c, counters)
    if counters.shadow_period and c.negatives % counters.shadow_period == 0:
        return prove_negative(slot.t, q, hash, rc, counters, st)
    return ST_OK


cdef inline bint count_maybe(const TableSlot* slot, bint unasked, LevelCounters* c) noexcept nogil:
    """Why the table is read. True where a healthy filter was asked, so that what it said can be counted as right or wrong."""
    cdef TableC* t = slot.t
    if not unasked and (slot.k or t.filter.usable):
        lsm_count_double(&c.designed_fpr_sum, slot.designed_fpr)
        return True
    if t.filter.usable or t.filter.problem == FILTER_ABSENT:
        lsm_count(&c.unfiltered, 1)
    else:
        lsm_count(&c.fail_open, 1)
    return False


cdef inline uint64_t hash_for(const TableSlot* slot, const Lookup* q) noexcept nogil:
    return xxh3(q.key, q.klen, slot.t.seed) if slot.foreign else q.hash


cdef inline int table_ranges_say(const TableC* t, const Lookup* q) noexcept nogil:
    """A table's own entries are newer than its range tombstones over them, so these speak only for older sources."""
    if t.tombstones.n and tombstones_cover(&t.tombstones, q.key, q.klen):
        return DELETED
    return ABSENT


cdef int read_table(const TableSlot* slot, uint32_t block, BlockC* held, Lookup* q, uint64_t hash, bint asked, ReadContext* rc,
                    LevelCounters* c, Status* st) noexcept nogil:
    """After the filter let it pass. `asked`: the filter gave its opinion, so count whether it was right."""
    cdef TableC* t = slot.t
    cdef Entry e
    cdef BlockC* pinned = NULL
    cdef int code = table_get_in(t, block, held, q.key, q.klen, hash, rc, &e, &pinned, st)
    if code == ST_NOT_FOUND:
        lsm_store64(&t.wasted, lsm_load64(&t.wasted) + 1)
        if asked:
            lsm_count(&c.false_positives, 1)
        return table_ranges_say(t, q)
    if code != ST_OK:
        return FAILED
    if asked:
        lsm_count(&c.true_positives, 1)
    if e.is_delete:
        table_unpin(t, pinned)
        return DELETED
    q.found = True
    q.value = e.value
    q.vlen = e.vlen
    q.pinned = pinned
    q.owner = t
    return FOUND


ctypedef struct Candidates:     # tables that may hold a key, newest first, and the filter lines that know more
    int first                   # filled from the end: [first, CANDIDATES)
    FilterProbe questions[CANDIDATES]        # owner: the TableSlot
    uint32_t last_block         # of the last candidate, or NOT_LOOKED_UP


cdef inline void look_ahead(Candidates* found, const Lookup* q) noexcept nogil:
    """While the filters' lines come from memory: finds the block in the deepest table, where most keys are, and sends for it."""
    cdef TableC* t
    if found.first == CANDIDATES:
        return
    if found.questions[CANDIDATES - 1].owner == q.ahead:
        found.last_block = q.ahead_block
        return
    t = (<TableSlot*>found.questions[CANDIDATES - 1].owner).t
    found.last_block = table_find_block(t, q.key, q.klen)
    if found.last_block < t.n_blocks:
        table_prefetch_block(t, found.last_block)


cdef inline void add_candidate(Candidates* found, TableSlot* slot, int level, uint64_t hash) noexcept nogil:
    cdef FilterProbe* question
    found.first -= 1
    question = &found.questions[found.first]
    question.line = slot_line(slot, hash)
    lsm_prefetch(question.line)
    question.owner = slot
    question.k = slot.k
    question.level = level


cdef int probe_foreign(const TableSlot* slot, Lookup* q, ReadContext* rc, Counters* counters, LevelCounters* c,
                     Status* st) noexcept nogil:
    """A table hashed with another seed: nothing could be prepared."""
    cdef uint64_t hash = xxh3(q.key, q.klen, slot.t.seed)
    if slot.t.filter.usable and not filter_probe(&slot.t.filter, hash):
        if count_negative(slot, q, hash, rc, counters, c, st) != ST_OK:
            return FAILED
        return table_ranges_say(slot.t, q)
    return read_table(slot, table_find_block(slot.t, q.key, q.klen), NULL, q, hash, count_maybe(slot, False, c), rc, c, st)


cdef int probe_maybe(ReadStateC* v, const TableSlot* slot, uint32_t block, int level, Lookup* q, ReadContext* rc,
                   Counters* counters, Status* st) noexcept nogil:
    cdef LevelCounters* c = &counters.levels[level]
    cdef bint unasked = q.skip_bottom_filter and level == v.bottom
    if slot.foreign and not unasked:
        return probe_foreign(slot, q, rc, counters, c, st)
    if block == NOT_LOOKED_UP:
        block = table_find_block(slot.t, q.key, q.klen)
    return read_table(slot, block, NULL, q, hash_for(slot, q), count_maybe(slot, unasked, c), rc, c, st)


cdef int probe_in_turn(ReadStateC* v, Lookup* q, Candidates* found, uint32_t maybe, ReadContext* rc, Counters* counters,
                     Status* st) noexcept nogil:
    """Newest first, until one answers; a filter behind that one is not counted."""
    cdef FilterProbe* question
    cdef TableSlot* slot
    cdef uint32_t block
    cdef int i, says
    for i in range(found.first, CANDIDATES):
        question = &found.questions[i]
        slot = <TableSlot*>question.owner
        if maybe & 1:
            block = found.last_block if i == CANDIDATES - 1 else NOT_LOOKED_UP
            says = probe_maybe(v, slot, block, question.level, q, rc, counters, st)
        elif count_negative(slot, q, q.hash, rc, counters, &counters.levels[question.level], st) != ST_OK:
            says = FAILED
        else:
            says = table_ranges_say(slot.t, q) if v.table_ranges else ABSENT
        if says != ABSENT:
            return says
        maybe >>= 1
    return ABSENT


cdef int probe_candidates(ReadStateC* v, Lookup* q, Candidates* found, ReadContext* rc, Counters* counters,
                        Status* st) noexcept nogil:
    """Every filter at once, then the tables that none of them ruled out."""
    cdef int i = found.first
    cdef uint32_t maybe
    cdef TableSlot* slot
    cdef LevelCounters* c
    if q.skip_bottom_filter:
        for i in range(found.first, CANDIDATES):
            if found.questions[i].level == <uint32_t>v.bottom:
                found.questions[i].k = 0
    found.last_block = NOT_LOOKED_UP
    if v.hit_bias >= LEAN_TO_HITS:
        look_ahead(found, q)
    maybe = lsm_filter_probe(&found.questions[found.first], CANDIDATES - found.first, lsm_filter_remix(q.hash))
    if maybe or v.table_ranges or counters.shadow_period:
        return probe_in_turn(v, q, found, maybe, rc, counters, st)
    # All of them said no: what count_negative does, in short, as this is where a lookup for nothing spends its time.
    if LSMKV_COUNTERS:
        for i in range(found.first, CANDIDATES):
            slot = <TableSlot*>found.questions[i].owner
            c = &counters.levels[found.questions[i].level]
            c.designed_fpr_sum += slot.designed_fpr
            c.negatives += 1
            if lsm_unlikely(c.negatives % SAMPLE_EVERY == 0):
                sample_negative(slot.t, q, q.hash, rc, c, counters)
    return ABSENT


cdef inline void add_l0(const LevelC* l0, int start, int stop, Candidates* found, uint64_t key8, const Lookup* q) noexcept nogil:
    cdef int i
    for i in range(stop - 1, start - 1, -1):
        if slot_holds(&l0.slots[i], key8, q.key, q.klen):
            add_candidate(found, &l0.slots[i], 0, q.hash)


cdef int search_levels(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef Candidates found
    cdef TableSlot* slot
    cdef LevelC* l0 = &v.levels[0]
    cdef uint64_t key8 = 0
    cdef int i, says
    cdef int done = 0           # tables of L0
    if v.bottom < 0 or not read_state_key8(v, q.key, q.klen, &key8):
        return ABSENT
    while l0.n - done > CANDIDATES - MAX_LEVELS:
        found.first = CANDIDATES
        add_l0(l0, done, done + CANDIDATES - MAX_LEVELS, &found, key8, q)
        says = probe_candidates(v, q, &found, rc, counters, st)
        if says != ABSENT:
            return says
        done += CANDIDATES - MAX_LEVELS
    # The lines of all filters are on their way before the first is asked; the deepest, the least likely in the cache, first.
    found.first = CANDIDATES
    for i in range(v.n_deep - 1, -1, -1):
        slot = find_slot(&v.levels[v.deep[i]], key8, q.key, q.klen)
        if slot != NULL:
            add_candidate(&found, slot, v.deep[i], q.hash)
    add_l0(l0, done, l0.n, &found, key8, q)
    return probe_candidates(v, q, &found, rc, counters, st)


cdef void prefetch_lookup(const ReadStateC* v, Lookup* q, bint to_tables) noexcept nogil:
    cdef TableSlot* slot
    cdef uint64_t key8 = 0
    cdef int i
    q.ahead = NULL
    for i in range(v.n_memtables):
        mem_prefetch(v.memtables[i], q.hash)
    if not to_tables or v.hit_bias < LEAN_TO_HITS or v.n_deep == 0 or not read_state_key8(v, q.key, q.klen, &key8):
        return
    slot = find_slot(&v.levels[v.deep[v.n_deep - 1]], key8, q.key, q.klen)
    if slot == NULL:
        return
    lsm_prefetch(slot_line(slot, q.hash))
    q.ahead = slot
    q.ahead_block = table_find_block(slot.t, q.key, q.klen)
    if q.ahead_block < slot.t.n_blocks:
        table_prefetch_block(slot.t, q.ahead_block)


cdef int probe_memtables(const ReadStateC* v, Lookup* q, Counters* counters) noexcept nogil:
    cdef int i, says
    q.found = False
    q.pinned = NULL
    lsm_count(&counters.gets, 1)
    for i in range(v.n_memtables):
        says = probe_memtable(v.memtables[i], q)
        if says != ABSENT:
            lsm_count(&counters.memtable_hits, 1)
            lsm_count(&counters.gets_found, says == FOUND)
            return says
    return ABSENT


cdef int probe_tables(ReadStateC* v, Lookup* q, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef int says = search_levels(v, q, rc, counters, st)
    lsm_count(&counters.gets_found, says == FOUND)
    if says == ABSENT:
        v.hit_bias -= v.hit_bias > 0
    else:
        v.hit_bias += v.hit_bias < LEAN_MAX
    return says


# --- many ------------------------------------------------------------------------------------------------------------

ctypedef struct Pending:        # one lookup of a group, on its way down
    Lookup* q
    TableSlot* slot             # the table to ask in this round
    uint64_t hash
    uint64_t key8
    bint outside                # of every table
    uint32_t block
    BlockC* held                # that block where it is cached, pinned
    bint asked


cdef inline bint denied(const Pending* p, bint unasked) noexcept nogil:
    """A healthy filter says no."""
    if unasked:
        return False
    if p.slot.k:
        return not lsm_filter_test(slot_line(p.slot, p.hash), lsm_filter_remix(p.hash), p.slot.k)
    return p.slot.foreign and not filter_probe(&p.slot.t.filter, p.hash)


cdef int probe_round(Pending* group, int n, bint bottom, ReadContext* rc, Counters* counters, LevelCounters* c,
                   Status* st) noexcept nogil:
    """Asks each pending lookup's table, stage by stage so that cache misses of a stage overlap. Answered ones get q = NULL."""
    cdef bint unasked
    cdef int i
    cdef Pending* p
    for i in range(n):
        p = &group[i]
        if p.q != NULL and p.slot != NULL:
            p.hash = hash_for(p.slot, p.q)
            lsm_prefetch(slot_line(p.slot, p.hash))
    for i in range(n):
        p = &group[i]
        if p.q == NULL or p.slot == NULL:
            continue
        unasked = bottom and p.q.skip_bottom_filter
        if denied(p, unasked):
            if count_negative(p.slot, p.q, p.hash, rc, counters, c, st) != ST_OK:
                return FAILED
            if table_ranges_say(p.slot.t, p.q) == DELETED:
                p.q = NULL
            p.slot = NULL
            continue
        p.asked = count_maybe(p.slot, unasked, c)
        p.block = table_find_block(p.slot.t, p.q.key, p.q.klen)
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
    return read_blocks(group, n, rc, c, st)


cdef int read_blocks(Pending* group, int n, ReadContext* rc, LevelCounters* c, Status* st) noexcept nogil:
    """The last stage: what the blocks say. After a failure the pins of the others are given back."""
    cdef int i
    cdef int says = ABSENT
    cdef Pending* p
    for i in range(n):
        p = &group[i]
        if p.q == NULL or p.slot == NULL:
            continue
        if says == FAILED:
            table_unpin(p.slot.t, p.held)
            continue
        says = read_table(p.slot, p.block, p.held, p.q, p.hash, p.asked, rc, c, st)
        if says != ABSENT and says != FAILED:
            p.q = NULL
    return FAILED if says == FAILED else ABSENT


cdef int get_group(ReadStateC* v, Lookup* queries, int n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef Pending group[GROUP]
    cdef TableSlot* slot
    cdef int i, k, level
    for i in range(n):
        group[i].q = &queries[i]
        group[i].outside = not read_state_key8(v, queries[i].key, queries[i].klen, &group[i].key8)
        queries[i].found = False
        queries[i].pinned = NULL
    for k in range(v.n_memtables):
        for i in range(n):
            if group[i].q != NULL:
                mem_prefetch(v.memtables[k], queries[i].hash)
        for i in range(n):
            if group[i].q != NULL and probe_memtable(v.memtables[k], &queries[i]) != ABSENT:
                lsm_count(&counters.memtable_hits, 1)
                group[i].q = NULL
    for k in range(v.levels[0].n):
        slot = &v.levels[0].slots[k]
        for i in range(n):
            group[i].slot = NULL
            if group[i].q != NULL and not group[i].outside and slot_holds(slot, group[i].key8, queries[i].key, queries[i].klen):
                group[i].slot = slot
        if probe_round(group, n, v.bottom == 0, rc, counters, &counters.levels[0], st) == FAILED:
            return st.code
    for k in range(v.n_deep):
        level = v.deep[k]
        for i in range(n):
            group[i].slot = NULL
            if group[i].q != NULL and not group[i].outside:
                group[i].slot = level_find(&v.levels[level], group[i].key8, queries[i].key, queries[i].klen)
        if probe_round(group, n, v.bottom == level, rc, counters, &counters.levels[level], st) == FAILED:
            return st.code
    lsm_count(&counters.gets, n)
    for i in range(n):
        lsm_count(&counters.gets_found, queries[i].found)
    return ST_OK


cdef int probe_many(ReadStateC* v, Lookup* queries, size_t n, ReadContext* rc, Counters* counters, Status* st) noexcept nogil:
    cdef size_t done = 0
    cdef int take
    while done < n:
        take = GROUP if n - done > GROUP else <int>(n - done)
        if get_group(v, queries + done, take, rc, counters, st) != ST_OK:
            return st.code
        done += take
    return ST_OK


cdef void read_state_drain(ReadStateC* v) noexcept nogil:
    if v.cache != NULL:
        cache_drain(v.cache)


cdef void counters_start(Counters* c, const Counters* like) noexcept nogil:
    cdef int i
    memset(c, 0, sizeof(Counters))
    c.shadow_period = like.shadow_period
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


# --- owner -----------------------------------------------------------------------------------------------------------

cdef class ReadState:
    """ReadState(memtables newest first, levels): levels[0] newest first, deeper ones sorted by key."""

    def __cinit__(self, memtables, levels, uint64_t seed=0):
        cdef Memtable memtable
        cdef Py_ssize_t i
        self.memtables = list(memtables)
        self.levels = [list(tables) for tables in levels]
        if len(self.levels) > MAX_LEVELS:
            raise ValueError(f"at most {MAX_LEVELS} levels")
        self.c.seed = seed
        self.c.bottom = -1
        self.c.n_memtables = len(self.memtables)
        self.c.memtables = <MemC**>malloc((len(self.memtables) + 1) * sizeof(MemC*))
        if self.c.memtables == NULL:
            raise MemoryError("state")
        for i in range(len(self.memtables)):
            memtable = self.memtables[i]
            self.c.memtables[i] = memtable.c
        self.c.n_levels = len(self.levels)
        self._cut_common()
        for i in range(len(self.levels)):
            self._add_level(i, self.levels[i])

    cdef int _cut_common(self) except -1:
        """All bounds lie between the smallest and the largest one, so what these two share, all share."""
        cdef Table table
        cdef TableC* low = NULL
        cdef TableC* high = NULL
        for tables in self.levels:
            for table in tables:
                if low == NULL or lsm_compare(table.c.smallest, table.c.smallest_len, low.smallest, low.smallest_len) < 0:
                    low = table.c
                if high == NULL or lsm_compare(table.c.largest, table.c.largest_len, high.largest, high.largest_len) > 0:
                    high = table.c
        if low == NULL:
            return 0
        self.c.common = low.smallest
        while (self.c.common_len < low.smallest_len and self.c.common_len < high.largest_len
               and low.smallest[self.c.common_len] == high.largest[self.c.common_len]):
            self.c.common_len += 1
        return 0

    cdef int _add_level(self, int level, list tables) except -1:
        cdef Table table
        cdef Py_ssize_t i
        cdef void* slots = NULL
        cdef LevelC* out = &self.c.levels[level]
        if posix_memalign(&slots, FILTER_BLOCK_BYTES, (len(tables) + 1) * sizeof(TableSlot)) != 0:
            raise MemoryError("state")
        out.slots = <TableSlot*>slots
        out.last8 = <uint64_t*>malloc((len(tables) + 1) * sizeof(uint64_t))
        self.c.flat[level] = <TableC**>malloc((len(tables) + 1) * sizeof(TableC*))
        if out.last8 == NULL or self.c.flat[level] == NULL:
            raise MemoryError("state")
        for i in range(len(tables)):
            table = tables[i]
            self._fill_slot(&out.slots[i], table.c)
            out.last8[i] = out.slots[i].last8
            self.c.flat[level][i] = table.c
            self.c.cache = table.c.cache
            if table.c.tombstones.n:
                self.c.table_ranges = True
        out.n = len(tables)
        if out.n:
            self.c.bottom = level
            if level:
                self.c.deep[self.c.n_deep] = level
                self.c.n_deep += 1
        return 0

    cdef void _fill_slot(self, TableSlot* slot, TableC* t) noexcept:
        cdef size_t shared = self.c.common_len
        memset(slot, 0, sizeof(TableSlot))
        slot.t = t
        slot.first8 = lsm_prefix8(t.smallest + shared, t.smallest_len - shared)
        slot.last8 = lsm_prefix8(t.largest + shared, t.largest_len - shared)
        slot.foreign = t.seed != self.c.seed
        if t.filter.usable:
            slot.designed_fpr = filter_designed_fpr(&t.filter)
            if not slot.foreign:
                slot.bits = t.filter.bits
                slot.n_blocks = t.filter.n_blocks
                slot.k = t.filter.k

    def __dealloc__(self):
        cdef int i
        free(self.c.memtables)
        for i in range(MAX_LEVELS):
            free(self.c.levels[i].slots)
            free(self.c.levels[i].last8)
            free(self.c.flat[i])

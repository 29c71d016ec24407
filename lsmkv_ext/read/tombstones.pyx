from libc.stdlib cimport qsort
from libc.string cimport memset

from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone, Span
from lsmkv_ext.port.alloc cimport lsm_free
from lsmkv_ext.port.atomics cimport lsm_load_ptr
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.growable cimport array_reserve
from lsmkv_ext.table.tombstones cimport tombstone_walk_init, tombstone_walk_next

# --- adding ------------------------------------------------------------------------------------------------------------

cdef int fragments_add(Fragments* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                       uint64_t seq) noexcept nogil:
    cdef RangeTombstone* d
    if lsm_compare(start, start_len, stop, stop_len) >= 0:
        return 0
    if array_reserve(<void**>&s.items, &s.capacity, s.n + 1, sizeof(RangeTombstone)) != 0:
        return -1
    d = &s.items[s.n]
    d.start = start
    d.start_len = start_len
    d.stop = stop
    d.stop_len = stop_len
    d.seq = seq
    s.n += 1
    return 0


cdef int fragments_add_memtable(Fragments* s, const MemC* m, uint64_t snapshot) noexcept nogil:
    cdef MemRangeTombstone* d = <MemRangeTombstone*>lsm_load_ptr(<void**>&m.range_tombstones)
    cdef const Span* r
    while d != NULL:
        r = &d.span
        if r.seq <= snapshot and fragments_add(s, r.start, r.start_len, r.stop, r.stop_len, r.seq) != 0:
            return -1
        d = d.older
    return 0


cdef int fragments_add_table(Fragments* s, const TableC* t) noexcept nogil:
    cdef RangeTombstone d
    cdef TombstoneWalk walk
    tombstone_walk_init(&walk, &t.tombstones)
    while tombstone_walk_next(&walk, &d):
        if fragments_add(s, d.start, d.start_len, d.stop, d.stop_len, d.seq) != 0:
            return -1
    return 0


cdef int by_start(const void* a, const void* b) noexcept nogil:
    cdef const RangeTombstone* x = <const RangeTombstone*>a
    cdef const RangeTombstone* y = <const RangeTombstone*>b
    return lsm_compare(x.start, x.start_len, y.start, y.start_len)


# --- the sweep ---------------------------------------------------------------------------------------------------------

cdef inline bint starts_before(const RangeSource* a, const RangeSource* b) noexcept nogil:
    return lsm_compare(a.now.start, a.now.start_len, b.now.start, b.now.start_len) < 0


cdef void sift_source(RangeSource* heap, size_t n, size_t i) noexcept nogil:
    """Moves the source at i down to its place in the heap."""
    cdef RangeSource moved = heap[i]
    cdef size_t child
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and starts_before(&heap[child + 1], &heap[child]):
            child += 1
        if not starts_before(&heap[child], &moved):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = moved


cdef bint source_next(RangeSource* source) noexcept nogil:
    if source.item == NULL:
        return tombstone_walk_next(&source.walk, &source.now)
    if source.item == source.end:
        return False
    source.now = source.item[0]
    source.item += 1
    return True


cdef void advance_top(RangeSweep* s) noexcept nogil:
    """Moves the top source to its next range tombstone."""
    if not source_next(&s.sources[0]):
        s.n_sources -= 1
        s.sources[0] = s.sources[s.n_sources]
    if s.n_sources > 1:
        sift_source(s.sources, s.n_sources, 0)


cdef int add_source(RangeSweep* s, RangeSource* source) noexcept nogil:
    if not source_next(source):
        return 0
    if array_reserve(<void**>&s.sources, &s.cap_sources, s.n_sources + 1, sizeof(RangeSource)) != 0:
        return -1
    s.sources[s.n_sources] = source[0]
    s.n_sources += 1
    return 0


cdef int push_covering(RangeSweep* s, const RangeTombstone* d) noexcept nogil:
    cdef size_t i, parent
    if array_reserve(<void**>&s.covering, &s.cap_covering, s.n_covering + 1, sizeof(RangeTombstone)) != 0:
        return -1
    i = s.n_covering
    s.n_covering += 1
    while i > 0:
        parent = (i - 1) // 2
        if s.covering[parent].seq >= d.seq:
            break
        s.covering[i] = s.covering[parent]
        i = parent
    s.covering[i] = d[0]
    return 0


cdef void pop_covering(RangeSweep* s) noexcept nogil:
    cdef RangeTombstone last
    cdef size_t i = 0, child
    s.n_covering -= 1
    last = s.covering[s.n_covering]
    while True:
        child = 2 * i + 1
        if child >= s.n_covering:
            break
        if child + 1 < s.n_covering and s.covering[child + 1].seq > s.covering[child].seq:
            child += 1
        if s.covering[child].seq <= last.seq:
            break
        s.covering[i] = s.covering[child]
        i = child
    s.covering[i] = last


cdef int next_fragment(RangeSweep* s, RangeTombstone* out) noexcept nogil:
    """The next part of a range tombstone over which no newer one lies. Returns 1, 0 after the last one, -1 if out of memory."""
    cdef RangeTombstone top
    cdef RangeTombstone* now
    while s.n_covering and lsm_compare(s.covering[0].stop, s.covering[0].stop_len, s.at, s.at_len) <= 0:
        pop_covering(s)
    if s.n_covering == 0:
        if s.n_sources == 0:
            return 0
        s.at = s.sources[0].now.start
        s.at_len = s.sources[0].now.start_len
    while s.n_sources and lsm_compare(s.sources[0].now.start, s.sources[0].now.start_len, s.at, s.at_len) <= 0:
        if push_covering(s, &s.sources[0].now) != 0:
            return -1
        advance_top(s)
    top = s.covering[0]
    out[0] = top
    out.start = s.at
    out.start_len = s.at_len
    while s.n_sources and lsm_compare(s.sources[0].now.start, s.sources[0].now.start_len, top.stop, top.stop_len) < 0:
        now = &s.sources[0].now
        if now.seq > top.seq:
            out.stop = now.start
            out.stop_len = now.start_len
            break
        # Older: visible after the top one's stop, if it reaches that far.
        if lsm_compare(now.stop, now.stop_len, top.stop, top.stop_len) > 0 and push_covering(s, now) != 0:
            return -1
        advance_top(s)
    s.at = out.stop
    s.at_len = out.stop_len
    return 1


cdef int sweep_next(RangeSweep* s) noexcept nogil:
    cdef int got = 1
    if s.has_following:
        s.span = s.following
    else:
        got = next_fragment(s, &s.span)
    s.valid = got == 1
    s.has_following = False
    while got == 1:
        got = next_fragment(s, &s.following)
        s.has_following = got == 1
        if (not s.has_following or s.following.seq != s.span.seq
                or lsm_compare(s.following.start, s.following.start_len, s.span.stop, s.span.stop_len) != 0):
            break
        s.span.stop = s.following.stop
        s.span.stop_len = s.following.stop_len
        s.has_following = False
    return -1 if got < 0 else 0


cdef int sweep_add_memtable(RangeSweep* s, const MemC* m, uint64_t snapshot) noexcept nogil:
    return fragments_add_memtable(&s.gathered, m, snapshot)


cdef int sweep_add_table(RangeSweep* s, const TableC* t) noexcept nogil:
    cdef RangeSource source
    memset(&source, 0, sizeof(source))
    tombstone_walk_init(&source.walk, &t.tombstones)
    return add_source(s, &source)


cdef int sweep_begin(RangeSweep* s) noexcept nogil:
    cdef RangeSource source
    cdef size_t i
    if s.gathered.n:
        qsort(s.gathered.items, s.gathered.n, sizeof(RangeTombstone), by_start)
        memset(&source, 0, sizeof(source))
        source.item = s.gathered.items
        source.end = s.gathered.items + s.gathered.n
        if add_source(s, &source) != 0:
            return -1
    for i in range(s.n_sources // 2):
        sift_source(s.sources, s.n_sources, s.n_sources // 2 - 1 - i)
    return sweep_next(s)


cdef void sweep_free(RangeSweep* s) noexcept nogil:
    fragments_free(&s.gathered)
    lsm_free(s.sources)
    lsm_free(s.covering)
    memset(s, 0, sizeof(RangeSweep))


# --- the flat list -----------------------------------------------------------------------------------------------------

cdef int fragments_flatten(Fragments* s) noexcept nogil:
    cdef RangeSweep sweep
    cdef RangeTombstone* d
    cdef Fragments out
    cdef int failed
    memset(&out, 0, sizeof(out))
    memset(&sweep, 0, sizeof(sweep))
    sweep.gathered = s[0]
    failed = sweep_begin(&sweep)
    while failed == 0 and sweep.valid:
        d = &sweep.span
        failed = fragments_add(&out, d.start, d.start_len, d.stop, d.stop_len, d.seq)
        if failed == 0:
            failed = sweep_next(&sweep)
    sweep_free(&sweep)
    if failed != 0:
        fragments_free(&out)
    s[0] = out
    return failed


cdef void fragments_free(Fragments* s) noexcept nogil:
    lsm_free(s.items)
    s.items = NULL
    s.n = 0
    s.capacity = 0


cdef const RangeTombstone* fragments_find(const RangeTombstone* items, size_t n, const char* key, size_t klen) noexcept nogil:
    cdef size_t lo = 0, hi = n, mid
    while lo < hi:          # first range that starts after key
        mid = (lo + hi) >> 1
        if lsm_compare(items[mid].start, items[mid].start_len, key, klen) <= 0:
            lo = mid + 1
        else:
            hi = mid
    if lo == 0 or lsm_compare(key, klen, items[lo - 1].stop, items[lo - 1].stop_len) >= 0:
        return NULL
    return &items[lo - 1]

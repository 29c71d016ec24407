from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone
from lsmkv_ext.port.atomics cimport lsm_load_ptr
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.table.tombstones cimport tombstone_walk_init, tombstone_walk_next

# --- gathering ---------------------------------------------------------------------------------------------------------

cdef int fragments_add(Fragments* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                       uint64_t seq) noexcept nogil:
    cdef RangeTombstone* grown
    cdef RangeTombstone* d
    if lsm_compare(start, start_len, stop, stop_len) >= 0:
        return 0
    if s.n == s.capacity:
        grown = <RangeTombstone*>realloc(s.items, (s.capacity * 2 + 16) * sizeof(RangeTombstone))
        if grown == NULL:
            return -1
        s.items = grown
        s.capacity = s.capacity * 2 + 16
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
    while d != NULL:
        if d.seq <= snapshot and fragments_add(s, d.start, d.start_len, d.stop, d.stop_len, d.seq) != 0:
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
    """Down from i to where it belongs."""
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


cdef void take(RangeSweep* s) noexcept nogil:
    """The top source moves on."""
    if not source_next(&s.sources[0]):
        s.n_sources -= 1
        s.sources[0] = s.sources[s.n_sources]
    if s.n_sources > 1:
        sift_source(s.sources, s.n_sources, 0)


cdef int add_source(RangeSweep* s, RangeSource* source) noexcept nogil:
    cdef RangeSource* grown
    if not source_next(source):
        return 0
    if s.n_sources == s.cap_sources:
        grown = <RangeSource*>realloc(s.sources, (s.cap_sources * 2 + 8) * sizeof(RangeSource))
        if grown == NULL:
            return -1
        s.sources = grown
        s.cap_sources = s.cap_sources * 2 + 8
    s.sources[s.n_sources] = source[0]
    s.n_sources += 1
    return 0


cdef int push_over(RangeSweep* s, const RangeTombstone* d) noexcept nogil:
    cdef RangeTombstone* grown
    cdef size_t i, parent
    if s.n_over == s.cap_over:
        grown = <RangeTombstone*>realloc(s.over, (s.cap_over * 2 + 16) * sizeof(RangeTombstone))
        if grown == NULL:
            return -1
        s.over = grown
        s.cap_over = s.cap_over * 2 + 16
    i = s.n_over
    s.n_over += 1
    while i > 0:
        parent = (i - 1) // 2
        if s.over[parent].seq >= d.seq:
            break
        s.over[i] = s.over[parent]
        i = parent
    s.over[i] = d[0]
    return 0


cdef void pop_over(RangeSweep* s) noexcept nogil:
    cdef RangeTombstone last
    cdef size_t i = 0, child
    s.n_over -= 1
    last = s.over[s.n_over]
    while True:
        child = 2 * i + 1
        if child >= s.n_over:
            break
        if child + 1 < s.n_over and s.over[child + 1].seq > s.over[child].seq:
            child += 1
        if s.over[child].seq <= last.seq:
            break
        s.over[i] = s.over[child]
        i = child
    s.over[i] = last


cdef int step(RangeSweep* s, RangeTombstone* out) noexcept nogil:
    """The next part of a range that is newest all along: 1, 0 behind the last one, -1 without memory."""
    cdef RangeTombstone top
    cdef RangeTombstone* now
    while s.n_over and lsm_compare(s.over[0].stop, s.over[0].stop_len, s.at, s.at_len) <= 0:
        pop_over(s)
    if s.n_over == 0:
        if s.n_sources == 0:
            return 0
        s.at = s.sources[0].now.start
        s.at_len = s.sources[0].now.start_len
    while s.n_sources and lsm_compare(s.sources[0].now.start, s.sources[0].now.start_len, s.at, s.at_len) <= 0:
        if push_over(s, &s.sources[0].now) != 0:
            return -1
        take(s)
    top = s.over[0]
    out[0] = top
    out.start = s.at
    out.start_len = s.at_len
    while s.n_sources and lsm_compare(s.sources[0].now.start, s.sources[0].now.start_len, top.stop, top.stop_len) < 0:
        now = &s.sources[0].now
        if now.seq > top.seq:
            out.stop = now.start
            out.stop_len = now.start_len
            break
        # Older: it shows behind the top one, if it reaches that far.
        if lsm_compare(now.stop, now.stop_len, top.stop, top.stop_len) > 0 and push_over(s, now) != 0:
            return -1
        take(s)
    s.at = out.stop
    s.at_len = out.stop_len
    return 1


cdef int sweep_next(RangeSweep* s) noexcept nogil:
    cdef int got = 1
    if s.has_ahead:
        s.span = s.ahead
    else:
        got = step(s, &s.span)
    s.valid = got == 1
    s.has_ahead = False
    while got == 1:
        got = step(s, &s.ahead)
        s.has_ahead = got == 1
        if (not s.has_ahead or s.ahead.seq != s.span.seq
                or lsm_compare(s.ahead.start, s.ahead.start_len, s.span.stop, s.span.stop_len) != 0):
            break
        s.span.stop = s.ahead.stop
        s.span.stop_len = s.ahead.stop_len
        s.has_ahead = False
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
    free(s.sources)
    free(s.over)
    memset(s, 0, sizeof(RangeSweep))


# --- the list ----------------------------------------------------------------------------------------------------------

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
    free(s.items)
    s.items = NULL
    s.n = 0
    s.capacity = 0


cdef uint64_t ranges_cover(const RangeTombstone* items, size_t n, const char* key, size_t klen) noexcept nogil:
    cdef size_t lo = 0, hi = n, mid
    while lo < hi:          # first range that starts behind key
        mid = (lo + hi) >> 1
        if lsm_compare(items[mid].start, items[mid].start_len, key, klen) <= 0:
            lo = mid + 1
        else:
            hi = mid
    if lo == 0 or lsm_compare(key, klen, items[lo - 1].stop, items[lo - 1].stop_len) >= 0:
        return 0
    return items[lo - 1].seq

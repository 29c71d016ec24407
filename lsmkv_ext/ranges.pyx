from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memset

from lsmkv_ext.rangetree cimport MemRangeDelete
from lsmkv_ext.types cimport lsm_compare, lsm_load_ptr

ctypedef struct Bound:
    const char* key
    size_t n


cdef int skyline_add(Skyline* s, const char* start, size_t start_len, const char* stop, size_t stop_len,
                     uint64_t seq) noexcept nogil:
    cdef RangeDelete* grown
    cdef RangeDelete* d
    if lsm_compare(start, start_len, stop, stop_len) >= 0:
        return 0
    if s.n == s.capacity:
        grown = <RangeDelete*>realloc(s.items, (s.capacity * 2 + 16) * sizeof(RangeDelete))
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


cdef int skyline_add_memtable(Skyline* s, const MemC* m, uint64_t snapshot) noexcept nogil:
    cdef MemRangeDelete* d = <MemRangeDelete*>lsm_load_ptr(<void**>&m.range_deletes)
    while d != NULL:
        if d.seq <= snapshot and skyline_add(s, d.start, d.start_len, d.stop, d.stop_len, d.seq) != 0:
            return -1
        d = d.older
    return 0


cdef int skyline_add_table(Skyline* s, const TableC* t) noexcept nogil:
    cdef size_t i
    cdef const RangeDelete* d
    for i in range(t.n_range_deletes):
        d = &t.range_deletes[i]
        if skyline_add(s, d.start, d.start_len, d.stop, d.stop_len, t.global_seq if t.global_seq else d.seq) != 0:
            return -1
    return 0


cdef int by_start(const void* a, const void* b) noexcept nogil:
    cdef const RangeDelete* x = <const RangeDelete*>a
    cdef const RangeDelete* y = <const RangeDelete*>b
    return lsm_compare(x.start, x.start_len, y.start, y.start_len)


cdef int by_key(const void* a, const void* b) noexcept nogil:
    cdef const Bound* x = <const Bound*>a
    cdef const Bound* y = <const Bound*>b
    return lsm_compare(x.key, x.n, y.key, y.n)


cdef void heap_push(RangeDelete** heap, size_t n, RangeDelete* d) noexcept nogil:
    """Max-heap by sequence number; n is the size before the push."""
    cdef size_t i = n, parent
    while i > 0:
        parent = (i - 1) // 2
        if heap[parent].seq >= d.seq:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = d


cdef void heap_pop(RangeDelete** heap, size_t n) noexcept nogil:
    """n is the size before the pop."""
    cdef RangeDelete* last = heap[n - 1]
    cdef size_t i = 0, child
    n -= 1
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and heap[child + 1].seq > heap[child].seq:
            child += 1
        if heap[child].seq <= last.seq:
            break
        heap[i] = heap[child]
        i = child
    if n:
        heap[i] = last


cdef int skyline_flatten(Skyline* s) noexcept nogil:
    """A sweep over all bounds with the open ranges in a heap, newest on top."""
    cdef size_t n = s.n, i, next_in = 0, n_heap = 0
    cdef RangeDelete* top
    cdef RangeDelete* last
    cdef int failed = 0
    cdef Bound* bounds
    cdef RangeDelete** heap
    cdef Skyline out
    if n == 0:
        return 0
    bounds = <Bound*>malloc(2 * n * sizeof(Bound))
    heap = <RangeDelete**>malloc(n * sizeof(RangeDelete*))
    memset(&out, 0, sizeof(out))
    if bounds == NULL or heap == NULL:
        free(bounds)
        free(heap)
        return -1
    qsort(s.items, n, sizeof(RangeDelete), by_start)
    for i in range(n):
        bounds[2 * i].key = s.items[i].start
        bounds[2 * i].n = s.items[i].start_len
        bounds[2 * i + 1].key = s.items[i].stop
        bounds[2 * i + 1].n = s.items[i].stop_len
    qsort(bounds, 2 * n, sizeof(Bound), by_key)
    for i in range(2 * n - 1):
        if by_key(&bounds[i], &bounds[i + 1]) == 0:
            continue
        while next_in < n and lsm_compare(s.items[next_in].start, s.items[next_in].start_len,
                                          bounds[i].key, bounds[i].n) <= 0:
            heap_push(heap, n_heap, &s.items[next_in])
            n_heap += 1
            next_in += 1
        while n_heap and lsm_compare(heap[0].stop, heap[0].stop_len, bounds[i].key, bounds[i].n) <= 0:
            heap_pop(heap, n_heap)
            n_heap -= 1
        if n_heap == 0:
            continue
        top = heap[0]
        last = &out.items[out.n - 1] if out.n else NULL
        if last != NULL and last.seq == top.seq and lsm_compare(last.stop, last.stop_len, bounds[i].key, bounds[i].n) == 0:
            last.stop = bounds[i + 1].key
            last.stop_len = bounds[i + 1].n
        elif skyline_add(&out, bounds[i].key, bounds[i].n, bounds[i + 1].key, bounds[i + 1].n, top.seq) != 0:
            failed = -1
            break
    free(bounds)
    free(heap)
    if failed:
        skyline_free(&out)
        return failed
    free(s.items)
    s[0] = out
    return 0


cdef void skyline_free(Skyline* s) noexcept nogil:
    free(s.items)
    s.items = NULL
    s.n = 0
    s.capacity = 0


cdef uint64_t ranges_cover(const RangeDelete* items, size_t n, const char* key, size_t klen) noexcept nogil:
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

from libc.stdlib cimport calloc, free, malloc

from lsmkv_ext.port.compare cimport lsm_compare


cdef inline bint starts_after(const Span* s, const char* key, size_t klen) noexcept nogil:
    return lsm_compare(s.start, s.start_len, key, klen) > 0


cdef inline bint ends_by(const Span* s, const char* key, size_t klen) noexcept nogil:
    return lsm_compare(s.stop, s.stop_len, key, klen) <= 0


# --- building --------------------------------------------------------------------------------------------------------

cdef size_t overlay(const Span* upper, size_t n, const Span* lower, size_t m, Span* out) noexcept nogil:
    """Writes `upper`, and the parts of `lower` that `upper` does not cover. Returns the number of spans, at most 2n + m."""
    cdef size_t i = 0, j = 0, k = 0
    cdef Span rest
    if m:
        rest = lower[0]
    while i < n or j < m:
        if j == m or (i < n and ends_by(&upper[i], rest.start, rest.start_len)):
            out[k] = upper[i]
            k += 1
            i += 1
            continue
        if i == n or ends_by(&rest, upper[i].start, upper[i].start_len):
            out[k] = rest
            k += 1
        else:
            if starts_after(&upper[i], rest.start, rest.start_len):
                out[k] = rest
                out[k].stop = upper[i].start
                out[k].stop_len = upper[i].start_len
                k += 1
            if not ends_by(&rest, upper[i].stop, upper[i].stop_len):
                rest.start = upper[i].stop
                rest.start_len = upper[i].stop_len
                out[k] = upper[i]
                k += 1
                i += 1
                continue
        j += 1
        if j < m:
            rest = lower[j]
    return k


cdef RangeNode* node_new(size_t most) noexcept nogil:
    cdef RangeNode* node = <RangeNode*>calloc(1, sizeof(RangeNode))
    if node == NULL:
        return NULL
    node.spans = <Span*>malloc((most if most else 1) * sizeof(Span))
    if node.spans == NULL:
        free(node)
        return NULL
    return node


cdef RangeNode* leaf_new(const MemRangeTombstone* newest, int count) noexcept nogil:
    """Flattens range tombstones: each older one goes below the newer ones."""
    cdef RangeNode* node = node_new(2 * count)
    cdef Span* scratch = <Span*>malloc(2 * count * sizeof(Span))
    cdef Span* swap
    cdef Span one
    cdef const MemRangeTombstone* d = newest
    cdef int _i
    if node == NULL or scratch == NULL:
        free(scratch)
        if node != NULL:
            free(node.spans)
            free(node)
        return NULL
    node.newest = newest
    node.max_seq = newest.seq
    for _i in range(count):
        node.min_seq = d.seq
        if lsm_compare(d.start, d.start_len, d.stop, d.stop_len) < 0:
            one.start = d.start
            one.start_len = d.start_len
            one.stop = d.stop
            one.stop_len = d.stop_len
            one.seq = d.seq
            node.n = overlay(node.spans, node.n, &one, 1, scratch)
            swap = node.spans
            node.spans = scratch
            scratch = swap
        d = d.older
    free(scratch)
    return node


cdef RangeNode* join(RangeNode* newer) noexcept nogil:
    cdef RangeNode* older = newer.before
    cdef RangeNode* node = node_new(2 * newer.n + older.n)
    if node == NULL:
        return NULL
    node.before = older.before
    node.newer = newer
    node.older = older
    node.newest = newer.newest
    node.min_seq = older.min_seq
    node.max_seq = newer.max_seq
    node.rank = newer.rank + 1
    node.n = overlay(newer.spans, newer.n, older.spans, older.n, node.spans)
    return node


cdef RangeNode* range_tree_grow(RangeNode* head, const MemRangeTombstone* newest, int count, uint64_t* used) noexcept nogil:
    cdef RangeNode* node = leaf_new(newest, count)
    cdef RangeNode* joined
    if node == NULL:
        return NULL
    node.before = head
    while True:
        used[0] += sizeof(RangeNode) + node.n * sizeof(Span)
        if node.before == NULL or node.before.rank != node.rank:
            return node
        joined = join(node)
        if joined == NULL:
            return node
        node = joined


cdef void node_free(RangeNode* node) noexcept nogil:
    if node.newer != NULL:
        node_free(node.newer)
        node_free(node.older)
    free(node.spans)
    free(node)


cdef void range_tree_free(RangeNode* head) noexcept nogil:
    cdef RangeNode* before
    while head != NULL:
        before = head.before
        node_free(head)
        head = before


# --- lookup ----------------------------------------------------------------------------------------------------------

cdef uint64_t range_list_cover(const MemRangeTombstone* d, const MemRangeTombstone* end, const char* key, size_t klen,
                               uint64_t snapshot, size_t* steps) noexcept nogil:
    """The list is newest first, so the first one over the key has the largest sequence number."""
    while d != end:
        if steps != NULL:
            steps[0] += 1
        if (d.seq <= snapshot and lsm_compare(d.start, d.start_len, key, klen) <= 0
                and lsm_compare(key, klen, d.stop, d.stop_len) < 0):
            return d.seq
        d = d.older
    return 0


cdef uint64_t span_cover(const RangeNode* node, const char* key, size_t klen, size_t* steps) noexcept nogil:
    cdef size_t lo = 0, hi = node.n, mid
    while lo < hi:          # first span that starts after key
        if steps != NULL:
            steps[0] += 1
        mid = (lo + hi) >> 1
        if starts_after(&node.spans[mid], key, klen):
            hi = mid
        else:
            lo = mid + 1
    if lo == 0 or ends_by(&node.spans[lo - 1], key, klen):
        return 0
    return node.spans[lo - 1].seq


cdef uint64_t node_cover(const RangeNode* node, const char* key, size_t klen, uint64_t snapshot,
                         size_t* steps) noexcept nogil:
    cdef const MemRangeTombstone* end
    cdef uint64_t seq
    if node.min_seq > snapshot:
        return 0
    if node.max_seq <= snapshot:
        return span_cover(node, key, klen, steps)
    if node.newer == NULL:
        end = node.before.newest if node.before != NULL else NULL
        return range_list_cover(node.newest, end, key, klen, snapshot, steps)
    seq = node_cover(node.newer, key, klen, snapshot, steps)
    return seq if seq else node_cover(node.older, key, klen, snapshot, steps)


cdef uint64_t range_tree_cover(const RangeNode* head, const char* key, size_t klen, uint64_t snapshot,
                               size_t* steps) noexcept nogil:
    cdef uint64_t seq
    while head != NULL:
        seq = node_cover(head, key, klen, snapshot, steps)
        if seq:
            return seq
        head = head.before
    return 0

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


cdef TombstoneNode* node_new(size_t most) noexcept nogil:
    cdef TombstoneNode* node = <TombstoneNode*>calloc(1, sizeof(TombstoneNode))
    if node == NULL:
        return NULL
    node.spans = <Span*>malloc((most if most else 1) * sizeof(Span))
    if node.spans == NULL:
        free(node)
        return NULL
    return node


cdef TombstoneNode* leaf_new(const MemRangeTombstone* newest, int count) noexcept nogil:
    """Flattens range tombstones: each older one goes below the newer ones."""
    cdef TombstoneNode* node = node_new(2 * count)
    cdef Span* scratch = <Span*>malloc(2 * count * sizeof(Span))
    cdef Span* swap
    cdef const MemRangeTombstone* d = newest
    cdef int _i
    if node == NULL or scratch == NULL:
        free(scratch)
        if node != NULL:
            free(node.spans)
            free(node)
        return NULL
    node.newest = newest
    node.max_seq = newest.span.seq
    for _i in range(count):
        node.min_seq = d.span.seq
        if lsm_compare(d.span.start, d.span.start_len, d.span.stop, d.span.stop_len) < 0:
            node.n = overlay(node.spans, node.n, &d.span, 1, scratch)
            swap = node.spans
            node.spans = scratch
            scratch = swap
        d = d.older
    free(scratch)
    return node


cdef TombstoneNode* join(TombstoneNode* newer) noexcept nogil:
    cdef TombstoneNode* older = newer.before
    cdef TombstoneNode* node = node_new(2 * newer.n + older.n)
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


cdef TombstoneNode* tombstone_tree_grow(TombstoneNode* head, const MemRangeTombstone* newest, int count,
                                        uint64_t* used) noexcept nogil:
    cdef TombstoneNode* node = leaf_new(newest, count)
    cdef TombstoneNode* joined
    if node == NULL:
        return NULL
    node.before = head
    while True:
        used[0] += sizeof(TombstoneNode) + node.n * sizeof(Span)
        if node.before == NULL or node.before.rank != node.rank:
            return node
        joined = join(node)
        if joined == NULL:
            return node
        node = joined


cdef void node_free(TombstoneNode* node) noexcept nogil:
    if node.newer != NULL:
        node_free(node.newer)
        node_free(node.older)
    free(node.spans)
    free(node)


cdef void tombstone_tree_free(TombstoneNode* head) noexcept nogil:
    cdef TombstoneNode* before
    while head != NULL:
        before = head.before
        node_free(head)
        head = before


# --- lookup ----------------------------------------------------------------------------------------------------------

cdef inline bint span_covers(const Span* s, const char* key, size_t klen) noexcept nogil:
    return not starts_after(s, key, klen) and not ends_by(s, key, klen)


cdef const Span* tombstone_list_cover(const MemRangeTombstone* d, const MemRangeTombstone* end, const char* key, size_t klen,
                                      uint64_t snapshot, size_t* steps) noexcept nogil:
    """The list is newest first, so the first one over the key has the largest sequence number."""
    while d != end:
        if steps != NULL:
            steps[0] += 1
        if d.span.seq <= snapshot and span_covers(&d.span, key, klen):
            return &d.span
        d = d.older
    return NULL


cdef const Span* find_span(const TombstoneNode* node, const char* key, size_t klen, size_t* steps) noexcept nogil:
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
        return NULL
    return &node.spans[lo - 1]


cdef const Span* node_cover(const TombstoneNode* node, const char* key, size_t klen, uint64_t snapshot,
                            size_t* steps) noexcept nogil:
    cdef const MemRangeTombstone* end
    cdef const Span* found
    if node.min_seq > snapshot:
        return NULL
    if node.max_seq <= snapshot:
        return find_span(node, key, klen, steps)
    if node.newer == NULL:
        end = node.before.newest if node.before != NULL else NULL
        return tombstone_list_cover(node.newest, end, key, klen, snapshot, steps)
    found = node_cover(node.newer, key, klen, snapshot, steps)
    return found if found != NULL else node_cover(node.older, key, klen, snapshot, steps)


cdef const Span* tombstone_tree_cover(const TombstoneNode* head, const char* key, size_t klen, uint64_t snapshot,
                                      size_t* steps) noexcept nogil:
    cdef const Span* found
    while head != NULL:
        found = node_cover(head, key, klen, snapshot, steps)
        if found != NULL:
            return found
        head = head.before
    return NULL

from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from lsmkv_ext.port.coding cimport put_varint, varint_size
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.table.format cimport MIN_RANGE, range_decode

cdef enum:
    SPARSE_FROM = 64 << 10         # bytes of the section: a larger one is sparse
    SPARSE_SHIFT = 4               # then one in 2^4 has a place: at most RANGE_COST bytes each


# --- packing ---------------------------------------------------------------------------------------------------------

cdef inline bint _has_place(const Tombstones* s, uint64_t i) noexcept nogil:
    return i & ((1 << s.shift) - 1) == 0


cdef inline uint64_t _start_field(const Tombstones* s, uint64_t i, const RangeTombstone* r,
                                  const RangeTombstone* before) noexcept nogil:
    """Returns the packed start length of the i-th: 0 if it starts at the stop before it and has no place."""
    if not _has_place(s, i) and lsm_compare(r.start, r.start_len, before.stop, before.stop_len) == 0:
        return 0
    return r.start_len + 1


cdef size_t _packed_len(const Tombstones* s, const char* p, const char* end) noexcept nogil:
    cdef RangeTombstone r, before
    cdef uint64_t i, start
    cdef size_t size = 0
    memset(&before, 0, sizeof(before))
    for i in range(s.n):
        p = range_decode(p, end, &r)
        start = _start_field(s, i, &r, &before)
        size += varint_size(start) + varint_size(r.stop_len) + varint_size(r.seq - s.base) + r.stop_len
        size += start - 1 if start else 0
        before = r
    return size


cdef const char* tombstones_check(Tombstones* s, const char* p, size_t n, uint64_t count) noexcept nogil:
    cdef const char* raw = p
    cdef const char* end = p + n
    cdef RangeTombstone r, before
    cdef uint64_t i
    if count > n // MIN_RANGE:
        return "fewer range tombstones than the properties say"
    memset(&before, 0, sizeof(before))
    s.base = <uint64_t>-1
    for i in range(count):
        p = range_decode(p, end, &r)
        if p == NULL or lsm_compare(r.start, r.start_len, r.stop, r.stop_len) >= 0:
            return "malformed range tombstone"
        if i and lsm_compare(before.start, before.start_len, r.start, r.start_len) > 0:
            return "range tombstones out of order"
        if i and lsm_compare(before.stop, before.stop_len, r.start, r.start_len) > 0:
            s.overlap = True
        s.base = min(s.base, r.seq)
        before = r
    if p != end:
        return "extra bytes after the last range tombstone"
    s.n = <uint32_t>count
    s.shift = SPARSE_SHIFT if n > SPARSE_FROM else 0
    s.n_places = (s.n + (1 << s.shift) - 1) >> s.shift
    s.len = _packed_len(s, raw, end)
    return NULL


cdef void tombstones_pack(Tombstones* s, const char* p, size_t n) noexcept nogil:
    cdef const char* end = p + n
    cdef char* at = s.bytes
    cdef RangeTombstone r, before
    cdef uint64_t i, start
    memset(&before, 0, sizeof(before))
    for i in range(s.n):
        p = range_decode(p, end, &r)
        start = _start_field(s, i, &r, &before)
        if _has_place(s, i):
            s.places[i >> s.shift] = <uint32_t>(at - s.bytes)
        at = put_varint(put_varint(put_varint(at, start), r.stop_len), r.seq - s.base)
        if start:
            memcpy(at, r.start, r.start_len)
            at += r.start_len
        memcpy(at, r.stop, r.stop_len)
        at += r.stop_len
        before = r


# --- lookup ----------------------------------------------------------------------------------------------------------

cdef inline bint _starts_at_or_before(const char* p, const char* end, const char* key, size_t klen) noexcept nogil:
    """Returns whether the one at p, which has a place, starts at `key` or before it."""
    cdef RangeTombstone r
    cdef size_t n = <uint8_t>p[0]
    if (n | <uint8_t>p[1]) & 0x80:
        memset(&r, 0, sizeof(r))
        return tombstone_unpack(p, end, 0, &r) != NULL and lsm_compare(r.start, r.start_len, key, klen) <= 0
    # Lengths of one byte each, the usual case: skip the sequence number without decoding it.
    p += 2
    while <uint8_t>p[0] & 0x80:
        p += 1
    return lsm_compare(p + 1, n - 1, key, klen) <= 0


cdef uint64_t _cover_overlapping(const Tombstones* s, const char* key, size_t klen) noexcept nogil:
    """For overlapping ones: any that starts at `key` or before it may cover it."""
    cdef uint64_t newest = 0
    cdef RangeTombstone r
    cdef TombstoneWalk walk
    tombstone_walk_init(&walk, s)
    while tombstone_walk_next(&walk, &r) and lsm_compare(r.start, r.start_len, key, klen) <= 0:
        if r.seq > newest and lsm_compare(key, klen, r.stop, r.stop_len) < 0:
            newest = r.seq
    return newest


cdef uint64_t tombstones_cover(const Tombstones* s, const char* key, size_t klen) noexcept nogil:
    cdef const char* end = s.bytes + s.len
    cdef const char* p
    cdef uint32_t lo = 0, hi = s.n_places, mid
    cdef RangeTombstone r, found
    cdef int _i
    if s.overlap:
        return _cover_overlapping(s, key, klen)
    while lo < hi:                 # the first place that starts after key
        mid = (lo + hi) >> 1
        if _starts_at_or_before(s.bytes + s.places[mid], end, key, klen):
            lo = mid + 1
        else:
            hi = mid
    if lo == 0:
        return 0
    memset(&found, 0, sizeof(found))
    p = tombstone_unpack(s.bytes + s.places[lo - 1], end, s.base, &found)
    if p == NULL:                  # cannot happen: tombstones_pack wrote them
        return 0
    r = found
    for _i in range((1 << s.shift) - 1):
        if p == end:
            break
        p = tombstone_unpack(p, end, s.base, &r)
        if p == NULL or lsm_compare(r.start, r.start_len, key, klen) > 0:
            break
        found = r
    if lsm_compare(key, klen, found.stop, found.stop_len) >= 0:
        return 0
    return s.global_seq if s.global_seq else found.seq

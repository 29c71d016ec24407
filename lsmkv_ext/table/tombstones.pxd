# The range tombstones of an open table: packed, sorted by start, then newest first. A table may have hundreds of thousands, so
# each takes few bytes, and only every 2^shift-th has its offset in `places`, for the binary search.
#
# Packed: varint start length + 1, or 0 if it starts at the stop of the one before it, as most fragments do; varint stop
# length; varint sequence number - base; start, unless 0; stop.
#
# Immutable after tombstones_pack. The table owns the memory; walks and results borrow keys from it.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.port.coding cimport get_varint
from lsmkv_ext.table.format cimport RangeTombstone

ctypedef struct Tombstones:        # zeroed = none
    char* bytes                    # owned by the table
    size_t len
    uint32_t* places               # owned by the table; offsets in `bytes` of every 2^shift-th one
    uint32_t n_places
    uint32_t n
    uint32_t shift
    bint overlap                   # only in tables of an SSTWriter: flushes and compactions write fragments
    uint64_t base                  # the smallest of the sequence numbers
    uint64_t global_seq            # not 0: the sequence number of all

ctypedef struct TombstoneWalk:     # over all of them, in order
    const char* p
    const char* end
    uint64_t base
    uint64_t global_seq            # set it to 0 to see the sequence numbers as stored
    RangeTombstone last

# Checks the raw section p[:n] of `count` range tombstones and fills *s, except that the caller then allocates `places` (n_places)
# and `bytes` (len) and calls tombstones_pack. Returns NULL, or what is wrong.
cdef const char* tombstones_check(Tombstones* s, const char* p, size_t n, uint64_t count) noexcept nogil
cdef void tombstones_pack(Tombstones* s, const char* p, size_t n) noexcept nogil
# The newest sequence number over `key`, or 0.
cdef uint64_t tombstones_cover(const Tombstones* s, const char* key, size_t klen) noexcept nogil


cdef inline const char* tombstone_unpack(const char* p, const char* end, uint64_t base, RangeTombstone* r) noexcept nogil:
    """Decodes one into *r, which holds the one before it. Returns the byte after it, or NULL if it is malformed."""
    cdef uint64_t start_len, stop_len, seq
    p = get_varint(p, end, &start_len)
    if p != NULL:
        p = get_varint(p, end, &stop_len)
    if p != NULL:
        p = get_varint(p, end, &seq)
    if p == NULL or start_len > <uint64_t>(end - p) or stop_len > <uint64_t>(end - p) - (start_len - 1 if start_len else 0):
        return NULL
    if start_len == 0:
        r.start = r.stop
        r.start_len = r.stop_len
    else:
        r.start = p
        r.start_len = start_len - 1
        p += start_len - 1
    r.stop = p
    r.stop_len = stop_len
    r.seq = base + seq
    return p + stop_len


cdef inline void tombstone_walk_init(TombstoneWalk* w, const Tombstones* s) noexcept nogil:
    w.p = s.bytes
    w.end = s.bytes + s.len
    w.base = s.base
    w.global_seq = s.global_seq
    w.last.stop = NULL
    w.last.stop_len = 0


cdef inline bint tombstone_walk_next(TombstoneWalk* w, RangeTombstone* out) noexcept nogil:
    """Returns False past the last one."""
    if w.p == w.end:
        return False
    w.p = tombstone_unpack(w.p, w.end, w.base, &w.last)
    if w.p == NULL:                # cannot happen: tombstones_pack wrote them
        w.p = w.end
        return False
    out[0] = w.last
    if w.global_seq:
        out.seq = w.global_seq
    return True

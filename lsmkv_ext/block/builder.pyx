from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from lsmkv_ext.block.format cimport BLOCK_HAS_KINDS, BLOCK_MAX_SHIFT, BlockHeader, block_header_put, block_tag, lsm_width_mask
from lsmkv_ext.block.memory cimport BLOCK_SLACK
from lsmkv_ext.entry cimport ENTRY_DELETE, STORED_KINDS
from lsmkv_ext.port.coding cimport get_u64, put_u32, put_u64, put_varint
from lsmkv_ext.port.growable cimport buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_NO_MEMORY, ST_OK


cdef void block_builder_init(BlockBuilder* bb, uint32_t restart_interval) noexcept nogil:
    memset(bb, 0, sizeof(BlockBuilder))
    while bb.shift < BLOCK_MAX_SHIFT and (<uint32_t>2 << bb.shift) <= restart_interval:
        bb.shift += 1
    block_builder_reset(bb)


cdef void block_builder_free(BlockBuilder* bb) noexcept nogil:
    buf_free(&bb.keys)
    buf_free(&bb.values)
    buf_free(&bb.tags)
    buf_free(&bb.kinds)
    buf_free(&bb.restarts)
    buf_free(&bb.ends)
    buf_free(&bb.seqs)
    buf_free(&bb.last)
    buf_free(&bb.raw)


cdef void block_builder_reset(BlockBuilder* bb) noexcept nogil:
    bb.n_entries = 0
    bb.min_seq = <uint64_t>-1
    bb.max_seq = 0
    bb.keys.len = 0
    bb.values.len = 0
    bb.tags.len = 0
    bb.kinds.len = 0
    bb.any_kind = 0
    bb.restarts.len = 0
    bb.ends.len = 0
    bb.seqs.len = 0
    bb.last.len = 0
    bb.raw.len = 0


cdef inline size_t _shared(const char* a, size_t an, const char* b, size_t bn) noexcept nogil:
    cdef size_t n = an if an < bn else bn
    cdef size_t i = 0
    while i + 8 <= n and get_u64(a + i) == get_u64(b + i):
        i += 8
    while i < n and a[i] == b[i]:
        i += 1
    return i


cdef int block_builder_add(BlockBuilder* bb, const char* key, size_t klen, const char* val, size_t vlen,
                           uint64_t seq, int kind, uint64_t hash) noexcept nogil:
    cdef size_t shared = 0
    cdef uint64_t bits = seq << 1 | <uint64_t>(kind == ENTRY_DELETE)
    cdef uint8_t stored = kind & STORED_KINDS
    cdef uint8_t tag = block_tag(hash)
    cdef uint32_t at = <uint32_t>bb.keys.len
    cdef char* p
    if not bb.n_entries & ((1 << bb.shift) - 1):
        if buf_append(&bb.restarts, &at, 4) != 0:
            return ST_NO_MEMORY
    else:
        shared = _shared(bb.last.data, bb.last.len, key, klen)
    if buf_reserve(&bb.keys, klen - shared + 20) != 0 or buf_append(&bb.values, val, vlen) != 0:
        return ST_NO_MEMORY
    at = <uint32_t>bb.values.len
    if buf_append(&bb.ends, &at, 4) != 0:
        return ST_NO_MEMORY
    if buf_append(&bb.tags, &tag, 1) != 0 or buf_append(&bb.kinds, &stored, 1) != 0 or buf_append(&bb.seqs, &bits, 8) != 0:
        return ST_NO_MEMORY
    if buf_assign(&bb.last, key, klen) != 0:
        return ST_NO_MEMORY
    p = bb.keys.data + bb.keys.len
    p = put_varint(p, shared)
    p = put_varint(p, klen - shared)
    if klen > shared:
        memcpy(p, key + shared, klen - shared)
    bb.keys.len = <size_t>(p - bb.keys.data) + klen - shared
    bb.min_seq = min(bb.min_seq, seq)
    bb.max_seq = max(bb.max_seq, seq)
    bb.any_kind |= stored
    bb.n_entries += 1
    return ST_OK


cdef uint32_t _seq_width(const BlockBuilder* bb) noexcept nogil:
    cdef const uint64_t* seqs = <const uint64_t*>bb.seqs.data
    cdef uint64_t largest = 0
    cdef uint32_t width = 0
    cdef uint32_t i
    for i in range(bb.n_entries):
        largest = max(largest, seqs[i] - (bb.min_seq << 1))
    while width < 8 and largest > lsm_width_mask(width):
        width += 1
    return width


cdef void _put_offsets(GrowBuf* raw, const GrowBuf* offsets, uint32_t width) noexcept nogil:
    cdef size_t i
    for i in range(offsets.len // 4):
        memcpy(raw.data + raw.len, offsets.data + 4 * i, width)
        raw.len += width


cdef int _finish(BlockBuilder* bb, size_t values_len) noexcept nogil:
    cdef const uint64_t* seqs = <const uint64_t*>bb.seqs.data
    cdef BlockHeader h
    cdef GrowBuf finished
    cdef uint32_t i
    h.base_seq = bb.min_seq
    h.n_entries = bb.n_entries
    h.keys_len = <uint32_t>bb.keys.len
    h.values_len = <uint32_t>values_len
    h.shift = <uint8_t>bb.shift
    h.seq_width = <uint8_t>_seq_width(bb)
    h.offset_width = 2 if bb.keys.len <= 0xFFFF and values_len <= 0xFFFF else 4
    h.flags = BLOCK_HAS_KINDS if bb.any_kind else 0
    # Values come first, so the rest follows them in their own buffer. The slack is for the frame's trailer.
    if buf_reserve(&bb.values, bb.keys.len + 14 * <size_t>bb.n_entries + bb.restarts.len + BLOCK_HEADER_SIZE + BLOCK_SLACK) != 0:
        return ST_NO_MEMORY
    finished = bb.values
    buf_append(&finished, bb.keys.data, bb.keys.len)
    for i in range(bb.n_entries):
        put_u64(finished.data + finished.len, seqs[i] - (bb.min_seq << 1))
        finished.len += h.seq_width
    _put_offsets(&finished, &bb.ends, h.offset_width)
    _put_offsets(&finished, &bb.restarts, h.offset_width)
    if bb.any_kind:
        buf_append(&finished, bb.kinds.data, bb.kinds.len)
    buf_append(&finished, bb.tags.data, bb.tags.len)
    block_header_put(finished.data + finished.len, &h)
    finished.len += BLOCK_HEADER_SIZE
    bb.values = bb.raw
    bb.raw = finished
    return ST_OK


cdef int block_builder_finish(BlockBuilder* bb) noexcept nogil:
    return _finish(bb, bb.values.len)


cdef int block_builder_alone(BlockBuilder* bb, const char* key, size_t klen, size_t vlen, uint64_t seq, int kind,
                             uint64_t hash) noexcept nogil:
    if block_builder_add(bb, key, klen, NULL, 0, seq, kind, hash) != ST_OK:
        return ST_NO_MEMORY
    put_u32(bb.ends.data, <uint32_t>vlen)
    return _finish(bb, vlen)

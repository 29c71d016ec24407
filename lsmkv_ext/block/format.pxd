# The bytes of a data block, for its builder and its readers. Byte grid: docs/format.md, "Data block". Sorted entries with prefix
# compression and restart points, and one tag byte per entry, from the key's hash: a point read needs no binary search.
#
#   values | keys | sequence numbers | value ends | restarts | entry kinds (if any is not 0) | tags | header
#   key entry: varint shared, varint unshared, suffix
#   restarts and value ends: 2 bytes each, or 4 if a section is longer than 65535
#   sequence number: (seq - base seq) << 1 | is_delete in the fewest bytes that hold the block's largest
#
# Keys and values are separate sections: once a tag matches, the value is prefetched while the key is compared, and the comparison
# reads adjacent keys only. The small sections come last, next to the struct, where one prefetch reaches them all. Values come
# first because they compress better there: LZ4 takes larger and larger steps through bytes that do not repeat, like keys and
# tags, and would miss the first repeats of the values.
#
# All inline: a get and an iterator step call several of these per entry.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from lsmkv_ext.block.memory cimport BlockC
from lsmkv_ext.entry cimport ENTRY_DELETE
from lsmkv_ext.port.atomics cimport lsm_likely, lsm_unlikely
from lsmkv_ext.port.coding cimport get_u16, get_u32, get_u64, get_varint, put_u32, put_u64

cdef enum:
    BLOCK_HEADER_SIZE = 24
    BLOCK_MAX_SHIFT = 6            # restart interval at most 64
    RUN_MAX = 64                   # entries of a restart run
    BLOCK_HAS_KINDS = 1            # flag in the header: the block has entry kinds

cdef extern from * nogil:
    """
    #ifndef LSMKV_BLOCK_FORMAT_H
    #define LSMKV_BLOCK_FORMAT_H
    #include <stdint.h>
    #include <string.h>
    static inline void lsm_copy16(char* d, const char* s) { memcpy(d, s, 16); }
    static inline uint64_t lsm_width_mask(uint32_t w) { return w >= 8 ? ~0ull : (1ull << (8 * w)) - 1; }
    #endif
    """
    void lsm_copy16(char* d, const char* s) noexcept
    uint64_t lsm_width_mask(uint32_t w) noexcept

ctypedef struct BlockHeader:
    uint64_t base_seq              # smallest sequence number
    uint32_t n_entries
    uint32_t keys_len, values_len
    uint8_t shift                  # log2 of the restart interval
    uint8_t seq_width
    uint8_t offset_width           # 2 or 4
    uint8_t flags

ctypedef struct KeyHead:           # the two lengths in front of a key suffix
    uint64_t shared
    uint64_t unshared


cdef inline void block_header_put(char* p, const BlockHeader* h) noexcept nogil:
    memset(p, 0, BLOCK_HEADER_SIZE)
    put_u64(p, h.base_seq)
    put_u32(p + 8, h.n_entries)
    put_u32(p + 12, h.keys_len)
    put_u32(p + 16, h.values_len)
    p[20] = <char>h.shift
    p[21] = <char>h.seq_width
    p[22] = <char>h.offset_width
    p[23] = <char>h.flags


cdef inline bint block_header_get(const char* p, BlockHeader* h) noexcept nogil:
    """Returns False if a field has an impossible value."""
    h.base_seq = get_u64(p)
    h.n_entries = get_u32(p + 8)
    h.keys_len = get_u32(p + 12)
    h.values_len = get_u32(p + 16)
    h.shift = <uint8_t>p[20]
    h.seq_width = <uint8_t>p[21]
    h.offset_width = <uint8_t>p[22]
    h.flags = <uint8_t>p[23]
    return (h.n_entries != 0 and h.shift <= BLOCK_MAX_SHIFT and h.seq_width <= 8
            and (h.offset_width == 2 or h.offset_width == 4) and h.flags <= BLOCK_HAS_KINDS)


cdef inline uint8_t block_tag(uint64_t hash) noexcept nogil:
    return <uint8_t>(hash >> 56)


cdef inline const char* key_head_checked(const char* p, const char* end, KeyHead* h) noexcept nogil:
    """Returns the suffix, or NULL if the lengths run past `end`."""
    cdef uint32_t x
    h.shared = 0
    h.unshared = 0
    if end - p >= 2:
        x = get_u16(p)
        if not x & 0x8080:
            h.shared = x & 0xFF
            h.unshared = x >> 8
            return p + 2
    p = get_varint(p, end, &h.shared)
    if p != NULL:
        p = get_varint(p, end, &h.unshared)
    return p


# --- a checked block: no bounds checks --------------------------------------------------------------------------------

cdef inline const char* _varint(const char* p, uint64_t* out) noexcept nogil:
    cdef uint64_t v = <uint8_t>p[0] & 0x7F
    cdef int shift = 7
    while <uint8_t>p[0] & 0x80:
        p += 1
        v |= <uint64_t>(<uint8_t>p[0] & 0x7F) << shift
        shift += 7
    out[0] = v
    return p + 1


cdef inline const char* key_head(const char* p, KeyHead* h) noexcept nogil:
    """Returns the suffix."""
    cdef uint32_t x = get_u16(p)
    if not x & 0x8080:
        h.shared = x & 0xFF
        h.unshared = x >> 8
        return p + 2
    p = _varint(p, &h.shared)
    return _varint(p, &h.unshared)


cdef inline uint32_t _offset(const BlockC* b, uint32_t array_at, uint32_t i) noexcept nogil:
    if lsm_unlikely(b.wide):
        return get_u32(b.data + array_at + 4 * <size_t>i)
    return get_u16(b.data + array_at + 2 * <size_t>i)


cdef inline uint32_t value_start(const BlockC* b, uint32_t i) noexcept nogil:
    return _offset(b, b.ends_at, i - 1) if i else 0


cdef inline uint32_t value_end(const BlockC* b, uint32_t i) noexcept nogil:
    return _offset(b, b.ends_at, i)


cdef inline uint32_t restart_at(const BlockC* b, uint32_t r) noexcept nogil:
    return _offset(b, b.restarts_at, r)


cdef inline uint32_t n_restarts(const BlockC* b) noexcept nogil:
    return ((b.n_entries - 1) >> b.shift) + 1


cdef inline uint64_t seq_bits(const BlockC* b, uint32_t i) noexcept nogil:
    """(seq - base seq) << 1 | is_delete."""
    return get_u64(b.data + b.seqs_at + <size_t>i * b.seq_width) & lsm_width_mask(b.seq_width)


cdef inline const uint8_t* kinds_of(const BlockC* b) noexcept nogil:
    """The entry kinds of a block that has them."""
    return <const uint8_t*>b.data + b.tags_at - b.n_entries


cdef inline int kind_at(const BlockC* b, uint32_t i, uint64_t bits) noexcept nogil:
    """The kind of entry i; `bits` are its seq_bits."""
    cdef int kind = ENTRY_DELETE if bits & 1 else 0
    return kind if lsm_likely(not b.has_kinds) else kind | kinds_of(b)[i]


cdef inline void copy_suffix(char* to, const char* suffix, size_t n) noexcept nogil:
    """May read and write up to 16 bytes past n: blocks and key buffers have slack."""
    if n <= 16:
        lsm_copy16(to, suffix)
    else:
        memcpy(to, suffix, n)

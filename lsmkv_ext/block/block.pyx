from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.growable cimport buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.coding cimport get_u16, get_u32, get_u64, get_varint, put_u32, put_u64, put_varint
from lsmkv_ext.port.slab cimport SLAB_MAX, slab_alloc, slab_free
from lsmkv_ext.port.status cimport ST_NO_MEMORY, ST_OK
from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.atomics cimport lsm_prefetch, lsm_unlikely

cdef extern from * nogil:
    """
    #include <stddef.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    static inline uint32_t lsm_tag_mask(const uint8_t* p, uint8_t tag) {
        __m128i v = _mm_loadu_si128((const __m128i*)p);
        return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8((char)tag)));
    }
    #else
    #define lsm_tag_mask lsm_tag_mask_portable
    #endif
    static inline uint32_t lsm_tag_mask_portable(const uint8_t* p, uint8_t tag) {
        uint32_t m = 0;
        for (int i = 0; i < 16; i++) m |= (uint32_t)(p[i] == tag) << i;
        return m;
    }
    static inline int lsm_ctz(uint32_t m) { return __builtin_ctz(m); }
    static inline void lsm_copy16(char* d, const char* s) { memcpy(d, s, 16); }
    static inline uint64_t lsm_width_mask(uint32_t w) { return w >= 8 ? ~0ull : (1ull << (8 * w)) - 1; }
    """
    unsigned int lsm_tag_mask(const uint8_t* p, uint8_t tag) noexcept
    unsigned int lsm_tag_mask_portable(const uint8_t* p, uint8_t tag) noexcept
    int lsm_ctz(unsigned int m) noexcept
    void lsm_copy16(char* d, const char* s) noexcept
    uint64_t lsm_width_mask(uint32_t w) noexcept

cdef enum:
    NO_RUN = 0xFFFFFFFF
    RUN_MAX = 64
    MALLOC_OVERHEAD = 16

ctypedef struct KeyHead:           # the two lengths in front of a key suffix
    uint64_t shared
    uint64_t unshared


cdef inline const char* _varint(const char* p, uint64_t* out) noexcept nogil:
    """Of a checked block: no bounds."""
    cdef uint64_t v = <uint8_t>p[0] & 0x7F
    cdef int shift = 7
    while <uint8_t>p[0] & 0x80:
        p += 1
        v |= <uint64_t>(<uint8_t>p[0] & 0x7F) << shift
        shift += 7
    out[0] = v
    return p + 1


cdef inline const char* _head(const char* p, KeyHead* h) noexcept nogil:
    """Of a checked block: no bounds."""
    cdef uint32_t x = get_u16(p)
    if not x & 0x8080:
        h.shared = x & 0xFF
        h.unshared = x >> 8
        return p + 2
    p = _varint(p, &h.shared)
    return _varint(p, &h.unshared)


cdef inline const char* _head_checked(const char* p, const char* end, KeyHead* h) noexcept nogil:
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


cdef inline uint32_t _offset(const BlockC* b, uint32_t array_at, uint32_t i) noexcept nogil:
    if lsm_unlikely(b.wide):
        return get_u32(b.data + array_at + 4 * <size_t>i)
    return get_u16(b.data + array_at + 2 * <size_t>i)


cdef inline uint32_t _value_start(const BlockC* b, uint32_t i) noexcept nogil:
    return _offset(b, b.ends_at, i - 1) if i else 0


cdef inline uint32_t _value_end(const BlockC* b, uint32_t i) noexcept nogil:
    return _offset(b, b.ends_at, i)


cdef inline uint32_t _restart(const BlockC* b, uint32_t r) noexcept nogil:
    return _offset(b, b.restarts_at, r)


cdef inline uint64_t _seq_bits(const BlockC* b, uint32_t i) noexcept nogil:
    return get_u64(b.data + b.seqs_at + <size_t>i * b.seq_width) & lsm_width_mask(b.seq_width)


cdef inline void _copy_suffix(char* to, const char* suffix, size_t n) noexcept nogil:
    """May read and write up to 16 bytes past n: blocks and key buffers have slack."""
    if n <= 16:
        lsm_copy16(to, suffix)
    else:
        memcpy(to, suffix, n)


cdef inline uint32_t _n_restarts(const BlockC* b) noexcept nogil:
    return ((b.n_entries - 1) >> b.shift) + 1


# --- memory and checks ------------------------------------------------------------------------------------------------

cdef BlockC* block_alloc(size_t raw_size, bint pooled) noexcept nogil:
    cdef size_t padded = (raw_size + 15) & ~<size_t>15
    cdef size_t size = padded + sizeof(BlockC) + BLOCK_SLACK
    cdef size_t got = size + MALLOC_OVERHEAD
    cdef char* alloc
    cdef BlockC* b
    if raw_size > BLOCK_MAX_RAW:
        return NULL
    pooled = pooled and size <= SLAB_MAX
    alloc = <char*>(slab_alloc(size, &got) if pooled else malloc(size))
    if alloc == NULL:
        return NULL
    b = <BlockC*>(alloc + padded)
    memset(b, 0, sizeof(BlockC) + BLOCK_SLACK)
    b.alloc = alloc
    b.pooled = pooled
    b.data = alloc + (padded - raw_size)
    b.pins = 1
    b.segment = SEG_PRIVATE
    b.raw_size = <uint32_t>raw_size
    b.charge = got
    return b


cdef void block_free(BlockC* b) noexcept nogil:
    if b == NULL:
        return
    if b.pooled:
        slab_free(b.alloc)
    else:
        free(b.alloc)


cdef const char* block_check(BlockC* b) noexcept nogil:
    cdef const char* h = b.data + b.raw_size - BLOCK_HEADER_SIZE
    cdef uint64_t keys_len, values_len, width, total
    if b.raw_size < BLOCK_HEADER_SIZE:
        return "block shorter than its header"
    b.base_seq = get_u64(h)
    b.n_entries = get_u32(h + 8)
    keys_len = get_u32(h + 12)
    values_len = get_u32(h + 16)
    b.shift = <uint8_t>h[20]
    b.seq_width = <uint8_t>h[21]
    width = <uint8_t>h[22]
    b.wide = width == 4
    if b.n_entries == 0 or b.shift > BLOCK_MAX_SHIFT or b.seq_width > 8 or (width != 2 and width != 4) or h[23] != 0:
        return "impossible block header"
    total = values_len + keys_len + <uint64_t>b.n_entries * (b.seq_width + width + 1) + width * _n_restarts(b)
    if total + BLOCK_HEADER_SIZE != b.raw_size:
        return "block sections do not add up to its size"
    b.keys_at = <uint32_t>values_len
    b.seqs_at = <uint32_t>(b.keys_at + keys_len)
    b.ends_at = b.seqs_at + b.n_entries * b.seq_width
    b.restarts_at = b.ends_at + b.n_entries * <uint32_t>width
    b.tags_at = b.restarts_at + _n_restarts(b) * <uint32_t>width
    return _check_entries(b, b.data + b.keys_at, b.data + b.seqs_at, values_len)


cdef const char* _check_entries(BlockC* b, const char* p, const char* end, uint64_t values_len) noexcept nogil:
    cdef const char* keys = p
    cdef KeyHead h
    cdef uint64_t klen = 0, longest = 0
    cdef uint32_t v = 0, value_end
    cdef uint32_t i
    cdef uint32_t mask = (1 << b.shift) - 1
    for i in range(b.n_entries):
        if not i & mask:
            if _restart(b, i >> b.shift) != <uint64_t>(p - keys):
                return "restart point does not point at its entry"
            klen = 0
        p = _head_checked(p, end, &h)
        if p == NULL or h.shared > klen or h.unshared > <uint64_t>(end - p):
            return "key runs out of its block"
        klen = h.shared + h.unshared
        if klen > MAX_KEY:
            return "key longer than the limit"
        value_end = _value_end(b, i)
        if value_end < v:
            return "value ends before it starts"
        p += h.unshared
        v = value_end
        if klen > longest:
            longest = klen
    if p != end or v != values_len:
        return "bytes behind the last entry of a block"
    b.max_klen = <uint16_t>longest
    return NULL


# --- point read -------------------------------------------------------------------------------------------------------

cdef int _match(const BlockC* b, uint32_t i, const char* key, size_t klen, Entry* out) noexcept nogil:
    """Whether entry i has this key: walk the lengths from the restart point, then compare suffixes backwards."""
    cdef KeyHead heads[RUN_MAX]
    cdef const char* suffixes[RUN_MAX]
    cdef const char* d = b.data
    cdef uint32_t r = i >> b.shift
    cdef uint32_t last = i & ((1 << b.shift) - 1)
    cdef const char* p = d + b.keys_at + _restart(b, r)
    cdef uint32_t v = _value_start(b, i)
    cdef uint64_t upto, bits
    cdef uint32_t j
    # The value is most likely wanted, and its line comes from memory while the keys are compared.
    lsm_prefetch(d + v)
    lsm_prefetch(p + 64)
    bits = _seq_bits(b, i)
    for j in range(last + 1):
        p = _head(p, &heads[j])
        suffixes[j] = p
        p += heads[j].unshared
    if heads[last].shared + heads[last].unshared != klen:
        return 0
    upto = klen
    j = last
    while True:
        if heads[j].shared < upto:
            if memcmp(suffixes[j], key + heads[j].shared, upto - heads[j].shared) != 0:
                return 0
            upto = heads[j].shared
        if upto == 0:
            break
        j -= 1
    out.key = NULL
    out.klen = klen
    out.vlen = _value_end(b, i) - v
    out.value = d + v
    out.seq = b.base_seq + (bits >> 1)
    out.is_delete = bits & 1
    return 1


cdef int block_get(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil:
    cdef const uint8_t* tags = <const uint8_t*>b.data + b.tags_at
    cdef uint8_t tag = block_tag(hash)
    cdef uint32_t at, i
    cdef unsigned int m
    for at in range(0, b.n_entries, 16):
        m = lsm_tag_mask(tags + at, tag)
        while m:
            i = at + lsm_ctz(m)
            if i >= b.n_entries:
                return 0
            if _match(b, i, key, klen, out):
                return 1
            m &= m - 1
    return 0


cdef void block_prefetch(const BlockC* b, uint64_t hash) noexcept nogil:
    cdef const uint8_t* tags = <const uint8_t*>b.data + b.tags_at
    cdef uint8_t tag = block_tag(hash)
    cdef const char* value
    cdef uint32_t at, i
    cdef unsigned int m
    for at in range(0, b.n_entries, 16):
        m = lsm_tag_mask(tags + at, tag)
        if m:
            i = at + lsm_ctz(m)
            if i < b.n_entries:
                value = b.data + _value_start(b, i)
                lsm_prefetch(b.data + b.keys_at + _restart(b, i >> b.shift))
                lsm_prefetch(value)
                lsm_prefetch(value + 64)
            return


cdef int block_get_portable(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil:
    cdef const uint8_t* tags = <const uint8_t*>b.data + b.tags_at
    cdef uint8_t tag = block_tag(hash)
    cdef uint32_t at, i
    cdef unsigned int m
    for at in range(0, b.n_entries, 16):
        m = lsm_tag_mask_portable(tags + at, tag)
        for i in range(16):
            if m >> i & 1 and at + i < b.n_entries and _match(b, at + i, key, klen, out):
                return 1
    return 0


cdef uint64_t block_hash_keys(const BlockC* b, uint64_t seed, char* kbuf, uint64_t* out) noexcept nogil:
    cdef const char* p = b.data + b.keys_at
    cdef KeyHead h
    cdef uint64_t total = 0
    cdef uint32_t i
    for i in range(b.n_entries):
        p = _head(p, &h)
        _copy_suffix(kbuf + h.shared, p, h.unshared)
        p += h.unshared
        out[i] = xxh3(kbuf, h.shared + h.unshared, seed)
        total += h.shared + h.unshared
    return total


# --- iterator ---------------------------------------------------------------------------------------------------------

cdef void block_iter_init(BlockIter* it) noexcept nogil:
    memset(it, 0, sizeof(BlockIter))
    it.run = NO_RUN


cdef void block_iter_close(BlockIter* it) noexcept nogil:
    free(it.kbuf)
    free(it.runs)
    free(it.run_keys)
    block_iter_init(it)


cdef int block_iter_set(BlockIter* it, const BlockC* b) noexcept nogil:
    cdef size_t want = <size_t>b.max_klen + BLOCK_SLACK
    cdef char* moved
    if it.kcap < want:
        moved = <char*>realloc(it.kbuf, want)
        if moved == NULL:
            return ST_NO_MEMORY
        it.kbuf = moved
        it.kcap = want
    it.block = b
    it.valid = 0
    it.forward = 0
    it.run = NO_RUN
    return ST_OK


cdef inline void _decode_at(BlockIter* it) noexcept nogil:
    """The entry at next_key becomes the current one; kbuf holds the key before it."""
    cdef const BlockC* b = it.block
    cdef KeyHead h
    cdef const char* p = _head(it.next_key, &h)
    cdef uint64_t bits = _seq_bits(b, it.index)
    _copy_suffix(it.kbuf + h.shared, p, h.unshared)
    it.entry.key = it.kbuf
    it.entry.klen = h.shared + h.unshared
    it.entry.value = it.next_value
    it.entry.seq = b.base_seq + (bits >> 1)
    it.entry.is_delete = bits & 1
    it.next_key = p + h.unshared
    it.next_value = b.data + _value_end(b, it.index)
    it.entry.vlen = <size_t>(it.next_value - it.entry.value)


cdef inline void _at_restart(BlockIter* it, uint32_t r) noexcept nogil:
    cdef const char* d = it.block.data
    it.index = r << it.block.shift
    it.next_key = d + it.block.keys_at + _restart(it.block, r)
    it.next_value = d + _value_start(it.block, it.index)
    it.forward = 1
    it.valid = 1


cdef void block_iter_first(BlockIter* it) noexcept nogil:
    _at_restart(it, 0)
    _decode_at(it)


cdef void block_iter_next(BlockIter* it) noexcept nogil:
    cdef uint32_t target
    if not it.forward:
        # Came here by prev: walk up to where this entry ends.
        target = it.index
        _at_restart(it, target >> it.block.shift)
        _decode_at(it)
        while it.index < target:
            it.index += 1
            _decode_at(it)
    it.index += 1
    if it.index >= it.block.n_entries:
        it.valid = 0
        return
    _decode_at(it)


cdef void block_iter_seek(BlockIter* it, const char* key, size_t klen) noexcept nogil:
    cdef const BlockC* b = it.block
    cdef const char* keys = b.data + b.keys_at
    cdef const char* p
    cdef KeyHead h
    cdef uint32_t low = 0
    cdef uint32_t high = _n_restarts(b)
    cdef uint32_t mid
    # The last restart point whose key is smaller: the answer stands behind it, or it is the first entry.
    while high - low > 1:
        mid = low + (high - low) // 2
        p = _head(keys + _restart(b, mid), &h)
        if lsm_compare(p, h.unshared, key, klen) < 0:
            low = mid
        else:
            high = mid
    _at_restart(it, low)
    _decode_at(it)
    while lsm_compare(it.entry.key, it.entry.klen, key, klen) < 0:
        it.index += 1
        if it.index >= b.n_entries:
            it.valid = 0
            return
        _decode_at(it)


cdef int _decode_run(BlockIter* it, uint32_t r) noexcept nogil:
    cdef const BlockC* b = it.block
    cdef const char* d = b.data
    cdef uint32_t first = r << b.shift
    cdef uint32_t n = min(<uint32_t>(1 << b.shift), b.n_entries - first)
    cdef size_t want = n * <size_t>b.max_klen + BLOCK_SLACK
    cdef const char* p = d + b.keys_at + _restart(b, r)
    cdef uint32_t v = _value_start(b, first)
    cdef KeyHead h
    cdef RunEntry* e
    cdef size_t at = 0, before = 0
    cdef uint64_t bits
    cdef uint32_t i
    if it.runs == NULL:
        it.runs = <RunEntry*>malloc(RUN_MAX * sizeof(RunEntry))
        if it.runs == NULL:
            return ST_NO_MEMORY
    if it.run_keys_cap < want:
        free(it.run_keys)
        it.run_keys_cap = 0
        it.run_keys = <char*>malloc(want)
        if it.run_keys == NULL:
            return ST_NO_MEMORY
        it.run_keys_cap = want
    for i in range(n):
        e = &it.runs[i]
        p = _head(p, &h)
        if h.shared:
            memcpy(it.run_keys + at, it.run_keys + before, h.shared)
        _copy_suffix(it.run_keys + at + h.shared, p, h.unshared)
        bits = _seq_bits(b, first + i)
        e.key_at = at
        e.klen = h.shared + h.unshared
        e.value = d + v
        e.vlen = _value_end(b, first + i) - v
        e.seq = b.base_seq + (bits >> 1)
        e.is_delete = bits & 1
        before = at
        at += e.klen
        p += h.unshared
        v += <uint32_t>e.vlen
    it.run = r
    return ST_OK


cdef int _from_run(BlockIter* it, uint32_t i) noexcept nogil:
    """Stands on entry i with the forward position lost."""
    cdef const BlockC* b = it.block
    cdef RunEntry* e
    it.forward = 0
    if it.run != i >> b.shift and _decode_run(it, i >> b.shift) != ST_OK:
        it.valid = 0
        return ST_NO_MEMORY
    e = &it.runs[i & ((1 << b.shift) - 1)]
    it.index = i
    it.entry.key = it.run_keys + e.key_at
    it.entry.klen = e.klen
    it.entry.value = e.value
    it.entry.vlen = e.vlen
    it.entry.seq = e.seq
    it.entry.is_delete = e.is_delete
    it.valid = 1
    return ST_OK


cdef int block_iter_last(BlockIter* it) noexcept nogil:
    return _from_run(it, it.block.n_entries - 1)


cdef int block_iter_prev(BlockIter* it) noexcept nogil:
    if it.index == 0:
        it.valid = 0
        return ST_OK
    return _from_run(it, it.index - 1)


# --- builder ----------------------------------------------------------------------------------------------------------

cdef void block_builder_init(BlockBuilder* bb, uint32_t restart_interval) noexcept nogil:
    memset(bb, 0, sizeof(BlockBuilder))
    while bb.shift < BLOCK_MAX_SHIFT and (<uint32_t>2 << bb.shift) <= restart_interval:
        bb.shift += 1
    block_builder_reset(bb)


cdef void block_builder_free(BlockBuilder* bb) noexcept nogil:
    buf_free(&bb.keys)
    buf_free(&bb.values)
    buf_free(&bb.tags)
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
                           uint64_t seq, int is_delete, uint64_t hash) noexcept nogil:
    cdef size_t shared = 0
    cdef uint64_t bits = seq << 1 | <uint64_t>(is_delete != 0)
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
    if buf_append(&bb.tags, &tag, 1) != 0 or buf_append(&bb.seqs, &bits, 8) != 0:
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
    cdef char head[BLOCK_HEADER_SIZE]
    cdef const uint64_t* seqs = <const uint64_t*>bb.seqs.data
    cdef uint32_t width = _seq_width(bb)
    cdef uint32_t offset_width = 2 if bb.keys.len <= 0xFFFF and values_len <= 0xFFFF else 4
    cdef GrowBuf finished
    cdef size_t rest
    cdef uint32_t i
    memset(head, 0, BLOCK_HEADER_SIZE)
    put_u64(head, bb.min_seq)
    put_u32(head + 8, bb.n_entries)
    put_u32(head + 12, <uint32_t>bb.keys.len)
    put_u32(head + 16, <uint32_t>values_len)
    head[20] = <char>bb.shift
    head[21] = <char>width
    head[22] = <char>offset_width
    # Values come first, so the rest just follows them in their own buffer. Behind it stands the frame's trailer.
    rest = bb.keys.len + 13 * <size_t>bb.n_entries + bb.restarts.len + BLOCK_HEADER_SIZE + BLOCK_SLACK
    if buf_reserve(&bb.values, rest) != 0:
        return ST_NO_MEMORY
    finished = bb.values
    buf_append(&finished, bb.keys.data, bb.keys.len)
    for i in range(bb.n_entries):
        put_u64(finished.data + finished.len, seqs[i] - (bb.min_seq << 1))
        finished.len += width
    _put_offsets(&finished, &bb.ends, offset_width)
    _put_offsets(&finished, &bb.restarts, offset_width)
    buf_append(&finished, bb.tags.data, bb.tags.len)
    buf_append(&finished, head, BLOCK_HEADER_SIZE)
    bb.values = bb.raw
    bb.raw = finished
    return ST_OK


cdef int block_builder_finish(BlockBuilder* bb) noexcept nogil:
    return _finish(bb, bb.values.len)


cdef int block_builder_alone(BlockBuilder* bb, const char* key, size_t klen, size_t vlen, uint64_t seq, int is_delete,
                             uint64_t hash) noexcept nogil:
    if block_builder_add(bb, key, klen, NULL, 0, seq, is_delete, hash) != ST_OK:
        return ST_NO_MEMORY
    put_u32(bb.ends.data, <uint32_t>vlen)
    return _finish(bb, vlen)


# --- Python: a block by itself, for the tool and for tests ------------------------------------------------------------

def build_block(entries, restart_interval=8):
    """Raw block from (key, value, seq, is_delete, hash), in key order."""
    cdef BlockBuilder bb
    cdef bytes key, value
    block_builder_init(&bb, restart_interval)
    try:
        for key, value, seq, is_delete, hash in entries:
            if block_builder_add(&bb, key, len(key), value, len(value), seq, is_delete, hash) != ST_OK:
                raise MemoryError("block")
        if block_builder_finish(&bb) != ST_OK:
            raise MemoryError("block")
        return bb.raw.data[:bb.raw.len]
    finally:
        block_builder_free(&bb)


cdef class BlockView:
    """Raw block bytes, checked: ValueError says what is wrong with them."""

    cdef BlockC* b
    cdef BlockIter it

    def __cinit__(self, bytes raw not None):
        cdef const char* problem
        block_iter_init(&self.it)
        self.b = block_alloc(len(raw), False)
        if self.b == NULL:
            raise MemoryError("block")
        memcpy(self.b.data, <const char*>raw, len(raw))
        problem = block_check(self.b)
        if problem != NULL:
            raise ValueError(problem.decode())
        if block_iter_set(&self.it, self.b) != ST_OK:
            raise MemoryError("block")

    def __dealloc__(self):
        block_iter_close(&self.it)
        block_free(self.b)

    def __len__(self):
        return self.b.n_entries

    @property
    def restart_interval(self):
        return 1 << self.b.shift

    @property
    def seq_width(self):
        return self.b.seq_width

    def tags(self):
        return self.b.data[self.b.tags_at:self.b.tags_at + self.b.n_entries]

    cdef object _entry(self):
        cdef Entry* e = &self.it.entry
        if not self.it.valid:
            return None
        return e.key[:e.klen], e.value[:e.vlen], e.seq, bool(e.is_delete)

    def first(self):
        block_iter_first(&self.it)
        return self._entry()

    def last(self):
        if block_iter_last(&self.it) != ST_OK:
            raise MemoryError("block")
        return self._entry()

    def seek(self, bytes key not None):
        """The first entry >= key, or None."""
        block_iter_seek(&self.it, key, len(key))
        return self._entry()

    def next(self):
        if not self.it.valid:
            raise ValueError("the block iterator stands on no entry")
        block_iter_next(&self.it)
        return self._entry()

    def prev(self):
        if not self.it.valid:
            raise ValueError("the block iterator stands on no entry")
        if block_iter_prev(&self.it) != ST_OK:
            raise MemoryError("block")
        return self._entry()

    def get(self, bytes key not None, hash, *, portable=False):
        """(value, seq, is_delete) or None."""
        cdef Entry e
        cdef int found
        if portable:
            found = block_get_portable(self.b, key, len(key), hash, &e)
        else:
            found = block_get(self.b, key, len(key), hash, &e)
        return (e.value[:e.vlen], e.seq, bool(e.is_delete)) if found else None

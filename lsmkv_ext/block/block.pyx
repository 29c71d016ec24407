from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from lsmkv_ext.block.format cimport (
    BLOCK_HAS_KINDS,
    BLOCK_HEADER_SIZE,
    RUN_MAX,
    BlockHeader,
    KeyHead,
    block_header_get,
    block_tag,
    copy_suffix,
    key_head,
    key_head_checked,
    kind_at,
    kinds_of,
    n_restarts,
    restart_at,
    seq_bits,
    value_end,
    value_start,
)
from lsmkv_ext.block.memory cimport BLOCK_MAX_RAW, BLOCK_SLACK, SEG_PRIVATE
from lsmkv_ext.entry cimport (
    ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, POINTER_SIZE, STORED_KINDS, expiry_of, expiry_size, is_expiry,
)
from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.atomics cimport lsm_prefetch
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u64, put_u64
from lsmkv_ext.port.slab cimport SLAB_MAX, slab_alloc, slab_free

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
    """
    unsigned int lsm_tag_mask(const uint8_t* p, uint8_t tag) noexcept
    unsigned int lsm_tag_mask_portable(const uint8_t* p, uint8_t tag) noexcept
    int lsm_ctz(unsigned int m) noexcept

cdef enum:
    MALLOC_OVERHEAD = 16


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
    cdef BlockHeader h
    cdef uint64_t total
    cdef const char* problem
    if b.raw_size < BLOCK_HEADER_SIZE:
        return "block shorter than its header"
    if not block_header_get(b.data + b.raw_size - BLOCK_HEADER_SIZE, &h):
        return "invalid block header"
    b.base_seq = h.base_seq
    b.n_entries = h.n_entries
    b.shift = h.shift
    b.seq_width = h.seq_width
    b.wide = h.offset_width == 4
    b.has_kinds = h.flags & BLOCK_HAS_KINDS
    total = (<uint64_t>h.values_len + h.keys_len + <uint64_t>h.n_entries * (h.seq_width + h.offset_width + 1 + b.has_kinds)
             + <uint64_t>h.offset_width * n_restarts(b))
    if total + BLOCK_HEADER_SIZE != b.raw_size:
        return "block sections do not add up to the block size"
    b.keys_at = h.values_len
    b.seqs_at = b.keys_at + h.keys_len
    b.ends_at = b.seqs_at + h.n_entries * h.seq_width
    b.restarts_at = b.ends_at + h.n_entries * h.offset_width
    b.tags_at = b.restarts_at + n_restarts(b) * h.offset_width + h.n_entries * b.has_kinds
    problem = _check_entries(b, b.data + b.keys_at, b.data + b.seqs_at, h.values_len)
    return _check_kinds(b) if problem == NULL and b.has_kinds else problem


cdef const char* _check_kinds(const BlockC* b) noexcept nogil:
    cdef const uint8_t* kinds = kinds_of(b)
    cdef uint32_t i, start
    for i in range(b.n_entries):
        if kinds[i] & ~STORED_KINDS or (kinds[i] and seq_bits(b, i) & 1):
            return "unknown kind of entry"
        if kinds[i] & ENTRY_EXPIRY:
            start = value_start(b, i)
            if value_end(b, i) - start < EXPIRY_SIZE or not is_expiry(expiry_of(b.data + start)):
                return "malformed expiry"
        if kinds[i] & ENTRY_POINTER and value_end(b, i) - value_start(b, i) != POINTER_SIZE + expiry_size(kinds[i]):
            return "malformed pointer"
    return NULL


cdef void block_number_pointers(BlockC* b, uint64_t number) noexcept nogil:
    cdef const uint8_t* kinds = kinds_of(b)
    cdef char* pointer
    cdef uint32_t i
    for i in range(b.n_entries):
        if kinds[i] & ENTRY_POINTER:
            pointer = b.data + value_start(b, i) + expiry_size(kinds[i])
            if get_u64(pointer) == 0:
                put_u64(pointer, number)


cdef const char* _check_entries(BlockC* b, const char* p, const char* end, uint64_t values_len) noexcept nogil:
    cdef const char* keys = p
    cdef KeyHead h
    cdef uint64_t klen = 0, longest = 0
    cdef uint32_t v = 0, stop
    cdef uint32_t i
    cdef uint32_t mask = (1 << b.shift) - 1
    for i in range(b.n_entries):
        if not i & mask:
            if restart_at(b, i >> b.shift) != <uint64_t>(p - keys):
                return "restart point does not match its entry"
            klen = 0
        p = key_head_checked(p, end, &h)
        if p == NULL or h.shared > klen or h.unshared > <uint64_t>(end - p):
            return "key extends past its block"
        klen = h.shared + h.unshared
        if klen > MAX_KEY:
            return "key longer than 65535 bytes"
        stop = value_end(b, i)
        if stop < v:
            return "value ends before it starts"
        p += h.unshared
        v = stop
        if klen > longest:
            longest = klen
    if p != end or v != values_len:
        return "extra bytes after the last entry of a block"
    b.max_klen = <uint16_t>longest
    return NULL


# --- point read -------------------------------------------------------------------------------------------------------

cdef int _match(const BlockC* b, uint32_t i, const char* key, size_t klen, Entry* out) noexcept nogil:
    """Tests whether entry i has this key: walks the lengths from the restart point, then compares suffixes backwards."""
    cdef KeyHead heads[RUN_MAX]
    cdef const char* suffixes[RUN_MAX]
    cdef const char* d = b.data
    cdef uint32_t r = i >> b.shift
    cdef uint32_t last = i & ((1 << b.shift) - 1)
    cdef const char* p = d + b.keys_at + restart_at(b, r)
    cdef uint32_t v = value_start(b, i)
    cdef uint64_t upto, bits
    cdef uint32_t j
    # The value is most likely needed: its line arrives while the keys are compared.
    lsm_prefetch(d + v)
    lsm_prefetch(p + 64)
    bits = seq_bits(b, i)
    for j in range(last + 1):
        p = key_head(p, &heads[j])
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
    out.vlen = value_end(b, i) - v
    out.value = d + v
    out.seq = b.base_seq + (bits >> 1)
    out.kind = kind_at(b, i, bits)
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
                value = b.data + value_start(b, i)
                lsm_prefetch(b.data + b.keys_at + restart_at(b, i >> b.shift))
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
        p = key_head(p, &h)
        copy_suffix(kbuf + h.shared, p, h.unshared)
        p += h.unshared
        out[i] = xxh3(kbuf, h.shared + h.unshared, seed)
        total += h.shared + h.unshared
    return total

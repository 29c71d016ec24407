from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from lsmkv_ext.block.format cimport (
    RUN_MAX,
    KeyHead,
    copy_suffix,
    key_head,
    kind_at,
    n_restarts,
    restart_at,
    seq_bits,
    value_end,
    value_start,
)
from lsmkv_ext.block.memory cimport BLOCK_SLACK
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.growable cimport buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_NO_MEMORY, ST_OK

cdef enum:
    NO_RUN = 0xFFFFFFFF


cdef void block_iter_init(BlockIter* it) noexcept nogil:
    memset(it, 0, sizeof(BlockIter))
    it.run = NO_RUN


cdef void block_iter_close(BlockIter* it) noexcept nogil:
    buf_free(&it.key)
    free(it.runs)
    buf_free(&it.run_keys)
    block_iter_init(it)


cdef int block_iter_set(BlockIter* it, const BlockC* b) noexcept nogil:
    if buf_reserve(&it.key, <size_t>b.max_klen + BLOCK_SLACK) != 0:
        return ST_NO_MEMORY
    it.block = b
    it.valid = 0
    it.forward = 0
    it.run = NO_RUN
    return ST_OK


cdef inline void _decode_at(BlockIter* it) noexcept nogil:
    """Decodes the entry at next_key as the current one; `key` holds the key before it."""
    cdef const BlockC* b = it.block
    cdef KeyHead h
    cdef const char* p = key_head(it.next_key, &h)
    cdef uint64_t bits = seq_bits(b, it.index)
    copy_suffix(it.key.data + h.shared, p, h.unshared)
    it.entry.key = it.key.data
    it.entry.klen = h.shared + h.unshared
    it.entry.value = it.next_value
    it.entry.seq = b.base_seq + (bits >> 1)
    it.entry.kind = kind_at(b, it.index, bits)
    it.next_key = p + h.unshared
    it.next_value = b.data + value_end(b, it.index)
    it.entry.vlen = <size_t>(it.next_value - it.entry.value)


cdef inline void _at_restart(BlockIter* it, uint32_t r) noexcept nogil:
    cdef const char* d = it.block.data
    it.index = r << it.block.shift
    it.next_key = d + it.block.keys_at + restart_at(it.block, r)
    it.next_value = d + value_start(it.block, it.index)
    it.forward = 1
    it.valid = 1


cdef void block_iter_first(BlockIter* it) noexcept nogil:
    _at_restart(it, 0)
    _decode_at(it)


cdef void block_iter_next(BlockIter* it) noexcept nogil:
    cdef uint32_t target
    if not it.forward:
        # After a prev: find the end of this entry.
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
    cdef uint32_t high = n_restarts(b)
    cdef uint32_t mid
    # The last restart point with a smaller key: the answer is in its run or is the next run's first.
    while high - low > 1:
        mid = low + (high - low) // 2
        p = key_head(keys + restart_at(b, mid), &h)
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
    cdef const char* p = d + b.keys_at + restart_at(b, r)
    cdef uint32_t v = value_start(b, first)
    cdef KeyHead h
    cdef RunEntry* e
    cdef char* keys
    cdef size_t at = 0, before = 0
    cdef uint64_t bits
    cdef uint32_t i
    if it.runs == NULL:
        it.runs = <RunEntry*>malloc(RUN_MAX * sizeof(RunEntry))
        if it.runs == NULL:
            return ST_NO_MEMORY
    if buf_reserve(&it.run_keys, n * <size_t>b.max_klen + BLOCK_SLACK) != 0:
        return ST_NO_MEMORY
    keys = it.run_keys.data
    for i in range(n):
        e = &it.runs[i]
        p = key_head(p, &h)
        if h.shared:
            memcpy(keys + at, keys + before, h.shared)
        copy_suffix(keys + at + h.shared, p, h.unshared)
        bits = seq_bits(b, first + i)
        e.key_at = at
        e.klen = h.shared + h.unshared
        e.value = d + v
        e.vlen = value_end(b, first + i) - v
        e.seq = b.base_seq + (bits >> 1)
        e.kind = kind_at(b, first + i, bits)
        before = at
        at += e.klen
        p += h.unshared
        v += <uint32_t>e.vlen
    it.run = r
    return ST_OK


cdef int _from_run(BlockIter* it, uint32_t i) noexcept nogil:
    """Moves to entry i through its decoded run; a later next has to find the forward position again."""
    cdef const BlockC* b = it.block
    cdef RunEntry* e
    it.forward = 0
    if it.run != i >> b.shift and _decode_run(it, i >> b.shift) != ST_OK:
        it.valid = 0
        return ST_NO_MEMORY
    e = &it.runs[i & ((1 << b.shift) - 1)]
    it.index = i
    it.entry.key = it.run_keys.data + e.key_at
    it.entry.klen = e.klen
    it.entry.value = e.value
    it.entry.vlen = e.vlen
    it.entry.seq = e.seq
    it.entry.kind = e.kind
    it.valid = 1
    return ST_OK


cdef int block_iter_last(BlockIter* it) noexcept nogil:
    return _from_run(it, it.block.n_entries - 1)


cdef int block_iter_prev(BlockIter* it) noexcept nogil:
    if it.index == 0:
        it.valid = 0
        return ST_OK
    return _from_run(it, it.index - 1)

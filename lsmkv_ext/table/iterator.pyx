from libc.string cimport memset

from lsmkv_ext.block.iterator cimport (
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_last,
    block_iter_next,
    block_iter_prev,
    block_iter_seek,
    block_iter_set,
)
from lsmkv_ext.cache.block_cache cimport cache_touch, cache_unpin
from lsmkv_ext.port.atomics cimport lsm_likely
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.growable cimport buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_OK, fail_memory
from lsmkv_ext.table.reader cimport (
    table_cache_block,
    table_decode_block,
    table_find_block,
    table_load_block,
    table_pin_cached,
    table_pools_block,
    table_pread_counted,
)

cdef enum:
    SHORT_WALK = 3                 # blocks: a longer walk is a scan, a shorter one a seek with a few steps
    WINDOW_FIRST = 16 << 10
    WINDOW_MAX = 256 << 10
    WINDOW_COMPACTION = 256 << 10  # per input; there may be dozens
    NO_BLOCK = 0x7FFFFFFF


# --- entering a block ------------------------------------------------------------------------------------------------

cdef void table_iter_init(TableIter* it, TableC* t, ReadContext* rc) noexcept nogil:
    memset(it, 0, sizeof(TableIter))
    it.t = t
    it.rc = rc
    it.index = NO_BLOCK
    block_iter_init(&it.it)


cdef void _release(TableIter* it) noexcept nogil:
    if it.block != NULL:
        cache_unpin(it.block)
        it.block = NULL
    it.valid = 0


cdef void table_iter_close(TableIter* it) noexcept nogil:
    _release(it)
    block_iter_close(&it.it)
    buf_free(&it.ahead)


cdef inline int _show(TableIter* it) noexcept nogil:
    it.valid = 1
    it.entry = it.it.entry
    if it.t.global_seq:
        it.entry.seq = it.t.global_seq
    return ST_OK


cdef inline int _exhausted(TableIter* it) noexcept nogil:
    it.valid = 0
    return ST_OK


cdef int _failed(TableIter* it, int code) noexcept nogil:
    _release(it)
    it.index = NO_BLOCK
    return code


cdef void _plan_read(TableIter* it, uint32_t i, bint backward, uint64_t* at, uint64_t* end) noexcept nogil:
    """Sets the file range to read: block i and its neighbours in the direction of travel, as far as the window reaches."""
    cdef TableC* t = it.t
    cdef uint32_t first = i
    cdef uint32_t last = i + 1
    if backward:
        while first > 0 and t.offsets[last] - t.offsets[first - 1] <= it.window:
            first -= 1
    else:
        while last < t.n_blocks and t.offsets[last + 1] - t.offsets[first] <= it.window:
            last += 1
    at[0] = t.offsets[first]
    end[0] = t.offsets[last]


cdef int _read_ahead(TableIter* it, uint32_t i, bint backward) noexcept nogil:
    cdef uint64_t at, end
    cdef int code
    _plan_read(it, i, backward, &at, &end)
    it.ahead.len = 0
    if buf_reserve(&it.ahead, end - at) != 0:
        return fail_memory(&it.status, "read-ahead buffer")
    code = table_pread_counted(it.t, it.ahead.data, end - at, at, it.rc, &it.status)
    if code == ST_OK:
        it.ahead_at = at
        it.ahead.len = end - at
    if not it.rc.compaction:
        # A scan may end any time: it reads no more in advance than it has read so far.
        it.window = min(2 * it.window, <uint64_t>WINDOW_MAX)
    return code


cdef inline bint _is_ahead(const TableIter* it, uint32_t i) noexcept nogil:
    cdef uint64_t at = it.t.offsets[i]
    return at >= it.ahead_at and it.t.offsets[i + 1] <= it.ahead_at + it.ahead.len


cdef int _fetch(TableIter* it, uint32_t i, bint backward, BlockC** out) noexcept nogil:
    """Fetches the uncached block i from the read-ahead buffer, refilled if it does not hold the block."""
    cdef TableC* t = it.t
    cdef uint64_t at = t.offsets[i]
    cdef BlockC* b = NULL
    cdef int code
    if not _is_ahead(it, i):
        if it.window == 0 or t.offsets[i + 1] - at > it.window:
            # After a seek: one block, no buffer. A block larger than the window would be alone in the buffer, and copied.
            code = table_load_block(t, i, it.rc, out, &it.status)
            if code == ST_OK:
                out[0] = table_cache_block(t, i, out[0], it.rc, _scanning(it))
            return code
        code = _read_ahead(it, i, backward)
        if code != ST_OK:
            return code
    code = table_decode_block(t, it.ahead.data + (at - it.ahead_at), t.offsets[i + 1] - at, at,
                              table_pools_block(t, it.rc), &b, &it.status)
    if code != ST_OK:
        return code
    it.rc.decompressed += b.raw_size
    out[0] = table_cache_block(t, i, b, it.rc, _scanning(it))
    return ST_OK


cdef inline bint _scanning(const TableIter* it) noexcept nogil:
    """Returns whether the walk is a scan. Blocks of a seek and a few steps are likely to be read again."""
    return it.rc.scan and it.in_sequence > SHORT_WALK


cdef int _enter(TableIter* it, uint32_t i, bint backward) noexcept nogil:
    """Sets the block iterator on block i, on no entry yet."""
    cdef BlockC* b = NULL
    cdef int code = ST_OK
    if it.block != NULL and it.index == i:
        return ST_OK
    if it.rc.compaction:
        it.window = WINDOW_COMPACTION
    elif it.rc.scan and (it.index + 1 == i or i + 1 == it.index):
        it.in_sequence += 1
        if it.in_sequence >= SHORT_WALK:
            it.window = max(it.window, <uint64_t>WINDOW_FIRST)
    else:
        it.window = 0
        it.in_sequence = 0
    _release(it)
    if not it.rc.compaction:
        b = table_pin_cached(it.t, i, it.rc.gil_held)
    if b != NULL:
        it.rc.cache_hits += 1
        if not _scanning(it):
            cache_touch(b)
    else:
        code = _fetch(it, i, backward, &b)
    if code == ST_OK and block_iter_set(&it.it, b) != ST_OK:
        cache_unpin(b)
        code = fail_memory(&it.status, "key buffer")
    if code != ST_OK:
        return _failed(it, code)
    it.block = b
    it.index = i
    return ST_OK


cdef int _first_of(TableIter* it, uint32_t i) noexcept nogil:
    cdef int code
    if i >= it.t.n_blocks:
        return _exhausted(it)
    code = _enter(it, i, False)
    if code != ST_OK:
        return code
    block_iter_first(&it.it)
    return _show(it)


cdef int _last_of(TableIter* it, uint32_t i) noexcept nogil:
    cdef int code = _enter(it, i, True)
    if code != ST_OK:
        return code
    if block_iter_last(&it.it) != ST_OK:
        return _failed(it, fail_memory(&it.status, "key buffer"))
    return _show(it)


# --- moves -----------------------------------------------------------------------------------------------------------

cdef int table_iter_seek_first(TableIter* it) noexcept nogil:
    return _first_of(it, 0)


cdef int table_iter_seek_last(TableIter* it) noexcept nogil:
    if it.t.n_blocks == 0:
        return _exhausted(it)
    return _last_of(it, it.t.n_blocks - 1)


cdef inline int _seek_in(TableIter* it, uint32_t i, const char* key, size_t klen, bint backward) noexcept nogil:
    """Moves the block iterator to the first entry of block i that is >= `key`."""
    cdef int code = _enter(it, i, backward)
    if code == ST_OK:
        block_iter_seek(&it.it, key, klen)
    return code


cdef int table_iter_seek(TableIter* it, const char* key, size_t klen) noexcept nogil:
    cdef uint32_t i = table_find_block(it.t, key, klen)
    cdef int code
    if i >= it.t.n_blocks:
        return _exhausted(it)
    code = _seek_in(it, i, key, klen, False)
    if code != ST_OK:
        return code
    if it.it.valid:
        return _show(it)
    return _first_of(it, i + 1)


cdef int _step_back(TableIter* it) noexcept nogil:
    """Moves to the entry before the block iterator's."""
    if block_iter_prev(&it.it) != ST_OK:
        return _failed(it, fail_memory(&it.status, "key buffer"))
    if it.it.valid:
        return _show(it)
    if it.index == 0:
        return _exhausted(it)
    return _last_of(it, it.index - 1)


cdef int table_iter_seek_for_prev(TableIter* it, const char* key, size_t klen, bint inclusive) noexcept nogil:
    cdef uint32_t i = table_find_block(it.t, key, klen)
    cdef int code
    if i >= it.t.n_blocks:
        return table_iter_seek_last(it)
    code = _seek_in(it, i, key, klen, True)
    if code != ST_OK:
        return code
    if not it.it.valid:
        return _last_of(it, i)
    if inclusive and lsm_compare(it.it.entry.key, it.it.entry.klen, key, klen) == 0:
        return _show(it)
    return _step_back(it)


cdef int table_iter_next(TableIter* it) noexcept nogil:
    if not it.valid:
        return ST_OK
    block_iter_next(&it.it)
    if lsm_likely(it.it.valid):
        return _show(it)
    return _first_of(it, it.index + 1)


cdef int table_iter_prev(TableIter* it) noexcept nogil:
    if not it.valid:
        return ST_OK
    return _step_back(it)

import os

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.block.block cimport (
    block_alloc,
    block_check,
    block_free,
    block_get,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_last,
    block_iter_next,
    block_iter_prev,
    block_iter_seek,
    block_iter_set,
)
from lsmkv_ext.cache.block_cache cimport cache_drain, cache_insert, cache_pin, cache_touch, cache_unpin
from lsmkv_ext.filter.curve cimport filter_designed_fpr
from lsmkv_ext.filter.format cimport filter_problem_text
from lsmkv_ext.filter.kernel cimport filter_fill_ratio, filter_probe
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.alloc cimport lsm_free, lsm_alloc
from lsmkv_ext.port.status cimport ST_NOT_FOUND, ST_OK, Status, fail_corrupt, fail_memory, raise_status, status_clear
from lsmkv_ext.table.format cimport (
    FRAME_STORED,
    FRAME_TRAILER,
    KIND_DATA,
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_CREATED,
    PROP_DATA_BYTES,
    PROP_FILTER_BLOCKS,
    PROP_FILTER_KEYS,
    PROP_KEY_BYTES,
    PROP_LEVEL,
    PROP_N_RANGE_TOMBSTONES,
    PROP_NUMBER,
    PROP_RESTART_INTERVAL,
    PROP_VALUE_BYTES,
)
from lsmkv_ext.table.open cimport frame_check, frame_unpack, table_close, table_open, table_pread, table_prop
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.atomics cimport lsm_fetch_add32, lsm_likely, lsm_load64
from lsmkv_ext.port.clock cimport lsm_now_ns

cdef extern from "Python.h" nogil:
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyEval_SaveThread() noexcept
    void PyEval_RestoreThread(PyThreadState* ts) noexcept

cdef extern from * nogil:
    """
    static inline uint32_t lsm_count_less8(const uint64_t* g, uint64_t x) {
        return (uint32_t)((g[0] < x) + (g[1] < x) + (g[2] < x) + (g[3] < x)
                        + (g[4] < x) + (g[5] < x) + (g[6] < x) + (g[7] < x));
    }
    """
    uint32_t lsm_count_less8(const uint64_t* g, uint64_t x) noexcept

cdef enum:
    POOL_FROM = 4 << 20            # bytes cached before blocks come from the slab: less stays in the processor's caches
    SCRATCH = 16384                # blocks up to this size are read onto the stack
    WINDOW_FIRST = 16 << 10
    SHORT_WALK = 3                 # blocks: up to here a walk is a seek with a few steps, beyond it a scan
    WINDOW_MAX = 256 << 10
    WINDOW_COMPACTION = 256 << 10  # of each input, and there may be dozens
    NO_BLOCK = 0x7FFFFFFF


# --- where is a key ---------------------------------------------------------------------------------------------------

cdef inline int _compare_sep(const TableC* t, uint32_t i, const char* rest, size_t n) noexcept nogil:
    return lsm_compare(t.seps + t.sep_at[i], t.sep_at[i + 1] - t.sep_at[i], rest, n)


cdef uint32_t _among_ties(const TableC* t, uint32_t low, uint64_t target, const char* rest, size_t n) noexcept nogil:
    """From the first block with this prefix: the first whose whole separator is >= rest."""
    cdef uint32_t high = t.n_blocks
    cdef uint32_t mid
    if _compare_sep(t, low, rest, n) >= 0:
        return low
    while high - low > 1:          # separator(low) < rest <= separator(high)
        mid = low + (high - low) // 2
        if t.levels[0][mid] == target and _compare_sep(t, mid, rest, n) < 0:
            low = mid
        else:
            high = mid
    return high


cdef uint32_t table_find_block(const TableC* t, const char* key, size_t klen) noexcept nogil:
    cdef size_t shared = t.common_len
    cdef uint64_t target
    cdef uint64_t i = 0
    cdef int level, r
    if t.n_blocks == 0:
        return 0
    if shared:
        r = memcmp(key, t.common, shared if shared < klen else klen)
        if r > 0:
            return t.n_blocks
        if r < 0 or klen < shared:
            return 0
    target = lsm_prefix8(key + shared, klen - shared)
    if target > t.max_prefix:
        return t.n_blocks
    for level in range(<int>t.n_levels - 1, -1, -1):
        i = i * INDEX_FANOUT + lsm_count_less8(t.levels[level] + i * INDEX_FANOUT, target)
    lsm_prefetch(&t.blocks[i])
    if t.levels[0][i] != target:
        return <uint32_t>i
    return _among_ties(t, <uint32_t>i, target, key + shared, klen - shared)


cdef uint64_t table_offset_of(const TableC* t, const char* key, size_t klen) noexcept nogil:
    cdef uint32_t i = table_find_block(t, key, klen)
    return t.offsets[i] if t.n_blocks else 0


# --- blocks -----------------------------------------------------------------------------------------------------------

cdef int _check_block(TableC* t, BlockC* b, uint64_t offset, BlockC** out, Status* st) noexcept nogil:
    cdef const char* problem = block_check(b)
    if problem != NULL:
        block_free(b)
        return fail_corrupt(st, problem, t.number, offset)
    out[0] = b
    return ST_OK


cdef int table_decode_block(TableC* t, const char* frame, size_t n, uint64_t offset, BlockC** out,
                            Status* st) noexcept nogil:
    return _decode(t, frame, n, offset, False, out, st)


cdef int _decode(TableC* t, const char* frame, size_t n, uint64_t offset, bint pooled, BlockC** out,
                 Status* st) noexcept nogil:
    cdef uint32_t raw_size = 0
    cdef int compression = 0
    cdef BlockC* b
    cdef int code = frame_check(t, frame, n, KIND_DATA, offset, &raw_size, &compression, st)
    if code != ST_OK:
        return code
    b = block_alloc(raw_size, pooled)
    if b == NULL:
        return fail_memory(st, "block")
    code = frame_unpack(t, frame, n, raw_size, compression, b.data, offset, st)
    if code != ST_OK:
        block_free(b)
        return code
    return _check_block(t, b, offset, out, st)


cdef inline bint _will_stay(const TableC* t, const ReadContext* rc) noexcept nogil:
    """Whether a block read now goes into a cache that is large enough for huge pages to matter."""
    return (t.cache != NULL and rc.fill_cache and not rc.compaction
            and t.cache.main.bytes + t.cache.probation.bytes >= POOL_FROM)


cdef int _read_large(TableC* t, size_t n, uint64_t offset, BlockC** out, Status* st) noexcept nogil:
    """Read straight into a block: where the bytes are stored as they are, nothing is copied."""
    cdef uint32_t raw_size = 0
    cdef int compression = 0
    cdef BlockC* b
    cdef int code
    b = block_alloc(n, False)
    if b == NULL:
        return fail_memory(st, "block")
    code = table_pread(t, b.data, n, offset, st)
    if code == ST_OK:
        code = frame_check(t, b.data, n, KIND_DATA, offset, &raw_size, &compression, st)
    if code == ST_OK and compression == FRAME_STORED:
        # The trailer stays behind the data.
        b.raw_size = raw_size
        return _check_block(t, b, offset, out, st)
    if code == ST_OK:
        code = table_decode_block(t, b.data, n, offset, out, st)
    block_free(b)
    return code


cdef int _read_small(TableC* t, size_t n, uint64_t offset, bint pooled, BlockC** out, Status* st) noexcept nogil:
    cdef char scratch[SCRATCH]
    cdef int code = table_pread(t, scratch, n, offset, st)
    if code != ST_OK:
        return code
    return _decode(t, scratch, n, offset, pooled, out, st)


cdef inline void _warm_victim(const CacheC* c) noexcept nogil:
    """Fetches the lines that an eviction will change while the disk is read. With the GIL held the hand is not freed."""
    cdef const BlockC* victim = c.main.hand
    if victim != NULL:
        lsm_prefetch(victim.slot)
        lsm_prefetch(victim.next)


cdef int table_load_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil:
    """From the disk, private and pinned. The GIL is let go from the read to the decoded block."""
    cdef PyThreadState* ts = NULL
    cdef uint64_t offset = t.offsets[i]
    cdef size_t n = t.offsets[i + 1] - offset
    cdef uint64_t start
    cdef int code
    if rc.gil_held:
        if t.cache != NULL and rc.fill_cache:
            _warm_victim(t.cache)
        ts = PyEval_SaveThread()
    start = lsm_now_ns()
    if n <= SCRATCH:
        code = _read_small(t, n, offset, _will_stay(t, rc), out, st)
    else:
        code = _read_large(t, n, offset, out, st)
    rc.disk_ns += lsm_now_ns() - start
    if rc.gil_held:
        PyEval_RestoreThread(ts)
    rc.disk_reads += 1
    rc.disk_bytes += n
    if code == ST_OK:
        rc.decompressed += out[0].raw_size
    return code


cdef BlockC* table_pin_cached(TableC* t, uint32_t i, bint gil_held) noexcept nogil:
    cdef BlockC* b
    if t.cache == NULL:
        return NULL
    if not gil_held:
        return cache_pin(t.cache, &t.blocks[i])
    b = table_peek_block(t, i)
    if b != NULL:
        lsm_fetch_add32(&b.pins, 1)
    return b


cdef BlockC* _offer(TableC* t, uint32_t i, BlockC* b, ReadContext* rc, bint scan) noexcept nogil:
    """Into the cache where that is wanted; returns the block to use."""
    if t.cache == NULL:
        return b
    if rc.gil_held:
        cache_drain(t.cache)
    if not rc.fill_cache or rc.compaction:
        return b
    return cache_insert(t.cache, &t.blocks[i], b, scan, rc.gil_held)


cdef int table_read_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil:
    cdef int code
    cdef BlockC* b = table_pin_cached(t, i, rc.gil_held)
    if b != NULL:
        rc.cache_hits += 1
        cache_touch(b)
        out[0] = b
        return ST_OK
    code = table_load_block(t, i, rc, &b, st)
    if code != ST_OK:
        return code
    out[0] = _offer(t, i, b, rc, False)
    return ST_OK


cdef void table_unpin(TableC* t, BlockC* b) noexcept nogil:
    if b != NULL:
        cache_unpin(b)


cdef int table_get(TableC* t, const char* key, size_t klen, uint64_t hash, ReadContext* rc, Entry* out,
                   BlockC** pinned, Status* st) noexcept nogil:
    return table_get_in(t, table_find_block(t, key, klen), NULL, key, klen, hash, rc, out, pinned, st)


cdef int table_get_in(TableC* t, uint32_t i, BlockC* held, const char* key, size_t klen, uint64_t hash, ReadContext* rc,
                      Entry* out, BlockC** pinned, Status* st) noexcept nogil:
    cdef BlockC* b = held
    cdef int code
    pinned[0] = held
    if i >= t.n_blocks:
        return ST_NOT_FOUND
    if b == NULL and rc.gil_held:
        b = table_peek_block(t, i)
    if lsm_likely(b != NULL):
        lsm_prefetch(<char*>b - 64)
        lsm_prefetch(<char*>b - 128)
        lsm_prefetch(<char*>b - 192)
        rc.cache_hits += 1
        cache_touch(b)
    else:
        code = table_read_block(t, i, rc, &b, st)
        if code != ST_OK:
            return code
        pinned[0] = b
    if block_get(b, key, klen, hash, out):
        if t.global_seq:
            out.seq = t.global_seq
        return ST_OK
    if pinned[0] != NULL:
        cache_unpin(b)
        pinned[0] = NULL
    return ST_NOT_FOUND


# --- iterator ---------------------------------------------------------------------------------------------------------

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
    lsm_free(it.ahead)
    it.ahead = NULL
    it.ahead_len = 0
    it.ahead_cap = 0


cdef inline int _stand(TableIter* it) noexcept nogil:
    it.valid = 1
    it.entry = it.it.entry
    if it.t.global_seq:
        it.entry.seq = it.t.global_seq
    return ST_OK


cdef inline int _nowhere(TableIter* it) noexcept nogil:
    it.valid = 0
    return ST_OK


cdef int _failed(TableIter* it, int code) noexcept nogil:
    _release(it)
    it.index = NO_BLOCK
    return code


cdef void _plan_read(TableIter* it, uint32_t i, bint backward, uint64_t* at, uint64_t* end) noexcept nogil:
    """Whole blocks around i: just this one after a jump, more and more while blocks come in sequence."""
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
    cdef uint64_t at, end, start
    cdef PyThreadState* ts = NULL
    cdef int code
    _plan_read(it, i, backward, &at, &end)
    it.ahead_len = 0
    if it.ahead_cap < end - at:
        lsm_free(it.ahead)
        it.ahead_cap = 0
        it.ahead = <char*>lsm_alloc(end - at)
        if it.ahead == NULL:
            return fail_memory(&it.status, "read-ahead buffer")
        it.ahead_cap = end - at
    if it.rc.gil_held:
        ts = PyEval_SaveThread()
    start = lsm_now_ns()
    code = table_pread(it.t, it.ahead, end - at, at, &it.status)
    it.rc.disk_ns += lsm_now_ns() - start
    if it.rc.gil_held:
        PyEval_RestoreThread(ts)
    it.rc.disk_reads += 1
    it.rc.disk_bytes += end - at
    if code == ST_OK:
        it.ahead_at = at
        it.ahead_len = end - at
    return code


cdef inline bint _is_ahead(const TableIter* it, uint32_t i) noexcept nogil:
    cdef uint64_t at = it.t.offsets[i]
    return at >= it.ahead_at and it.t.offsets[i + 1] <= it.ahead_at + it.ahead_len


cdef int _fetch(TableIter* it, uint32_t i, bint backward, BlockC** out) noexcept nogil:
    """Block i, not cached: from the read-ahead buffer, which is filled where it does not hold it."""
    cdef TableC* t = it.t
    cdef uint64_t at = t.offsets[i]
    cdef BlockC* b = NULL
    cdef int code
    if not _is_ahead(it, i):
        if it.window == 0 or t.offsets[i + 1] - at > it.window:
            # Right after a jump there is nothing to expect: one block, no buffer. A block larger than the window would be alone
            # in it, and a copy of it at that.
            code = table_load_block(t, i, it.rc, out, &it.status)
            if code == ST_OK:
                out[0] = _offer(t, i, out[0], it.rc, _scanning(it))
            return code
        code = _read_ahead(it, i, backward)
        if code != ST_OK:
            return code
    code = _decode(t, it.ahead + (at - it.ahead_at), t.offsets[i + 1] - at, at, _will_stay(t, it.rc), &b, &it.status)
    if code != ST_OK:
        return code
    it.rc.decompressed += b.raw_size
    out[0] = _offer(t, i, b, it.rc, _scanning(it))
    return ST_OK


cdef inline bint _scanning(const TableIter* it) noexcept nogil:
    """Whether the walk has gone far enough to be a scan. A seek and a few steps are wanted again as a get's block is."""
    return it.rc.scan and it.in_sequence > SHORT_WALK


cdef int _enter(TableIter* it, uint32_t i, bint backward) noexcept nogil:
    """The block iterator stands on block i, on no entry yet."""
    cdef BlockC* b = NULL
    cdef int code = ST_OK
    if it.block != NULL and it.index == i:
        return ST_OK
    if it.rc.compaction:
        it.window = WINDOW_COMPACTION
    elif it.rc.scan and (it.index + 1 == i or i + 1 == it.index):
        it.in_sequence += 1
        if it.in_sequence >= SHORT_WALK:
            it.window = min(max(2 * it.window, <uint64_t>WINDOW_FIRST), <uint64_t>WINDOW_MAX)
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
        return _nowhere(it)
    code = _enter(it, i, False)
    if code != ST_OK:
        return code
    block_iter_first(&it.it)
    return _stand(it)


cdef int _last_of(TableIter* it, uint32_t i) noexcept nogil:
    cdef int code = _enter(it, i, True)
    if code != ST_OK:
        return code
    if block_iter_last(&it.it) != ST_OK:
        return _failed(it, fail_memory(&it.status, "key buffer"))
    return _stand(it)


cdef int table_iter_seek_first(TableIter* it) noexcept nogil:
    return _first_of(it, 0)


cdef int table_iter_seek_last(TableIter* it) noexcept nogil:
    if it.t.n_blocks == 0:
        return _nowhere(it)
    return _last_of(it, it.t.n_blocks - 1)


cdef int table_iter_seek(TableIter* it, const char* key, size_t klen) noexcept nogil:
    cdef uint32_t i = table_find_block(it.t, key, klen)
    cdef int code
    if i >= it.t.n_blocks:
        return _nowhere(it)
    code = _enter(it, i, False)
    if code != ST_OK:
        return code
    block_iter_seek(&it.it, key, klen)
    if it.it.valid:
        return _stand(it)
    return _first_of(it, i + 1)


cdef int _step_back(TableIter* it) noexcept nogil:
    """To the entry before where the block iterator stands."""
    if block_iter_prev(&it.it) != ST_OK:
        return _failed(it, fail_memory(&it.status, "key buffer"))
    if it.it.valid:
        return _stand(it)
    if it.index == 0:
        return _nowhere(it)
    return _last_of(it, it.index - 1)


cdef int table_iter_seek_for_prev(TableIter* it, const char* key, size_t klen, bint inclusive) noexcept nogil:
    cdef uint32_t i = table_find_block(it.t, key, klen)
    cdef int code
    if i >= it.t.n_blocks:
        return table_iter_seek_last(it)
    code = _enter(it, i, True)
    if code != ST_OK:
        return code
    block_iter_seek(&it.it, key, klen)
    if not it.it.valid:
        return _last_of(it, i)
    if inclusive and lsm_compare(it.it.entry.key, it.it.entry.klen, key, klen) == 0:
        return _stand(it)
    return _step_back(it)


cdef int table_iter_next(TableIter* it) noexcept nogil:
    if not it.valid:
        return ST_OK
    block_iter_next(&it.it)
    if lsm_likely(it.it.valid):
        return _stand(it)
    return _first_of(it, it.index + 1)


cdef int table_iter_prev(TableIter* it) noexcept nogil:
    if not it.valid:
        return ST_OK
    return _step_back(it)


# --- Python -----------------------------------------------------------------------------------------------------------

cdef bytes _bytes(key):
    """Bytes-like to bytes; str, int and the like are a TypeError."""
    return key if type(key) is bytes else bytes(memoryview(key))


@cython.no_gc_clear                # __dealloc__ needs cache and fds alive
cdef class Table:
    """An open SSTable. Opening checks everything but the data blocks; those are checked when read."""

    def __cinit__(self, path, number=0, BlockCache cache=None, FdCache fds=None, *, global_seq=0, charge=False):
        cdef Status st
        cdef CacheC* c = cache.c if cache is not None else NULL
        cdef FdCacheC* p = fds.c if fds is not None else NULL
        cdef uint64_t n = number, seq = global_seq
        cdef bint charged = charge
        cdef char* name
        cdef int code
        self.born = fork_count
        self.path = os.path.abspath(os.fsdecode(path))
        self._path = os.fsencode(self.path)
        self.cache = cache
        self.fds = fds
        self.c = <TableC*>calloc(1, sizeof(TableC))
        if self.c == NULL:
            raise MemoryError("table")
        self.c.handle.fd = -1
        name = self._path
        status_clear(&st)
        with nogil:
            code = table_open(self.c, name, c, p, n, seq, charged, &st)
        if code != ST_OK:
            raise_status(&st, self.path)

    def __dealloc__(self):
        if self.c == NULL or self.born != fork_count:
            # After a fork the cache's lock may be held by a thread that only the parent has: leave it all to the exit.
            return
        table_close(self.c)
        free(self.c)
        self.c = NULL
        if self._obsolete is not None:
            self._obsolete.append(self._number)

    def mark_obsolete(self, list into):
        """Once the last reference to this table is gone, its number is appended to `into`: the file may be unlinked."""
        self._number = self.c.number
        self._obsolete = into

    def __repr__(self):
        return f"<Table {self.path!r}: {self.c.n_entries} entries in {self.c.n_blocks} blocks>"

    @property
    def number(self):
        return self.c.number

    @property
    def file_size(self):
        return self.c.file_size

    @property
    def n_entries(self):
        return self.c.n_entries

    @property
    def n_deletes(self):
        return self.c.n_deletes

    @property
    def n_blocks(self):
        return self.c.n_blocks

    @property
    def min_seq(self):
        return self.c.min_seq

    @property
    def max_seq(self):
        return self.c.max_seq

    @property
    def global_seq(self):
        return self.c.global_seq

    @property
    def seed(self):
        return self.c.seed

    @property
    def smallest(self):
        """None for a table without entries and range tombstones."""
        if self.c.n_entries == 0 and self.c.n_range_tombstones == 0:
            return None
        return PyBytes_FromStringAndSize(self.c.smallest, self.c.smallest_len)

    @property
    def largest(self):
        if self.c.n_entries == 0 and self.c.n_range_tombstones == 0:
            return None
        return PyBytes_FromStringAndSize(self.c.largest, self.c.largest_len)

    @property
    def largest_exclusive(self):
        """True where `largest` is the stop of a range tombstone."""
        return bool(self.c.largest_exclusive)

    @property
    def wasted(self):
        """Point reads that got past the filter and found nothing."""
        return lsm_load64(&self.c.wasted)

    @property
    def memory(self):
        """Bytes resident while the table is open: index, filter, range tombstones."""
        return self.c.memory

    @property
    def range_tombstones(self):
        """[(start, stop, seq)], sorted by start."""
        cdef RangeTombstone r
        cdef RangeWalk walk
        out = []
        range_walk_init(&walk, self.c)
        while range_walk_next(&walk, &r):
            out.append((r.start[:r.start_len], r.stop[:r.stop_len], r.seq))
        return out

    @property
    def properties(self):
        cdef TableC* t = self.c
        return {
            "file_size": t.file_size,
            "n_entries": t.n_entries,
            "n_deletes": t.n_deletes,
            "n_range_tombstones": table_prop(t, PROP_N_RANGE_TOMBSTONES),
            "key_bytes": table_prop(t, PROP_KEY_BYTES),
            "value_bytes": table_prop(t, PROP_VALUE_BYTES),
            "data_bytes": table_prop(t, PROP_DATA_BYTES),
            "index_bytes": t.index_size,
            "filter_bytes": t.filter_size,
            "n_blocks": t.n_blocks,
            "min_seq": t.min_seq,
            "max_seq": t.max_seq,
            "smallest": self.smallest,
            "largest": self.largest,
            "largest_exclusive": self.largest_exclusive,
            "seed": t.seed,
            "number": table_prop(t, PROP_NUMBER),
            "created": table_prop(t, PROP_CREATED),
            "level": table_prop(t, PROP_LEVEL),
            "compression": {0: None, 1: "lz4"}.get(table_prop(t, PROP_COMPRESSION), "unknown"),
            "block_size": table_prop(t, PROP_BLOCK_SIZE),
            "restart_interval": table_prop(t, PROP_RESTART_INTERVAL),
            "filter_keys": table_prop(t, PROP_FILTER_KEYS),
            "filter_blocks": table_prop(t, PROP_FILTER_BLOCKS),
        }

    @property
    def filter_info(self):
        """What the filter is, and whether it can be used; a damaged one has usable=False and says why in `problem`."""
        cdef TableC* t = self.c
        return {
            "usable": bool(t.filter.usable),
            "problem": None if t.filter.usable else filter_problem_text(t.filter.problem).decode(),
            "bytes": t.filter_size,
            "n_blocks": t.filter.n_blocks,
            "n_keys": t.filter.n_keys,
            "seed": t.filter.seed,
            "millibits": t.filter.millibits,
            "k": t.filter.k,
            "level": t.filter.level,
            "prefix_kind": t.filter.prefix_kind,
            "prefix_arg": t.filter.prefix_arg,
            "fill_ratio": filter_fill_ratio(&t.filter),
            "designed_fpr": filter_designed_fpr(&t.filter),
        }

    def filter_bytes(self):
        """(header, bits) as stored."""
        cdef TableC* t = self.c
        bits = PyBytes_FromStringAndSize(NULL, t.filter_size)
        cdef char* p = bits
        cdef Status st
        status_clear(&st)
        with nogil:
            table_pread(t, p, t.filter_size, t.filter_at, &st)
        raise_status(&st, self.path)
        return t.filter_header[:64], bits

    def get(self, key, *, fill_cache=True):
        """(value or None where deleted, seq), or None where the table has no entry. The filter is not asked."""
        cdef ReadContext rc
        cdef Entry e
        cdef BlockC* pinned = NULL
        cdef Status st
        cdef bytes held = _bytes(key)
        cdef const char* k = held
        cdef size_t n = <size_t>len(held)
        memset(&rc, 0, sizeof(ReadContext))
        rc.gil_held = True
        rc.fill_cache = fill_cache
        status_clear(&st)
        cdef int code = table_get(self.c, k, n, xxh3(k, n, self.c.seed), &rc, &e, &pinned, &st)
        if code == ST_NOT_FOUND:
            return None
        if code != ST_OK:
            raise_status(&st, self.path)
        try:
            return (None if e.is_delete else PyBytes_FromStringAndSize(e.value, e.vlen)), e.seq
        finally:
            table_unpin(self.c, pinned)

    def may_contain(self, key):
        """The filter's answer."""
        cdef bytes k = _bytes(key)
        return bool(filter_probe(&self.c.filter, xxh3(<const char*>k, <size_t>len(k), self.c.seed)))

    def find_block(self, key):
        """Number of the block that would hold `key`, or None behind the last."""
        cdef bytes k = _bytes(key)
        cdef uint32_t i = table_find_block(self.c, k, <size_t>len(k))
        return i if i < self.c.n_blocks else None

    def offset_of(self, key):
        """Bytes of data in front of `key`'s block."""
        cdef bytes k = _bytes(key)
        return table_offset_of(self.c, k, <size_t>len(k))

    def separators(self):
        """The index: one key per block, not smaller than its last and smaller than the next block's first."""
        cdef TableC* t = self.c
        cdef uint32_t i
        common = t.common[:t.common_len] if t.n_blocks else b""
        return [common + t.seps[t.sep_at[i]:t.sep_at[i + 1]] for i in range(t.n_blocks)]

    def block_layout(self):
        """[{offset, size, raw_size, n_entries, compression, separator, cached}], one per data block; reads them all."""
        cdef uint32_t i
        out = []
        for i, separator in enumerate(self.separators()):
            out.append(self._describe_block(i, separator))
        return out

    cdef dict _describe_block(self, uint32_t i, bytes separator):
        cdef TableC* t = self.c
        cdef ReadContext rc
        cdef Status st
        cdef BlockC* b = NULL
        cdef bint cached = table_peek_block(t, i) != NULL
        memset(&rc, 0, sizeof(ReadContext))
        rc.gil_held = True
        rc.scan = True
        status_clear(&st)
        if table_read_block(t, i, &rc, &b, &st) != ST_OK:
            raise_status(&st, self.path)
        size = t.offsets[i + 1] - t.offsets[i]
        out = {
            "offset": t.offsets[i],
            "size": size,
            "raw_size": b.raw_size,
            "n_entries": b.n_entries,
            "compression": None if b.raw_size + FRAME_TRAILER == size else "lz4",
            "separator": separator,
            "cached": cached,
        }
        table_unpin(t, b)
        return out

    def count(self, *, mode="scan", fill_cache=False, reverse=False):
        """(entries, bytes of keys and values) by a scan without the GIL from end to end."""
        cdef TableIter it
        cdef ReadContext rc
        cdef uint64_t n = 0, size = 0
        cdef bint backward = reverse
        cdef int code
        _set_context(&rc, mode, fill_cache)
        table_iter_init(&it, self.c, &rc)
        with nogil:
            code = table_iter_seek_last(&it) if backward else table_iter_seek_first(&it)
            while code == ST_OK and it.valid:
                n += 1
                size += it.entry.klen + it.entry.vlen
                code = table_iter_prev(&it) if backward else table_iter_next(&it)
            table_iter_close(&it)
        if code != ST_OK:
            raise_status(&it.status, self.path)
        return n, size

    def verify(self, deep=True):
        """Findings as [{"offset": ..., "what": ...}]; empty for a sound table. See lsmkv_ext.table.verify."""
        from lsmkv_ext.table.verify import verify_table

        return verify_table(self, deep=deep)

    def entries(self, start=None, stop=None, *, reverse=False, mode="scan", fill_cache=False):
        """Iterator over (key, value or None where deleted, seq) with start <= key < stop."""
        return TableEntries(self, start, stop, reverse, mode, fill_cache)


cdef int _set_context(ReadContext* rc, str mode, bint fill_cache) except -1:
    if mode not in ("scan", "compaction", "get"):
        raise ValueError(f"mode is 'scan', 'compaction' or 'get', not {mode!r}")
    memset(rc, 0, sizeof(ReadContext))
    rc.fill_cache = fill_cache
    rc.scan = mode == "scan"
    rc.compaction = mode == "compaction"
    return 0


cdef class TableEntries:
    """What Table.entries returns: one pinned block at a time."""

    cdef Table table
    cdef TableIter it
    cdef ReadContext rc
    cdef bytes start
    cdef bytes stop
    cdef bint reverse
    cdef bint started

    def __cinit__(self, Table table not None, start, stop, reverse, mode, fill_cache):
        _set_context(&self.rc, mode, fill_cache)
        self.rc.gil_held = True
        self.table = table
        self.start = None if start is None else bytes(start)
        self.stop = None if stop is None else bytes(stop)
        self.reverse = reverse
        table_iter_init(&self.it, table.c, &self.rc)

    def __dealloc__(self):
        table_iter_close(&self.it)

    cdef int _begin(self):
        if not self.reverse:
            if self.start is None:
                return table_iter_seek_first(&self.it)
            return table_iter_seek(&self.it, self.start, len(self.start))
        if self.stop is None:
            return table_iter_seek_last(&self.it)
        return table_iter_seek_for_prev(&self.it, self.stop, len(self.stop), False)

    cdef bint _outside(self):
        cdef Entry* e = &self.it.entry
        if self.reverse:
            return self.start is not None and lsm_compare(e.key, e.klen, self.start, len(self.start)) < 0
        return self.stop is not None and lsm_compare(e.key, e.klen, self.stop, len(self.stop)) >= 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef Entry* e = &self.it.entry
        cdef int code = ST_OK
        if not self.started:
            self.started = True
            code = self._begin()
        elif self.it.valid:
            code = table_iter_prev(&self.it) if self.reverse else table_iter_next(&self.it)
        if code != ST_OK:
            raise_status(&self.it.status, self.table.path)
        if not self.it.valid or self._outside():
            self.it.valid = False
            raise StopIteration
        value = None if e.is_delete else PyBytes_FromStringAndSize(e.value, e.vlen)
        return PyBytes_FromStringAndSize(e.key, e.klen), value, e.seq

    @property
    def counters(self):
        return {
            "cache_hits": self.rc.cache_hits,
            "disk_reads": self.rc.disk_reads,
            "disk_bytes": self.rc.disk_bytes,
            "disk_ns": self.rc.disk_ns,
            "decompressed": self.rc.decompressed,
        }

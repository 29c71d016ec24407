from libc.errno cimport EAGAIN, ENOENT
from libc.string cimport memcmp

from lsmkv_ext.block.block cimport block_alloc, block_check, block_free, block_get, block_number_pointers
from lsmkv_ext.cache.block_cache cimport cache_drain, cache_insert, cache_touch, cache_unpin
from lsmkv_ext.cache.fd_cache cimport fd_acquire, fd_note_read, fd_release
from lsmkv_ext.port.atomics cimport lsm_likely, lsm_load32
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.file cimport file_pread, file_preadv_cached, iovec
from lsmkv_ext.port.status cimport ST_NOT_FOUND, ST_OK, fail_corrupt, fail_io, fail_memory
from lsmkv_ext.table.format cimport FRAME_STORED, SECTION_DATA, Frame, frame_check, frame_unpack

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
    POOL_FROM = 4 << 20            # bytes cached before blocks come from the slab: fewer fit the processor's caches
    SCRATCH = 16384                # blocks up to this size are read onto the stack
    SHORT_READ = 64 << 10          # bytes copied from the page cache with the GIL held


# --- find a key's block ----------------------------------------------------------------------------------------------

cdef inline int _compare_sep(const TableC* t, uint32_t i, const char* rest, size_t n) noexcept nogil:
    return lsm_compare(t.seps + t.sep_at[i], t.sep_at[i + 1] - t.sep_at[i], rest, n)


cdef uint32_t _first_not_below(const TableC* t, uint32_t low, uint64_t target, const char* rest, size_t n) noexcept nogil:
    """Returns the first block from `low` on whose separator is >= rest. `low` is the first whose prefix is `target`."""
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
    return _first_not_below(t, <uint32_t>i, target, key + shared, klen - shared)


cdef uint64_t table_offset_of(const TableC* t, const char* key, size_t klen) noexcept nogil:
    cdef uint32_t i = table_find_block(t, key, klen)
    return t.offsets[i] if t.n_blocks else 0


# --- bytes -----------------------------------------------------------------------------------------------------------

cdef int table_pread(TableC* t, char* buf, size_t n, uint64_t offset, Status* st) noexcept nogil:
    cdef int fd = -1
    cdef size_t got = 0
    cdef int err
    if t.fds == NULL:
        fd = t.handle.fd
    else:
        err = fd_acquire(t.fds, &t.handle, &fd)
        if err == ENOENT:
            # Only a read-only handle can miss a file: its descriptor was evicted, and the writer unlinked the file.
            return fail_io(st, "the writer replaced a table; call refresh() on the read-only handle", err)
        if err != 0:
            return fail_io(st, "opening a table", err)
    err = file_pread(fd, buf, n, offset, &got)
    if t.fds != NULL:
        fd_release(t.fds, &t.handle)
    if err != 0:
        return fail_io(st, "reading a table", err)
    if got != n:
        return fail_corrupt(st, "table file is shorter than it says", t.number, offset + got)
    return ST_OK


cdef bint _pread_cached(TableC* t, char* buf, size_t n, uint64_t offset) noexcept nogil:
    """Reads n bytes that are in the page cache, of a file that is open. False: nothing was read."""
    cdef int fd = -1
    cdef size_t got = 0
    cdef iovec piece
    if lsm_load32(&t.handle.fd) < 0 or (t.fds != NULL and fd_acquire(t.fds, &t.handle, &fd) != 0):
        return False
    piece.iov_base = buf
    piece.iov_len = n
    file_preadv_cached(fd if t.fds != NULL else t.handle.fd, &piece, 1, offset, &got)
    if t.fds != NULL:
        fd_release(t.fds, &t.handle)
    return got == n


cdef inline void _note_read(TableC* t, uint64_t n, uint64_t start, ReadContext* rc) noexcept nogil:
    """After a read that began at `start`; before the thread waits for the GIL."""
    cdef uint64_t ns = lsm_now_ns() - start
    rc.disk_ns += ns
    if t.fds != NULL:
        fd_note_read(t.fds, n, ns)


cdef int refuse_wait(Status* st) noexcept nogil:
    return fail_io(st, "the read would wait for the disk", EAGAIN)


cdef int _pread(TableC* t, char* buf, size_t n, uint64_t offset, ReadContext* rc, Status* st) noexcept nogil:
    """Reads n bytes, with rc.gil_held without the GIL if that may wait for the disk. Beside a busy thread, getting the GIL back
    takes a thousand times as long as copying a few pages."""
    cdef PyThreadState* ts = NULL
    cdef uint64_t start = lsm_now_ns()
    cdef bint cached = rc.gil_held and n <= SHORT_READ and _pread_cached(t, buf, n, offset)
    cdef int code = ST_OK
    if rc.no_wait and not cached:
        return refuse_wait(st)
    if rc.gil_held and not cached:
        ts = PyEval_SaveThread()
    if not cached:
        code = table_pread(t, buf, n, offset, st)
    _note_read(t, n, start, rc)
    if ts != NULL:
        PyEval_RestoreThread(ts)
    return code


cdef int table_pread_counted(TableC* t, char* buf, size_t n, uint64_t offset, ReadContext* rc, Status* st) noexcept nogil:
    cdef int code = _pread(t, buf, n, offset, rc, st)
    rc.disk_reads += 1
    rc.disk_bytes += n
    return code


# --- blocks ----------------------------------------------------------------------------------------------------------

cdef int _check_block(TableC* t, BlockC* b, uint64_t offset, BlockC** out, Status* st) noexcept nogil:
    cdef const char* problem = block_check(b)
    if problem == NULL and b.has_kinds and t.footer.version == 1:
        problem = "entry kinds in a table of version 1"
    if problem != NULL:
        block_free(b)
        return fail_corrupt(st, problem, t.number, offset)
    if b.has_kinds and t.own_log:
        block_number_pointers(b, t.own_log)
    out[0] = b
    return ST_OK


cdef int _unpack_block(TableC* t, const Frame* f, uint64_t offset, bint pooled, BlockC** out, Status* st) noexcept nogil:
    cdef BlockC* b = block_alloc(f.raw_size, pooled)
    if b == NULL:
        return fail_memory(st, "block")
    if frame_unpack(f, b.data, t.number, offset, st) != ST_OK:
        block_free(b)
        return st.code
    return _check_block(t, b, offset, out, st)


cdef int table_decode_block(TableC* t, const char* frame, size_t n, uint64_t offset, bint pooled, BlockC** out,
                            Status* st) noexcept nogil:
    cdef Frame f
    cdef const char* problem = frame_check(frame, n, SECTION_DATA, offset, table_uses_zstd(t), &f)
    if problem != NULL:
        return fail_corrupt(st, problem, t.number, offset)
    return _unpack_block(t, &f, offset, pooled, out, st)


cdef bint table_pools_block(const TableC* t, const ReadContext* rc) noexcept nogil:
    return (t.cache != NULL and rc.fill_cache and not rc.compaction
            and t.cache.main.bytes + t.cache.probation.bytes >= POOL_FROM)


cdef int _read_large(TableC* t, size_t n, uint64_t offset, BlockC** out, Status* st) noexcept nogil:
    """Reads straight into a block: a stored frame needs no copy."""
    cdef Frame f
    cdef const char* problem
    cdef int code
    cdef BlockC* b = block_alloc(n, False)
    if b == NULL:
        return fail_memory(st, "block")
    code = table_pread(t, b.data, n, offset, st)
    if code == ST_OK:
        problem = frame_check(b.data, n, SECTION_DATA, offset, table_uses_zstd(t), &f)
        if problem != NULL:
            code = fail_corrupt(st, problem, t.number, offset)
        elif f.compression == FRAME_STORED:
            # The trailer stays after the data.
            b.raw_size = f.raw_size
            return _check_block(t, b, offset, out, st)
        else:
            code = _unpack_block(t, &f, offset, False, out, st)
    block_free(b)
    return code


cdef int _read_small(TableC* t, size_t n, uint64_t offset, ReadContext* rc, BlockC** out, Status* st) noexcept nogil:
    cdef char scratch[SCRATCH]
    cdef uint64_t start
    cdef int code = _pread(t, scratch, n, offset, rc, st)
    if code != ST_OK:
        return code
    start = lsm_now_ns()
    code = table_decode_block(t, scratch, n, offset, table_pools_block(t, rc), out, st)
    rc.disk_ns += lsm_now_ns() - start
    return code


cdef inline void _prefetch_victim(const CacheC* c) noexcept nogil:
    """Prefetches the lines that an eviction will change. With the GIL held the block at the hand is not freed."""
    cdef const BlockC* victim = c.main.hand
    if victim != NULL:
        lsm_prefetch(victim.slot)
        lsm_prefetch(victim.next)


cdef int table_load_block(TableC* t, uint32_t i, ReadContext* rc, BlockC** out, Status* st) noexcept nogil:
    cdef PyThreadState* ts = NULL
    cdef uint64_t offset = t.offsets[i]
    cdef size_t n = t.offsets[i + 1] - offset
    cdef uint64_t start
    cdef int code
    if rc.gil_held and t.cache != NULL and rc.fill_cache:
        _prefetch_victim(t.cache)
    if n <= SCRATCH:
        code = _read_small(t, n, offset, rc, out, st)
    elif rc.no_wait:
        return refuse_wait(st)
    else:
        # Large blocks take long to decode, too.
        if rc.gil_held:
            ts = PyEval_SaveThread()
        start = lsm_now_ns()
        code = _read_large(t, n, offset, out, st)
        _note_read(t, n, start, rc)
        if ts != NULL:
            PyEval_RestoreThread(ts)
    rc.disk_reads += 1
    rc.disk_bytes += n
    if code == ST_OK:
        rc.decompressed += out[0].raw_size
    return code


cdef BlockC* table_cache_block(TableC* t, uint32_t i, BlockC* b, ReadContext* rc, bint scan) noexcept nogil:
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
    out[0] = table_cache_block(t, i, b, rc, False)
    return ST_OK


cdef void table_unpin(TableC* t, BlockC* b) noexcept nogil:
    if b != NULL:
        cache_unpin(b)


# --- get -------------------------------------------------------------------------------------------------------------

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

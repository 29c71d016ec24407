from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset, strlen

from lsmkv_ext.port.codecs cimport lz4_bound, lz4_compress, xxh3, xxh3_pair
from lsmkv_ext.block.block cimport (
    BLOCK_MAX_RAW,
    block_builder_add,
    block_builder_alone,
    block_builder_finish,
    block_builder_free,
    block_builder_init,
    block_builder_reset,
    block_builder_size,
)
from lsmkv_ext.port.growable cimport buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.coding cimport put_u32, put_u64, put_varint
from lsmkv_ext.port.file cimport OPEN_CREATE, file_close, file_open, file_sync, file_write
from lsmkv_ext.filter.curve cimport filter_blocks_for, filter_k_for
from lsmkv_ext.filter.format cimport FILTER_HEADER_SIZE, filter_encode_header
from lsmkv_ext.filter.kernel cimport FILTER_BLOCK_BYTES, FilterC, filter_add_many, filter_count_missing
from lsmkv_ext.filter.prefix cimport filter_prefix_hash
from lsmkv_ext.port.alloc cimport lsm_free, lsm_alloc
from lsmkv_ext.port.status cimport ST_OK, fail_argument, fail_corrupt, fail_io, fail_memory
from lsmkv_ext.table.format cimport (
    FILTER_ALIGN,
    FOOTER_MAGIC_AT,
    FOOTER_SIZE,
    FOOTER_SUM_AT,
    FOOTER_SUMMED_FROM,
    FRAME_LZ4,
    FRAME_LZ4_MAX_RAW,
    FRAME_STORED,
    FRAME_TRAILER,
    KIND_DATA,
    KIND_FOOTER,
    KIND_INDEX,
    KIND_PROPS,
    KIND_RANGES,
    LARGE_VALUE,
    LSM_TABLE_MAGIC,
    OPEN_ALLOWANCE,
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_CREATED,
    PROP_DATA_BYTES,
    PROP_FILTER_BLOCKS,
    PROP_FILTER_KEYS,
    PROP_KEY_BYTES,
    PROP_LARGEST,
    PROP_LARGEST_EXCLUSIVE,
    PROP_LEVEL,
    PROP_MAX_SEQ,
    PROP_MIN_SEQ,
    PROP_N_BLOCKS,
    PROP_N_DELETES,
    PROP_N_ENTRIES,
    PROP_N_RANGE_TOMBSTONES,
    PROP_NUMBER,
    PROP_RESTART_INTERVAL,
    PROP_SEED,
    PROP_SMALLEST,
    PROP_VALUE_BYTES,
    RANGE_COST,
    TABLE_VERSION,
    RangeTombstone,
    block_cost,
    frame_seal,
    range_decode,
    section_seed,
)
from lsmkv_ext.limits cimport MAX_KEY, MAX_SEQ, MAX_VALUE
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.clock cimport lsm_now_ns

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #if defined(__linux__) && defined(SYNC_FILE_RANGE_WRITE)
    /* starts write-out early, so that the fsync at the end finds little to do; a hint, so errors are left to fsync */
    static inline void lsm_start_writeback(int fd, uint64_t from, uint64_t n) {
        (void)!sync_file_range(fd, (off_t)from, (off_t)n, SYNC_FILE_RANGE_WRITE);
    }
    #else
    static inline void lsm_start_writeback(int fd, uint64_t from, uint64_t n) { (void)fd; (void)from; (void)n; }
    #endif
    """
    void lsm_start_writeback(int fd, uint64_t offset, uint64_t n) noexcept

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef enum:
    OUT_BUFFER = 512 * 1024
    WRITEBACK_STEP = 4 << 20
    DEFAULT_BLOCK_SIZE = 4096
    MAX_BLOCK_SIZE = 16 << 20
    DEFAULT_INTERVAL = 8
    KEEP_BUFFER = 4 << 20          # a block builder grown beyond this by one huge value gives its memory back


# --- output -----------------------------------------------------------------------------------------------------------

cdef inline uint64_t _offset(const BuilderC* b) noexcept nogil:
    return b.written + b.out.len


cdef int _write_out(BuilderC* b, const char* p, size_t n, Status* st) noexcept nogil:
    cdef int err = file_write(b.fd, p, n)
    if err != 0:
        return fail_io(st, "writing a table", err)
    b.written += n
    if b.written - b.flushed >= WRITEBACK_STEP:
        lsm_start_writeback(b.fd, b.flushed, b.written - b.flushed)
        b.flushed = b.written
    return ST_OK


cdef int _flush_out(BuilderC* b, Status* st) noexcept nogil:
    cdef int code = ST_OK
    if b.out.len:
        code = _write_out(b, b.out.data, b.out.len, st)
        b.out.len = 0
    return code


cdef int _emit(BuilderC* b, const char* p, size_t n, Status* st) noexcept nogil:
    cdef bint direct = n > OUT_BUFFER // 2
    cdef int code
    # What is written past the buffer must not overtake what waits in it.
    if direct or b.out.len + n > OUT_BUFFER:
        code = _flush_out(b, st)
        if code != ST_OK:
            return code
    if direct:
        return _write_out(b, p, n, st)
    if buf_append(&b.out, p, n) != 0:
        return fail_memory(st, "table output buffer")
    return ST_OK


cdef int _emit_frame(BuilderC* b, GrowBuf* raw, int kind, uint64_t* size, Status* st) noexcept nogil:
    """raw, compressed where that is asked for and saves a sixteenth, with its trailer."""
    cdef GrowBuf* payload = raw
    cdef uint8_t compression = FRAME_STORED
    cdef size_t n = raw.len
    cdef int packed
    if n > BLOCK_MAX_RAW:
        return fail_argument(st, "table section too large")
    if b.o.compression == FRAME_LZ4 and 0 < n <= FRAME_LZ4_MAX_RAW:
        if buf_reserve(&b.packed, lz4_bound(<int>n) + FRAME_TRAILER) != 0:
            return fail_memory(st, "compression buffer")
        packed = lz4_compress(raw.data, b.packed.data, <int>n, lz4_bound(<int>n))
        if packed > 0 and <size_t>packed < n - n // 16:
            payload = &b.packed
            compression = FRAME_LZ4
            n = <size_t>packed
    if buf_reserve(raw, FRAME_TRAILER) != 0:
        return fail_memory(st, "block trailer")
    frame_seal(payload.data, n, <uint32_t>raw.len, compression, kind, _offset(b))
    size[0] = n + FRAME_TRAILER
    return _emit(b, payload.data, n + FRAME_TRAILER, st)


cdef int _emit_zeros(BuilderC* b, uint64_t n, Status* st) noexcept nogil:
    cdef char zeros[4096]
    cdef int code = ST_OK
    memset(zeros, 0, sizeof(zeros))
    while code == ST_OK and n > sizeof(zeros):
        code = _emit(b, zeros, sizeof(zeros), st)
        n -= sizeof(zeros)
    return _emit(b, zeros, n, st) if code == ST_OK else code


# --- life -------------------------------------------------------------------------------------------------------------

cdef void _free(BuilderC* b) noexcept nogil:
    block_builder_free(&b.block)
    buf_free(&b.out)
    buf_free(&b.packed)
    buf_free(&b.first_key)
    buf_free(&b.last_key)
    buf_free(&b.last_sep)
    buf_free(&b.index)
    buf_free(&b.hashes)
    buf_free(&b.ranges)
    free(b.path)
    b.path = NULL
    b.fd = -1


cdef int builder_open(BuilderC* b, const char* path, const BuilderOptions* o, Status* st) noexcept nogil:
    cdef size_t n = strlen(path)
    cdef int err
    memset(b, 0, sizeof(BuilderC))
    b.fd = -1
    b.o = o[0]
    if b.o.block_size == 0:
        b.o.block_size = DEFAULT_BLOCK_SIZE
    if b.o.block_size > MAX_BLOCK_SIZE:
        return fail_argument(st, "block_size is at most 16 MiB")
    if b.o.restart_interval == 0:
        b.o.restart_interval = DEFAULT_INTERVAL
    block_builder_init(&b.block, b.o.restart_interval)
    b.path = <char*>malloc(n + 1)
    if b.path == NULL or buf_reserve(&b.out, OUT_BUFFER) != 0:
        _free(b)
        return fail_memory(st, "table builder")
    memcpy(b.path, path, n + 1)
    err = file_open(path, OPEN_CREATE, &b.fd)
    if err != 0:
        _free(b)
        return fail_io(st, "creating a table", err)
    b.s.min_seq = <uint64_t>-1
    return ST_OK


cdef void builder_abandon(BuilderC* b) noexcept nogil:
    if b.path != NULL:
        if b.fd >= 0:
            file_close(b.fd)
        unlink(b.path)
    _free(b)


cdef void builder_drop_filter(BuilderC* b) noexcept nogil:
    b.o.millibits = 0
    buf_free(&b.hashes)


cdef uint64_t builder_size(const BuilderC* b) noexcept nogil:
    cdef uint64_t n = _offset(b) + b.index.len + builder_padding(b)
    if b.block.n_entries:
        n += block_builder_size(&b.block)
    return n


cdef uint64_t builder_padding(const BuilderC* b) noexcept nogil:
    # Index and range tombstones are counted packed and unpacked, as a reader holds both for a moment; properties of at most four
    # keys' length come on top.
    cdef uint64_t need = (b.index_cost + 2 * b.index.len + 2 * b.ranges.len + 4 * MAX_KEY
                          + b.s.n_range_tombstones * RANGE_COST)
    cdef uint64_t have = _offset(b) + OPEN_ALLOWANCE
    return need - have if need > have else 0


cdef void summary_free(TableSummary* s) noexcept nogil:
    free(s.smallest)
    free(s.largest)
    s.smallest = NULL
    s.largest = NULL


# --- index ------------------------------------------------------------------------------------------------------------

cdef int _index_entry(BuilderC* b, const char* sep, size_t n, Status* st) noexcept nogil:
    """The finished block gets its separator."""
    cdef size_t shared = 0
    cdef size_t limit = min(n, b.last_sep.len)
    cdef char* p
    while shared < limit and sep[shared] == b.last_sep.data[shared]:
        shared += 1
    if buf_reserve(&b.index, n - shared + 40) != 0:
        return fail_memory(st, "table index")
    p = put_varint(b.index.data + b.index.len, shared)
    p = put_varint(p, n - shared)
    if n > shared:
        memcpy(p, sep + shared, n - shared)
    p = put_varint(p + (n - shared), b.pending_size)
    p = put_varint(p, b.pending_entries)
    b.index.len = <size_t>(p - b.index.data)
    if buf_assign(&b.last_sep, sep, n) != 0:
        return fail_memory(st, "table index")
    b.pending = 0
    b.s.n_blocks += 1
    b.index_cost += block_cost(n)
    return ST_OK


cdef int _separate(BuilderC* b, const char* key, size_t klen, Status* st) noexcept nogil:
    """A short s with last key <= s < key: key's first bytes up to where the two differ, unless that is all of key."""
    cdef size_t same = 0
    cdef size_t limit = min(klen, b.last_key.len)
    while same < limit and key[same] == b.last_key.data[same]:
        same += 1
    if klen > same + 1 and same + 1 <= b.last_key.len:
        return _index_entry(b, key, same + 1, st)
    return _index_entry(b, b.last_key.data, b.last_key.len, st)


cdef int _cut_block(BuilderC* b, Status* st) noexcept nogil:
    cdef int code
    b.pending_entries = b.block.n_entries
    if block_builder_finish(&b.block) != ST_OK:
        return fail_memory(st, "block")
    code = _emit_frame(b, &b.block.raw, KIND_DATA, &b.pending_size, st)
    if code != ST_OK:
        return code
    b.pending = 1
    if b.block.raw.cap > KEEP_BUFFER:
        block_builder_free(&b.block)
        buf_free(&b.packed)
    block_builder_reset(&b.block)
    return ST_OK


cdef int _emit_alone(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq, int is_delete,
                     uint64_t hash, Status* st) noexcept nogil:
    """A block of one entry, stored, its value written from where it is. What _emit_frame would write without compression."""
    cdef GrowBuf* rest = &b.block.raw
    cdef uint64_t checksum = 0
    cdef size_t n
    cdef int code
    if block_builder_alone(&b.block, key, klen, vlen, seq, is_delete, hash) != ST_OK or buf_reserve(rest, FRAME_TRAILER) != 0:
        return fail_memory(st, "block")
    n = rest.len
    if vlen + n > BLOCK_MAX_RAW:
        return fail_argument(st, "table section too large")
    put_u32(rest.data + n, <uint32_t>(vlen + n))
    rest.data[n + 4] = FRAME_STORED
    if xxh3_pair(val, vlen, rest.data, n + 5, section_seed(KIND_DATA, _offset(b)), &checksum) != 0:
        return fail_memory(st, "checksum")
    put_u32(rest.data + n + 5, <uint32_t>checksum)
    b.pending = 1
    b.pending_entries = 1
    b.pending_size = vlen + n + FRAME_TRAILER
    code = _emit(b, val, vlen, st)
    if code == ST_OK:
        code = _emit(b, rest.data, n + FRAME_TRAILER, st)
    block_builder_reset(&b.block)
    return code


# --- entries ----------------------------------------------------------------------------------------------------------

cdef int builder_add_hash(BuilderC* b, const char* key, size_t klen, uint64_t hash, Status* st) noexcept nogil:
    cdef int has = 0
    cdef uint64_t prefix
    if b.o.millibits == 0:
        return ST_OK
    if buf_append(&b.hashes, &hash, 8) != 0:
        return fail_memory(st, "hashes of a filter")
    if b.o.prefix_kind == 0:
        return ST_OK
    prefix = filter_prefix_hash(b.o.prefix_kind, b.o.prefix_arg, key, klen, b.o.seed, &has)
    if not has or (b.has_prefix and prefix == b.last_prefix_hash):
        return ST_OK
    b.has_prefix = 1
    b.last_prefix_hash = prefix
    if buf_append(&b.hashes, &prefix, 8) != 0:
        return fail_memory(st, "hashes of a filter")
    return ST_OK


cdef inline void _saw_seq(BuilderC* b, uint64_t seq) noexcept nogil:
    b.s.min_seq = min(b.s.min_seq, seq)
    b.s.max_seq = max(b.s.max_seq, seq)


cdef int builder_add(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq,
                     int is_delete, uint64_t hash, Status* st) noexcept nogil:
    cdef int code
    if klen > MAX_KEY or vlen > MAX_VALUE or seq >= MAX_SEQ:
        return fail_argument(st, "key, value or sequence number beyond its limit")
    if b.s.n_entries:
        if lsm_compare(b.last_key.data, b.last_key.len, key, klen) >= 0:
            return fail_argument(st, "keys must be added in strictly increasing order")
    elif buf_assign(&b.first_key, key, klen) != 0:
        return fail_memory(st, "key")
    if b.block.n_entries and klen + vlen >= b.o.block_size:
        # An entry as large as a block stands alone: reading its neighbours must not drag it in.
        code = _cut_block(b, st)
        if code != ST_OK:
            return code
    if b.pending:
        code = _separate(b, key, klen, st)
        if code != ST_OK:
            return code
    code = builder_add_hash(b, key, klen, hash, st)
    if code != ST_OK:
        return code
    if vlen > LARGE_VALUE:
        code = _emit_alone(b, key, klen, val, vlen, seq, is_delete, hash, st)
        if code != ST_OK:
            return code
    elif block_builder_add(&b.block, key, klen, val, vlen, seq, is_delete, hash) != ST_OK:
        return fail_memory(st, "block")
    if buf_assign(&b.last_key, key, klen) != 0:
        return fail_memory(st, "key")
    b.s.n_entries += 1
    b.s.n_deletes += is_delete != 0
    b.key_bytes += klen
    b.value_bytes += vlen
    _saw_seq(b, seq)
    if block_builder_size(&b.block) >= b.o.block_size:
        return _cut_block(b, st)
    return ST_OK


cdef int builder_add_frames(BuilderC* b, const char* frames, size_t n, Status* st) noexcept nogil:
    # Past the output buffer: large already, and a copy less.
    cdef int code = _flush_out(b, st)
    return _write_out(b, frames, n, st) if code == ST_OK else code


cdef int builder_add_block(BuilderC* b, size_t frame_size, uint64_t n_entries, const char* sep, size_t sep_len,
                           Status* st) noexcept nogil:
    b.pending_size = frame_size
    b.pending_entries = <uint32_t>n_entries
    return _index_entry(b, sep, sep_len, st)


cdef int _order_of(const char* a, size_t n, uint64_t a_seq, const char* b, size_t m, uint64_t b_seq) noexcept nogil:
    """Of two range tombstones in their section: by start, then newest first."""
    cdef int r = lsm_compare(a, n, b, m)
    return r if r != 0 else (a_seq < b_seq) - (a_seq > b_seq)


cdef void _put_range(GrowBuf* out, const char* start, size_t start_len, const char* stop, size_t stop_len,
                     uint64_t seq) noexcept nogil:
    """There is room for both keys and 30 bytes more."""
    cdef char* p = put_varint(out.data + out.len, start_len)
    p = put_varint(p, stop_len)
    p = put_varint(p, seq)
    if start_len:
        memcpy(p, start, start_len)
    memcpy(p + start_len, stop, stop_len)
    out.len = <size_t>(p - out.data) + start_len + stop_len


cdef int builder_add_range_tombstone(BuilderC* b, const char* start, size_t start_len, const char* stop, size_t stop_len,
                                  uint64_t seq, Status* st) noexcept nogil:
    cdef RangeTombstone last
    if start_len > MAX_KEY or stop_len > MAX_KEY or seq >= MAX_SEQ:
        return fail_argument(st, "key or sequence number beyond its limit")
    if lsm_compare(start, start_len, stop, stop_len) >= 0:
        return fail_argument(st, "a range tombstone needs start < stop")
    if buf_reserve(&b.ranges, start_len + stop_len + 30) != 0:
        return fail_memory(st, "range tombstone")
    if b.s.n_range_tombstones:
        range_decode(b.ranges.data + b.last_range, b.ranges.data + b.ranges.len, &last)
        b.ranges_unsorted |= _order_of(last.start, last.start_len, last.seq, start, start_len, seq) > 0
    b.last_range = b.ranges.len
    _put_range(&b.ranges, start, start_len, stop, stop_len, seq)
    b.s.n_range_tombstones += 1
    _saw_seq(b, seq)
    return ST_OK


# --- the end of the file ----------------------------------------------------------------------------------------------

cdef int _compare_ranges(const void* a, const void* b) noexcept nogil:
    cdef const RangeTombstone* x = <const RangeTombstone*>a
    cdef const RangeTombstone* y = <const RangeTombstone*>b
    return _order_of(x.start, x.start_len, x.seq, y.start, y.start_len, y.seq)


cdef int _sort_ranges(BuilderC* b, Status* st) noexcept nogil:
    cdef size_t n = b.s.n_range_tombstones
    cdef RangeTombstone* order = <RangeTombstone*>malloc(n * sizeof(RangeTombstone))
    cdef const char* p = b.ranges.data
    cdef const char* end = p + b.ranges.len
    cdef GrowBuf unsorted = b.ranges
    cdef size_t i
    cdef int code = ST_OK
    if order == NULL:
        return fail_memory(st, "range tombstones")
    for i in range(n):
        p = range_decode(p, end, &order[i])
    qsort(order, n, sizeof(RangeTombstone), _compare_ranges)
    memset(&b.ranges, 0, sizeof(GrowBuf))
    for i in range(n):
        if buf_reserve(&b.ranges, order[i].start_len + order[i].stop_len + 30) != 0:
            code = fail_memory(st, "range tombstones")
            break
        _put_range(&b.ranges, order[i].start, order[i].start_len, order[i].stop, order[i].stop_len, order[i].seq)
    b.ranges_unsorted = 0
    buf_free(&unsorted)
    free(order)
    return code


cdef int _widen(BuilderC* b, const RangeTombstone* r) noexcept nogil:
    cdef bint empty = b.s.n_entries == 0 and not b.any
    b.any = 1
    if empty or lsm_compare(r.start, r.start_len, b.first_key.data, b.first_key.len) < 0:
        if buf_assign(&b.first_key, r.start, r.start_len) != 0:
            return -1
    if empty or lsm_compare(r.stop, r.stop_len, b.last_key.data, b.last_key.len) > 0:
        b.s.largest_exclusive = 1
        return buf_assign(&b.last_key, r.stop, r.stop_len)
    return 0


cdef int _write_ranges(BuilderC* b, uint64_t* at, uint64_t* size, Status* st) noexcept nogil:
    """Widens the builder's key range by them, too."""
    cdef const char* p
    cdef RangeTombstone r
    at[0] = _offset(b)
    size[0] = 0
    if b.s.n_range_tombstones == 0:
        return ST_OK
    if b.ranges_unsorted and _sort_ranges(b, st) != ST_OK:
        return st.code
    p = b.ranges.data
    while p != b.ranges.data + b.ranges.len:
        p = range_decode(p, b.ranges.data + b.ranges.len, &r)
        if _widen(b, &r) != 0:
            return fail_memory(st, "range tombstones")
    return _emit_frame(b, &b.ranges, KIND_RANGES, size, st)


cdef int _build_filter(BuilderC* b, FilterC* f, void** alloc, Status* st) noexcept nogil:
    """Bits in *alloc (64-byte aligned at f.bits), checked against every hash that went in."""
    cdef size_t n = b.hashes.len // 8
    cdef const uint64_t* hashes = <const uint64_t*>b.hashes.data
    cdef uint64_t start = lsm_now_ns()
    f.n_keys = n
    f.n_blocks = filter_blocks_for(n, b.o.millibits)
    f.k = filter_k_for(b.o.millibits)
    f.millibits = b.o.millibits
    alloc[0] = lsm_alloc((f.n_blocks + 1) * FILTER_BLOCK_BYTES)
    if alloc[0] == NULL:
        return fail_memory(st, "filter")
    memset(alloc[0], 0, (f.n_blocks + 1) * FILTER_BLOCK_BYTES)
    f.bits = <const uint8_t*>((<size_t>alloc[0] + FILTER_ALIGN - 1) & ~<size_t>(FILTER_ALIGN - 1))
    filter_add_many(<uint8_t*>f.bits, f.n_blocks, f.k, hashes, n)
    f.usable = 1
    b.s.filter_build_ns = lsm_now_ns() - start
    if b.o.verify_filter:
        if filter_count_missing(f, hashes, n) != 0:
            return fail_corrupt(st, "a new filter denies a key that it holds", b.o.number, _offset(b))
        b.s.filter_verify_ns = lsm_now_ns() - start - b.s.filter_build_ns
    return ST_OK


cdef int _write_filter(BuilderC* b, char* header, uint64_t* at, uint64_t* size, Status* st) noexcept nogil:
    cdef FilterC f
    cdef void* alloc = NULL
    cdef int code = ST_OK
    memset(&f, 0, sizeof(FilterC))
    f.seed = b.o.seed
    f.level = b.o.level
    f.prefix_kind = b.o.prefix_kind
    f.prefix_arg = b.o.prefix_arg
    if b.o.millibits and b.hashes.len:
        code = _build_filter(b, &f, &alloc, st)
        if code == ST_OK:
            code = _emit_zeros(b, -_offset(b) & (FILTER_ALIGN - 1), st)
    at[0] = _offset(b)
    size[0] = f.n_blocks * FILTER_BLOCK_BYTES
    if code == ST_OK:
        filter_encode_header(&f, header)
        if size[0]:
            code = _emit(b, <const char*>f.bits, size[0], st)
    lsm_free(alloc)
    b.s.filter_bytes = size[0]
    b.s.filter_keys = f.n_keys
    b.s.millibits = f.millibits
    b.s.k = f.k
    b.s.level = b.o.level
    b.filter_blocks = f.n_blocks
    return code


cdef int _prop(GrowBuf* out, int id, const void* p, size_t n) noexcept nogil:
    cdef char head[20]
    cdef char* end = put_varint(put_varint(head, id), n)
    if buf_append(out, head, <size_t>(end - head)) != 0:
        return -1
    return buf_append(out, p, n)


cdef int _prop_number(GrowBuf* out, int id, uint64_t v) noexcept nogil:
    cdef char le[8]
    put_u64(le, v)
    return _prop(out, id, le, 8)


cdef int _encode_props(BuilderC* b, GrowBuf* out) noexcept nogil:
    cdef TableSummary* s = &b.s
    return (_prop_number(out, PROP_N_ENTRIES, s.n_entries)
            | _prop_number(out, PROP_N_DELETES, s.n_deletes)
            | _prop_number(out, PROP_N_RANGE_TOMBSTONES, s.n_range_tombstones)
            | _prop_number(out, PROP_KEY_BYTES, b.key_bytes)
            | _prop_number(out, PROP_VALUE_BYTES, b.value_bytes)
            | _prop_number(out, PROP_DATA_BYTES, s.data_bytes)
            | _prop_number(out, PROP_N_BLOCKS, s.n_blocks)
            | _prop_number(out, PROP_MIN_SEQ, s.min_seq)
            | _prop_number(out, PROP_MAX_SEQ, s.max_seq)
            | _prop_number(out, PROP_SEED, b.o.seed)
            | _prop(out, PROP_SMALLEST, b.first_key.data, b.first_key.len)
            | _prop(out, PROP_LARGEST, b.last_key.data, b.last_key.len)
            | _prop_number(out, PROP_LARGEST_EXCLUSIVE, s.largest_exclusive)
            | _prop_number(out, PROP_NUMBER, b.o.number)
            | _prop_number(out, PROP_CREATED, b.o.created_unix)
            | _prop_number(out, PROP_LEVEL, b.o.level)
            | _prop_number(out, PROP_COMPRESSION, b.o.compression)
            | _prop_number(out, PROP_BLOCK_SIZE, b.o.block_size)
            | _prop_number(out, PROP_RESTART_INTERVAL, 1 << b.block.shift)
            | _prop_number(out, PROP_FILTER_KEYS, s.filter_keys)
            | _prop_number(out, PROP_FILTER_BLOCKS, b.filter_blocks))


cdef int _write_props(BuilderC* b, uint64_t* at, uint64_t* size, Status* st) noexcept nogil:
    cdef GrowBuf raw
    cdef int code
    memset(&raw, 0, sizeof(GrowBuf))
    at[0] = _offset(b)
    if _encode_props(b, &raw) != 0:
        code = fail_memory(st, "properties")
    else:
        code = _emit_frame(b, &raw, KIND_PROPS, size, st)
    buf_free(&raw)
    return code


cdef int _write_index(BuilderC* b, uint64_t* at, uint64_t* size, Status* st) noexcept nogil:
    at[0] = _offset(b)
    return _emit_frame(b, &b.index, KIND_INDEX, size, st)


cdef int _write_tail(BuilderC* b, Status* st) noexcept nogil:
    cdef char footer[FOOTER_SIZE]
    cdef uint64_t at[8]            # offset and size of index, filter, range tombstones, properties
    cdef uint64_t padding = builder_padding(b)
    cdef int code, i
    memset(footer, 0, FOOTER_SIZE)
    b.s.data_bytes = _offset(b)
    code = _write_index(b, &at[0], &at[1], st)
    if code == ST_OK:
        code = _emit_zeros(b, padding, st)
    if code == ST_OK:
        code = _write_filter(b, footer, &at[2], &at[3], st)
    if code == ST_OK:
        code = _write_ranges(b, &at[4], &at[5], st)
    if code == ST_OK:
        if b.s.min_seq > b.s.max_seq:
            b.s.min_seq = 0
        code = _write_props(b, &at[6], &at[7], st)
    if code != ST_OK:
        return code
    for i in range(8):
        put_u64(footer + FILTER_HEADER_SIZE + 8 * i, at[i])
    put_u64(footer + 128, b.s.data_bytes)
    put_u32(footer + 136, TABLE_VERSION)
    put_u64(footer + FOOTER_SUM_AT, xxh3(footer + FOOTER_SUMMED_FROM, FOOTER_SUM_AT - FOOTER_SUMMED_FROM,
                                                section_seed(KIND_FOOTER, 0)))
    put_u64(footer + FOOTER_MAGIC_AT, LSM_TABLE_MAGIC)
    b.s.index_bytes = at[1]
    return _emit(b, footer, FOOTER_SIZE, st)


cdef int _seal(BuilderC* b, Status* st) noexcept nogil:
    cdef int code = _flush_out(b, st)
    cdef int err
    if code != ST_OK:
        return code
    err = file_sync(b.fd)
    if err != 0:
        return fail_io(st, "fsync of a table", err)
    err = file_close(b.fd)
    b.fd = -1
    if err != 0:
        return fail_io(st, "closing a table", err)
    return ST_OK


cdef int _take_summary(BuilderC* b, TableSummary* out, Status* st) noexcept nogil:
    out[0] = b.s
    out.file_size = b.written
    out.raw_bytes = b.key_bytes + b.value_bytes
    out.smallest_len = b.first_key.len
    out.largest_len = b.last_key.len
    out.smallest = <char*>malloc(b.first_key.len + 1)
    out.largest = <char*>malloc(b.last_key.len + 1)
    if out.smallest == NULL or out.largest == NULL:
        summary_free(out)
        return fail_memory(st, "table summary")
    if out.smallest_len:
        memcpy(out.smallest, b.first_key.data, out.smallest_len)
    if out.largest_len:
        memcpy(out.largest, b.last_key.data, out.largest_len)
    return ST_OK


cdef int builder_finish(BuilderC* b, TableSummary* out, Status* st) noexcept nogil:
    cdef int code = ST_OK
    memset(out, 0, sizeof(TableSummary))
    if b.block.n_entries:
        code = _cut_block(b, st)
    if code == ST_OK and b.pending:
        code = _index_entry(b, b.last_key.data, b.last_key.len, st)
    if code == ST_OK:
        code = _write_tail(b, st)
    if code == ST_OK:
        code = _seal(b, st)
    if code == ST_OK:
        code = _take_summary(b, out, st)
    if code != ST_OK:
        builder_abandon(b)
        return code
    _free(b)
    return ST_OK

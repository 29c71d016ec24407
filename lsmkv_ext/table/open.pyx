from libc.errno cimport ENOENT
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from lsmkv_ext.port.codecs cimport lz4_decompress, xxh3
from lsmkv_ext.block.block cimport BlockC
from lsmkv_ext.cache.block_cache cimport cache_release, cache_remove, cache_reserve
from lsmkv_ext.port.coding cimport get_u32, get_u64, get_varint, put_varint, varint_size
from lsmkv_ext.cache.fd_cache cimport fd_acquire, fd_forget, fd_release
from lsmkv_ext.port.file cimport OPEN_READ, file_close, file_open, file_pread, file_size
from lsmkv_ext.filter.format cimport FILTER_BAD_GEOMETRY, FILTER_HEADER_SIZE, filter_decode
from lsmkv_ext.port.alloc cimport lsm_free, lsm_alloc
from lsmkv_ext.port.page_run cimport page_run_alloc, page_run_free
from lsmkv_ext.port.status cimport ST_OK, fail_corrupt, fail_io, fail_memory
from lsmkv_ext.table.table cimport INDEX_FANOUT, INDEX_MAX_LEVELS
from lsmkv_ext.table.format cimport (
    FOOTER_MAGIC_AT,
    FOOTER_SIZE,
    FOOTER_SUM_AT,
    FOOTER_SUMMED_FROM,
    FRAME_LZ4,
    FRAME_LZ4_MAX_RAW,
    FRAME_STORED,
    FRAME_TRAILER,
    KIND_FOOTER,
    KIND_INDEX,
    KIND_PROPS,
    KIND_RANGES,
    LSM_TABLE_MAGIC,
    OPEN_ALLOWANCE,
    PROP_DATA_BYTES,
    PROP_FILTER_BLOCKS,
    PROP_FILTER_KEYS,
    PROP_LARGEST,
    PROP_LARGEST_EXCLUSIVE,
    PROP_MAX_SEQ,
    PROP_MIN_SEQ,
    PROP_N_BLOCKS,
    PROP_N_DELETES,
    PROP_N_ENTRIES,
    PROP_N_RANGE_TOMBSTONES,
    PROP_SEED,
    PROP_SMALLEST,
    RANGE_SHIFT,
    RANGES_SPARSE,
    TABLE_VERSION,
    RangeTombstone,
    frame_intact,
    range_decode,
    section_seed,
)
from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #ifdef MADV_HUGEPAGE
    /* a probe of a large filter is one cache miss; huge pages spare it the page walk */
    static inline void lsm_advise_huge(char* p, uint64_t n) {
        const uintptr_t huge = (uintptr_t)2 << 20;
        uintptr_t from = ((uintptr_t)p + huge - 1) & ~(huge - 1);
        uintptr_t to = ((uintptr_t)p + n) & ~(huge - 1);
        if (to > from) (void)!madvise((void*)from, to - from, MADV_HUGEPAGE);
    }
    #else
    static inline void lsm_advise_huge(char* p, uint64_t n) { (void)p; (void)n; }
    #endif
    """
    void lsm_advise_huge(char* p, uint64_t n) noexcept

cdef enum:
    MIN_INDEX_ENTRY = 4            # bytes: four lengths of one byte each
    MIN_RANGE = 4                  # bytes: three numbers and a stop key


# --- memory -----------------------------------------------------------------------------------------------------------

cdef void* _claim(TableC* t, uint64_t n, Status* st) noexcept nogil:
    """n bytes out of the table's allowance; NULL with *st set. Sizes come from the file, which may be hostile: the writer
    sees to it that a table of its own always stays within (builder_padding)."""
    cdef void* p
    if n > t.room:
        fail_corrupt(st, "table asks for more memory than its size allows", t.number, t.file_size)
        return NULL
    p = lsm_alloc(n)
    if p == NULL:
        fail_memory(st, "table")
        return NULL
    t.room -= n
    return p


cdef void _give_back(TableC* t, void* p, uint64_t n) noexcept nogil:
    if p != NULL:
        t.room += n
        lsm_free(p)


# --- bytes ------------------------------------------------------------------------------------------------------------

cdef int table_pread(TableC* t, char* buf, size_t n, uint64_t offset, Status* st) noexcept nogil:
    cdef int fd = -1
    cdef size_t got = 0
    cdef int err
    if t.fds == NULL:
        fd = t.handle.fd
    else:
        err = fd_acquire(t.fds, &t.handle, &fd)
        if err == ENOENT:
            # Only a handle beside the writer can miss a file: its descriptor had to make room, and the writer removed the name.
            return fail_io(st, "a table was replaced by the writer; refresh() brings a read-only handle up to date", err)
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


cdef int frame_check(TableC* t, const char* frame, size_t n, int kind, uint64_t offset, uint32_t* raw_size,
                     int* compression, Status* st) noexcept nogil:
    cdef size_t payload
    if not frame_intact(frame, n, kind, offset):
        return fail_corrupt(st, "checksum mismatch", t.number, offset)
    payload = n - FRAME_TRAILER
    raw_size[0] = get_u32(frame + payload)
    compression[0] = <uint8_t>frame[payload + 4]
    if compression[0] == FRAME_STORED and raw_size[0] == payload:
        return ST_OK
    # LZ4 cannot expand by more than 255.
    if compression[0] == FRAME_LZ4 and raw_size[0] <= FRAME_LZ4_MAX_RAW and raw_size[0] <= 255 * <uint64_t>payload:
        return ST_OK
    return fail_corrupt(st, "impossible size or unknown compression", t.number, offset)


cdef int frame_unpack(TableC* t, const char* frame, size_t n, uint32_t raw_size, int compression, char* raw,
                      uint64_t offset, Status* st) noexcept nogil:
    if compression == FRAME_STORED:
        memcpy(raw, frame, raw_size)
        return ST_OK
    if lz4_decompress(frame, raw, <int>(n - FRAME_TRAILER), <int>raw_size) != <int>raw_size:
        return fail_corrupt(st, "compressed block does not unpack", t.number, offset)
    return ST_OK


cdef int _section(TableC* t, uint64_t at, uint64_t size, int kind, char** raw, size_t* raw_len,
                  Status* st) noexcept nogil:
    """Reads, checks and unpacks one framed section into memory that the caller owns. (A stored one keeps its trailer.)"""
    cdef uint32_t raw_size = 0
    cdef int compression = 0
    cdef int code
    cdef char* frame = <char*>_claim(t, size, st)
    raw[0] = NULL
    raw_len[0] = 0
    if frame == NULL:
        return st.code
    code = table_pread(t, frame, size, at, st)
    if code == ST_OK:
        code = frame_check(t, frame, size, kind, at, &raw_size, &compression, st)
    if code == ST_OK and compression == FRAME_STORED:
        raw[0] = frame
        raw_len[0] = raw_size
        return ST_OK
    if code == ST_OK:
        raw[0] = <char*>_claim(t, raw_size, st)
        code = st.code if raw[0] == NULL else frame_unpack(t, frame, size, raw_size, compression, raw[0], at, st)
        raw_len[0] = raw_size
    _give_back(t, frame, size)
    return code


# --- footer and properties --------------------------------------------------------------------------------------------

cdef inline bint _inside(uint64_t at, uint64_t size, uint64_t start, uint64_t end) noexcept nogil:
    return at >= start and at <= end and size <= end - at


cdef int _read_footer(TableC* t, Status* st) noexcept nogil:
    cdef char f[FOOTER_SIZE]
    cdef uint64_t end
    cdef int code
    if t.file_size < FOOTER_SIZE:
        return fail_corrupt(st, "file too short for a table", t.number, 0)
    end = t.file_size - FOOTER_SIZE
    code = table_pread(t, f, FOOTER_SIZE, end, st)
    if code != ST_OK:
        return code
    if get_u64(f + FOOTER_MAGIC_AT) != LSM_TABLE_MAGIC:
        return fail_corrupt(st, "no table: the magic number is missing", t.number, end + FOOTER_MAGIC_AT)
    if get_u64(f + FOOTER_SUM_AT) != xxh3(f + FOOTER_SUMMED_FROM, FOOTER_SUM_AT - FOOTER_SUMMED_FROM,
                                                 section_seed(KIND_FOOTER, 0)):
        return fail_corrupt(st, "checksum mismatch in the footer", t.number, end)
    if get_u32(f + 136) != TABLE_VERSION or get_u32(f + 140) != 0:
        return fail_corrupt(st, "table of an unknown format version", t.number, end + 136)
    memcpy(t.filter_header, f, FILTER_HEADER_SIZE)
    t.index_at = get_u64(f + 64)
    t.index_size = get_u64(f + 72)
    t.filter_at = get_u64(f + 80)
    t.filter_size = get_u64(f + 88)
    t.ranges_at = get_u64(f + 96)
    t.ranges_size = get_u64(f + 104)
    t.props_at = get_u64(f + 112)
    t.props_size = get_u64(f + 120)
    t.data_end = get_u64(f + 128)
    if not (t.data_end == t.index_at and _inside(t.index_at, t.index_size, 0, end)
            and _inside(t.filter_at, t.filter_size, t.index_at + t.index_size, end)
            and _inside(t.ranges_at, t.ranges_size, t.filter_at + t.filter_size, end)
            and _inside(t.props_at, t.props_size, t.ranges_at + t.ranges_size, end)):
        return fail_corrupt(st, "sections of the table do not fit into the file", t.number, end)
    return ST_OK


cdef bint _find_prop(const TableC* t, int id, const char** value, size_t* n) noexcept nogil:
    """False where it is missing or the list breaks off."""
    cdef const char* p = t.props
    cdef const char* end = p + t.props_len
    cdef uint64_t got = 0, size = 0
    while p < end:
        p = get_varint(p, end, &got)
        if p == NULL:
            return False
        p = get_varint(p, end, &size)
        if p == NULL or size > <uint64_t>(end - p):
            return False
        if got == <uint64_t>id:
            value[0] = p
            n[0] = size
            return True
        p += size
    return False


cdef uint64_t table_prop(const TableC* t, int id) noexcept nogil:
    cdef const char* p = NULL
    cdef size_t n = 0
    if not _find_prop(t, id, &p, &n) or n != 8:
        return 0
    return get_u64(p)


cdef int _copy_prop(TableC* t, int id, char** out, size_t* out_len, Status* st) noexcept nogil:
    cdef const char* p = NULL
    cdef size_t n = 0
    if not _find_prop(t, id, &p, &n) or n > MAX_KEY:
        return fail_corrupt(st, "properties lack the key range", t.number, t.props_at)
    out[0] = <char*>_claim(t, n, st)
    if out[0] == NULL:
        return st.code
    memcpy(out[0], p, n)
    out_len[0] = n
    return ST_OK


cdef int _read_props(TableC* t, Status* st) noexcept nogil:
    cdef uint64_t n_blocks
    cdef int code = _section(t, t.props_at, t.props_size, KIND_PROPS, &t.props, &t.props_len, st)
    if code != ST_OK:
        return code
    t.n_entries = table_prop(t, PROP_N_ENTRIES)
    t.n_deletes = table_prop(t, PROP_N_DELETES)
    t.min_seq = table_prop(t, PROP_MIN_SEQ)
    t.max_seq = table_prop(t, PROP_MAX_SEQ)
    if t.global_seq:
        t.min_seq = t.global_seq
        t.max_seq = t.global_seq
    t.seed = table_prop(t, PROP_SEED)
    t.largest_exclusive = table_prop(t, PROP_LARGEST_EXCLUSIVE) != 0
    n_blocks = table_prop(t, PROP_N_BLOCKS)
    if n_blocks >> 31 != 0 or n_blocks * FRAME_TRAILER > t.data_end or table_prop(t, PROP_DATA_BYTES) != t.data_end:
        return fail_corrupt(st, "properties contradict the file", t.number, t.props_at)
    t.n_blocks = <uint32_t>n_blocks
    code = _copy_prop(t, PROP_SMALLEST, &t.smallest, &t.smallest_len, st)
    if code == ST_OK:
        code = _copy_prop(t, PROP_LARGEST, &t.largest, &t.largest_len, st)
    return code


# --- index ------------------------------------------------------------------------------------------------------------

ctypedef struct IndexEntry:
    uint64_t shared
    uint64_t unshared
    const char* suffix
    uint64_t size
    uint64_t n_entries


cdef const char* _index_entry(const char* p, const char* end, IndexEntry* e) noexcept nogil:
    p = get_varint(p, end, &e.shared)
    if p == NULL:
        return NULL
    p = get_varint(p, end, &e.unshared)
    if p == NULL or e.unshared > <uint64_t>(end - p):
        return NULL
    e.suffix = p
    p = get_varint(p + e.unshared, end, &e.size)
    if p == NULL:
        return NULL
    return get_varint(p, end, &e.n_entries)


cdef uint64_t _measure_index(TableC* t, const char* p, size_t n) noexcept nogil:
    """Bytes of all separators behind what they have in common, or UINT64_MAX where the index is not what it should be."""
    cdef const char* end = p + n
    cdef uint64_t total = 0, klen = 0, at = 0
    cdef IndexEntry e
    cdef uint32_t i
    for i in range(t.n_blocks):
        p = _index_entry(p, end, &e)
        if p == NULL or e.shared > klen or e.size < FRAME_TRAILER or e.size > t.data_end - at:
            return <uint64_t>-1
        klen = e.shared + e.unshared
        if klen > MAX_KEY:
            return <uint64_t>-1
        # What each shares with the one before it, all share.
        t.common_len = min(t.common_len, e.shared) if i else klen
        total += klen
        at += e.size
    if p != end or at != t.data_end:
        return <uint64_t>-1
    return total - t.common_len * t.n_blocks


cdef int _fill_index(TableC* t, const char* p, size_t n) noexcept nogil:
    """Separators one after the other, without what they have in common; -1 where they are not increasing."""
    cdef const char* end = p + n
    cdef uint64_t at = 0
    cdef uint64_t before = 0
    cdef uint64_t shared
    cdef IndexEntry e
    cdef uint32_t i
    t.offsets[0] = 0
    t.sep_at[0] = 0
    for i in range(t.n_blocks):
        p = _index_entry(p, end, &e)
        if i == 0:
            memcpy(t.common, e.suffix, t.common_len)
            e.shared = t.common_len
            e.suffix += t.common_len
            e.unshared -= t.common_len
        shared = e.shared - t.common_len
        memcpy(t.seps + at, t.seps + before, shared)
        memcpy(t.seps + at + shared, e.suffix, e.unshared)
        if i and lsm_compare(t.seps + before, at - before, t.seps + at, shared + e.unshared) >= 0:
            return -1
        before = at
        at += shared + e.unshared
        t.sep_at[i + 1] = at
        t.offsets[i + 1] = t.offsets[i] + e.size
    return 0


cdef int _grow_tree(TableC* t, Status* st) noexcept nogil:
    """Level 0: the prefixes; each level above: the last of every group of INDEX_FANOUT."""
    cdef uint64_t n = t.n_blocks
    cdef uint64_t padded, i
    cdef uint32_t level = 0
    while True:
        padded = (n + INDEX_FANOUT - 1) // INDEX_FANOUT * INDEX_FANOUT
        if level >= INDEX_MAX_LEVELS:
            return fail_corrupt(st, "index of more blocks than a table has", t.number, t.index_at)
        t.levels[level] = <uint64_t*>_claim(t, padded * 8, st)
        if t.levels[level] == NULL:
            return st.code
        t.memory += padded * 8
        for i in range(padded):
            if i >= n:
                t.levels[level][i] = <uint64_t>-1
            elif level == 0:
                t.levels[0][i] = lsm_prefix8(t.seps + t.sep_at[i], t.sep_at[i + 1] - t.sep_at[i])
            else:
                t.levels[level][i] = t.levels[level - 1][i * INDEX_FANOUT + INDEX_FANOUT - 1]
        level += 1
        if padded == INDEX_FANOUT:
            break
        n = padded // INDEX_FANOUT
    t.n_levels = level
    t.max_prefix = t.levels[0][t.n_blocks - 1]
    return ST_OK


cdef int _claim_index(TableC* t, uint64_t seps, Status* st) noexcept nogil:
    cdef uint64_t places = <uint64_t>t.n_blocks + 1
    t.sep_at = <uint64_t*>_claim(t, places * 8, st)
    if t.sep_at != NULL:
        t.offsets = <uint64_t*>_claim(t, places * 8, st)
    if t.offsets != NULL:
        t.seps = <char*>_claim(t, seps, st)
    if t.seps != NULL:
        t.common = <char*>_claim(t, t.common_len, st)
    if t.common != NULL:
        t.blocks = <BlockC**>_claim(t, places * sizeof(BlockC*), st)
    if t.blocks == NULL:
        return st.code
    memset(t.blocks, 0, places * sizeof(BlockC*))
    return ST_OK


cdef int _decode_index(TableC* t, const char* raw, size_t n, Status* st) noexcept nogil:
    cdef uint64_t seps
    cdef uint64_t blocks = t.n_blocks
    cdef int code
    if blocks > n // MIN_INDEX_ENTRY:
        return fail_corrupt(st, "index has fewer entries than the table has blocks", t.number, t.index_at)
    seps = _measure_index(t, raw, n)
    if seps == <uint64_t>-1:
        return fail_corrupt(st, "damaged index", t.number, t.index_at)
    code = _claim_index(t, seps, st)
    if code != ST_OK:
        return code
    if _fill_index(t, raw, n) != 0:
        return fail_corrupt(st, "separators of the index are out of order", t.number, t.index_at)
    t.memory += (blocks + 1) * 24 + seps + t.common_len
    return _grow_tree(t, st) if blocks else ST_OK


cdef int _read_index(TableC* t, Status* st) noexcept nogil:
    cdef char* raw
    cdef size_t n
    cdef int code = _section(t, t.index_at, t.index_size, KIND_INDEX, &raw, &n, st)
    if code == ST_OK:
        code = _decode_index(t, raw, n, st)
    _give_back(t, raw, n)
    return code


# --- range tombstones and filter -----------------------------------------------------------------------------------------

cdef int _check_ranges(TableC* t, const char* p, size_t n, uint64_t count, Status* st) noexcept nogil:
    """The section's bytes; finds the smallest sequence number, and whether some overlap, too."""
    cdef const char* end = p + n
    cdef RangeTombstone r, before
    cdef uint64_t i
    memset(&before, 0, sizeof(before))
    t.range_base = <uint64_t>-1
    for i in range(count):
        p = range_decode(p, end, &r)
        if p == NULL or lsm_compare(r.start, r.start_len, r.stop, r.stop_len) >= 0:
            return fail_corrupt(st, "damaged range tombstone", t.number, t.ranges_at)
        if i and lsm_compare(before.start, before.start_len, r.start, r.start_len) > 0:
            return fail_corrupt(st, "range tombstones out of order", t.number, t.ranges_at)
        if i and lsm_compare(before.stop, before.stop_len, r.start, r.start_len) > 0:
            t.ranges_overlap = True
        t.range_base = min(t.range_base, r.seq)
        before = r
    if p != end:
        return fail_corrupt(st, "bytes behind the last range tombstone", t.number, t.ranges_at)
    return ST_OK


cdef uint64_t _pack_ranges(const TableC* t, const char* p, size_t n, uint64_t count, char* out) noexcept nogil:
    """As range_unpack reads them, those at a place with their starts; returns the bytes that takes. `out` may be NULL."""
    cdef const char* end = p + n
    cdef char* at = out
    cdef RangeTombstone r, before
    cdef uint64_t i, size = 0, head
    memset(&before, 0, sizeof(before))
    for i in range(count):
        p = range_decode(p, end, &r)
        head = r.start_len + 1
        if i & ((1 << t.range_shift) - 1) and lsm_compare(r.start, r.start_len, before.stop, before.stop_len) == 0:
            head = 0
        if out != NULL:
            if i & ((1 << t.range_shift) - 1) == 0:
                t.range_places[i >> t.range_shift] = <uint32_t>(at - out)
            at = put_varint(put_varint(put_varint(at, head), r.stop_len), r.seq - t.range_base)
            if head:
                memcpy(at, r.start, r.start_len)
                at += r.start_len
            memcpy(at, r.stop, r.stop_len)
            at += r.stop_len
        size += varint_size(head) + varint_size(r.stop_len) + varint_size(r.seq - t.range_base) + r.stop_len
        size += head - 1 if head else 0
        before = r
    return size


cdef int _decode_ranges(TableC* t, const char* raw, size_t n, Status* st) noexcept nogil:
    cdef uint64_t count = table_prop(t, PROP_N_RANGE_TOMBSTONES)
    cdef uint64_t places
    if count > n // MIN_RANGE:
        return fail_corrupt(st, "fewer range tombstones than the properties say", t.number, t.ranges_at)
    if _check_ranges(t, raw, n, count, st) != ST_OK:
        return st.code
    t.range_shift = RANGE_SHIFT if n > RANGES_SPARSE else 0
    places = (count + (1 << t.range_shift) - 1) >> t.range_shift
    t.range_len = _pack_ranges(t, raw, n, count, NULL)
    t.range_places = <uint32_t*>_claim(t, places * 4, st)
    if t.range_places != NULL:
        t.range_bytes = <char*>_claim(t, t.range_len, st)
    if t.range_bytes == NULL:
        return st.code
    _pack_ranges(t, raw, n, count, t.range_bytes)
    t.n_range_tombstones = <uint32_t>count
    t.memory += t.range_len + places * 4
    return ST_OK


cdef int _read_ranges(TableC* t, Status* st) noexcept nogil:
    cdef char* raw
    cdef size_t n
    cdef int code
    if t.ranges_size == 0:
        if table_prop(t, PROP_N_RANGE_TOMBSTONES) != 0:
            return fail_corrupt(st, "range tombstones are missing", t.number, t.ranges_at)
        return ST_OK
    code = _section(t, t.ranges_at, t.ranges_size, KIND_RANGES, &raw, &n, st)
    if code == ST_OK:
        code = _decode_ranges(t, raw, n, st)
    _give_back(t, raw, n)
    return code


cdef char* _claim_filter(TableC* t, Status* st) noexcept nogil:
    if t.filter_size > t.room:
        fail_corrupt(st, "table asks for more memory than its size allows", t.number, t.file_size)
        return NULL
    t.filter_alloc = page_run_alloc(t.filter_size)
    if t.filter_alloc == NULL:
        fail_memory(st, "filter")
        return NULL
    t.room -= t.filter_size
    return <char*>t.filter_alloc


cdef int _read_filter(TableC* t, Status* st) noexcept nogil:
    """Damage leaves the filter unusable; only a failing disk or no memory is an error."""
    cdef char* bits = NULL
    cdef int code
    if t.filter_size:
        bits = _claim_filter(t, st)
        if bits == NULL:
            return st.code
        lsm_advise_huge(bits, t.filter_size)
        code = table_pread(t, bits, t.filter_size, t.filter_at, st)
        if code != ST_OK:
            return code
    filter_decode(t.filter_header, FILTER_HEADER_SIZE, <const uint8_t*>bits, t.filter_size, &t.filter)
    if t.filter.usable and (t.filter.seed != t.seed or t.filter.n_keys != table_prop(t, PROP_FILTER_KEYS)
                            or t.filter.n_blocks != table_prop(t, PROP_FILTER_BLOCKS)):
        # A sound filter, but of another table.
        t.filter.usable = 0
        t.filter.problem = FILTER_BAD_GEOMETRY
    t.memory += t.filter_size
    return ST_OK


# --- life -------------------------------------------------------------------------------------------------------------

cdef int _open_file(TableC* t, Status* st) noexcept nogil:
    cdef int fd = -1
    cdef int err
    if t.fds == NULL:
        err = file_open(t.handle.path, OPEN_READ, &t.handle.fd)
        fd = t.handle.fd
    else:
        err = fd_acquire(t.fds, &t.handle, &fd)
    if err != 0:
        return fail_io(st, "opening a table", err)
    err = file_size(fd, &t.file_size)
    if t.fds != NULL:
        fd_release(t.fds, &t.handle)
    if err != 0:
        return fail_io(st, "size of a table", err)
    return ST_OK


cdef int table_open(TableC* t, char* path, CacheC* cache, FdCacheC* fds, uint64_t number, uint64_t global_seq,
                    bint charge, Status* st) noexcept nogil:
    cdef int code
    memset(t, 0, sizeof(TableC))
    t.handle.path = path
    t.handle.fd = -1
    t.cache = cache
    t.fds = fds
    t.number = number
    t.global_seq = global_seq
    t.memory = sizeof(TableC)
    code = _open_file(t, st)
    t.room = t.file_size + OPEN_ALLOWANCE
    if code == ST_OK:
        code = _read_footer(t, st)
    if code == ST_OK:
        code = _read_props(t, st)
    if code == ST_OK:
        code = _read_index(t, st)
    if code == ST_OK:
        code = _read_ranges(t, st)
    if code == ST_OK:
        code = _read_filter(t, st)
    if code != ST_OK:
        table_close(t)
        return code
    t.memory += t.props_len + t.smallest_len + t.largest_len
    if charge and cache != NULL:
        t.charged = 1
        cache_reserve(cache, t.memory, False)
    return ST_OK


cdef void table_close(TableC* t) noexcept nogil:
    cdef uint32_t i
    if t.charged:
        cache_release(t.cache, t.memory)
    if t.blocks != NULL and t.cache != NULL:
        cache_remove(t.cache, t.blocks, t.n_blocks)
    if t.fds != NULL:
        fd_forget(t.fds, &t.handle)
    elif t.handle.fd >= 0:
        file_close(t.handle.fd)
    for i in range(INDEX_MAX_LEVELS):
        lsm_free(t.levels[i])
    lsm_free(t.common)
    lsm_free(t.blocks)
    lsm_free(t.sep_at)
    lsm_free(t.seps)
    lsm_free(t.offsets)
    lsm_free(t.smallest)
    lsm_free(t.largest)
    lsm_free(t.range_places)
    lsm_free(t.range_bytes)
    page_run_free(t.filter_alloc, t.filter_size)
    lsm_free(t.props)
    memset(t, 0, sizeof(TableC))
    t.handle.fd = -1

from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset

from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.codecs cimport xxh3_pair
from lsmkv_ext.port.coding cimport get_u32, get_u64, put_u64, put_varint
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.compression cimport COMPRESSION_LZ4, compressed_check, decompress
from lsmkv_ext.port.growable cimport buf_append, buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_OK
from lsmkv_ext.values.format cimport VALUE_LOG_HEAD

cdef enum:
    VERSION_AT = 136               # in the footer
    SUM_AT = 144
    MAGIC_AT = 152
    MAX_VARINT = 10                # bytes

cdef extern from * nogil:
    """
    #define LSM_TABLE_MAGIC 0x545353766b6d736cull   /* "lsmkvSST" */
    """
    const uint64_t LSM_TABLE_MAGIC


# --- frames ----------------------------------------------------------------------------------------------------------

cdef int frame_seal_split(const char* front, size_t front_len, char* rest, size_t n, int section, uint64_t offset) noexcept nogil:
    cdef uint64_t checksum = 0
    put_u32(rest + n, <uint32_t>(front_len + n))
    rest[n + 4] = FRAME_STORED
    if xxh3_pair(front, front_len, rest, n + 5, section_seed(section, offset), &checksum) != 0:
        return -1
    put_u32(rest + n + 5, <uint32_t>checksum)
    return 0


cdef const char* frame_check(const char* frame, size_t n, int section, uint64_t offset, bint zstd, Frame* out) noexcept nogil:
    if n < FRAME_TRAILER or get_u32(frame + n - 4) != <uint32_t>xxh3(frame, n - 4, section_seed(section, offset)):
        return "checksum mismatch"
    out.payload = frame
    out.payload_len = n - FRAME_TRAILER
    out.raw_size = get_u32(frame + out.payload_len)
    out.compression = <uint8_t>frame[out.payload_len + 4]
    if out.compression == FRAME_STORED and out.raw_size == out.payload_len:
        return NULL
    if out.compression == COMPRESSION_LZ4 or (out.compression == FRAME_ZSTD and zstd):
        return compressed_check(out.compression, frame, out.payload_len, out.raw_size)
    return "impossible size or unknown compression"


cdef int frame_unpack(const Frame* f, char* raw, uint64_t number, uint64_t offset, Status* st) noexcept nogil:
    if f.compression != FRAME_STORED:
        return decompress(f.compression, f.payload, f.payload_len, raw, f.raw_size, number, offset, st)
    memcpy(raw, f.payload, f.raw_size)
    return ST_OK


# --- footer ----------------------------------------------------------------------------------------------------------

cdef inline uint64_t _footer_checksum(const char* p) noexcept nogil:
    return xxh3(p + FOOTER_FILTER_HEADER, SUM_AT - FOOTER_FILTER_HEADER, section_seed(SECTION_FOOTER, 0))


cdef inline char* _put_section(char* p, const Section* s) noexcept nogil:
    put_u64(p, s.at)
    put_u64(p + 8, s.size)
    return p + 16


cdef inline const char* _get_section(const char* p, Section* s) noexcept nogil:
    s.at = get_u64(p)
    s.size = get_u64(p + 8)
    return p + 16


cdef void footer_encode(const Footer* f, char* out) noexcept nogil:
    cdef char* p = out + FOOTER_FILTER_HEADER
    memcpy(out, f.filter_header, FOOTER_FILTER_HEADER)
    p = _put_section(p, &f.index)
    p = _put_section(p, &f.filter)
    p = _put_section(p, &f.tombstones)
    p = _put_section(p, &f.props)
    put_u64(p, f.data_end)
    put_u32(out + VERSION_AT, f.version)
    put_u32(out + VERSION_AT + 4, 0)
    put_u64(out + SUM_AT, _footer_checksum(out))
    put_u64(out + MAGIC_AT, LSM_TABLE_MAGIC)


cdef inline bint _inside(const Section* s, uint64_t start, uint64_t end) noexcept nogil:
    return s.at >= start and s.at <= end and s.size <= end - s.at


cdef const char* footer_decode(const char* p, uint64_t end, Footer* out, uint64_t* at) noexcept nogil:
    if get_u64(p + MAGIC_AT) != LSM_TABLE_MAGIC:
        at[0] = end + MAGIC_AT
        return "not a table: wrong magic number"
    at[0] = end
    if get_u64(p + SUM_AT) != _footer_checksum(p):
        return "footer: checksum mismatch"
    out.version = get_u32(p + VERSION_AT)
    if out.version > LATEST_TABLE_VERSION:
        return "the table has a newer format than this release knows"
    if out.version == 0 or get_u32(p + VERSION_AT + 4) != 0:
        at[0] = end + VERSION_AT
        return "unknown table format version"
    memcpy(out.filter_header, p, FOOTER_FILTER_HEADER)
    p = _get_section(p + FOOTER_FILTER_HEADER, &out.index)
    p = _get_section(p, &out.filter)
    p = _get_section(p, &out.tombstones)
    p = _get_section(p, &out.props)
    out.data_end = get_u64(p)
    if not (out.data_end == out.index.at and _inside(&out.index, 0, end)
            and _inside(&out.filter, out.index.at + out.index.size, end)
            and _inside(&out.tombstones, out.filter.at + out.filter.size, end)
            and _inside(&out.props, out.tombstones.at + out.tombstones.size, end)):
        return "footer: a section lies outside the file or overlaps another"
    return NULL


# --- properties ------------------------------------------------------------------------------------------------------

cdef int _put_prop(GrowBuf* out, int id, const void* p, size_t n) noexcept nogil:
    cdef char head[2 * MAX_VARINT]
    cdef char* end = put_varint(put_varint(head, id), n)
    if buf_append(out, head, <size_t>(end - head)) != 0:
        return -1
    return buf_append(out, p, n)


cdef int props_encode(const Properties* props, GrowBuf* out) noexcept nogil:
    cdef char number[8]
    cdef int id, failed = 0
    for id in range(1, PROP_COUNT_1):
        if id == PROP_SMALLEST:
            failed |= _put_prop(out, id, props.smallest, props.smallest_len)
        elif id == PROP_LARGEST:
            failed |= _put_prop(out, id, props.largest, props.largest_len)
        else:
            put_u64(number, props.numbers[id])
            failed |= _put_prop(out, id, number, 8)
    if props.numbers[PROP_EXPIRING]:
        for id in range(PROP_EXPIRING, PROP_EXPIRING_BYTES + 1):
            put_u64(number, props.numbers[id])
            failed |= _put_prop(out, id, number, 8)
    if props.value_logs_len:
        failed |= _put_prop(out, PROP_VALUE_LOGS, props.value_logs, props.value_logs_len)
    if props.numbers[PROP_KEYSPACE]:
        put_u64(number, props.numbers[PROP_KEYSPACE])
        failed |= _put_prop(out, PROP_KEYSPACE, number, 8)
        failed |= _put_prop(out, PROP_KEYSPACE_NAME, props.keyspace_name, props.keyspace_name_len)
    return failed


cdef void props_decode(const char* p, size_t n, uint32_t version, Properties* out) noexcept nogil:
    cdef const char* end = p + n
    cdef uint64_t id = 0, size = 0, seen = 0
    cdef uint64_t known = PROP_COUNT_1 if version == 1 else PROP_COUNT
    memset(out, 0, sizeof(Properties))
    while p < end:
        p = get_varint(p, end, &id)
        if p != NULL:
            p = get_varint(p, end, &size)
        if p == NULL or size > <uint64_t>(end - p):
            return
        # The first of two wins.
        if id < known and not seen >> id & 1:
            seen |= <uint64_t>1 << id
            if id == PROP_SMALLEST:
                out.smallest = p
                out.smallest_len = size
            elif id == PROP_LARGEST:
                out.largest = p
                out.largest_len = size
            elif id == PROP_KEYSPACE_NAME:
                out.keyspace_name = p
                out.keyspace_name_len = size
            elif id == PROP_VALUE_LOGS:
                out.value_logs = p
                out.value_logs_len = size
            elif size == 8:
                out.numbers[id] = get_u64(p)
        p += size


cdef int use_encode(const ValueUse* use, GrowBuf* out) noexcept nogil:
    cdef char* p
    if buf_reserve(out, 8 + 4 * MAX_VARINT) != 0:
        return -1
    p = put_varint(out.data + out.len, use.number)
    put_u64(p, use.identity)
    p = put_varint(put_varint(put_varint(p + 8, use.values), use.bytes), use.end)
    out.len = <size_t>(p - out.data)
    return 0


cdef const char* use_decode(const char* p, const char* end, ValueUse* out) noexcept nogil:
    p = get_varint(p, end, &out.number)
    if p == NULL or end - p < 8:
        return NULL
    out.identity = get_u64(p)
    p = get_varint(p + 8, end, &out.values)
    if p != NULL:
        p = get_varint(p, end, &out.bytes)
    if p != NULL:
        p = get_varint(p, end, &out.end)
    if p == NULL or out.identity == 0 or out.values == 0 or out.end < VALUE_LOG_HEAD:
        return NULL
    return p


# --- index -----------------------------------------------------------------------------------------------------------

cdef int index_entry_encode(const IndexEntry* e, GrowBuf* out) noexcept nogil:
    cdef char* p
    if buf_reserve(out, e.unshared + 4 * MAX_VARINT) != 0:
        return -1
    p = put_varint(put_varint(out.data + out.len, e.shared), e.unshared)
    if e.unshared:
        memcpy(p, e.suffix, e.unshared)
    p = put_varint(put_varint(p + e.unshared, e.size), e.n_entries)
    out.len = <size_t>(p - out.data)
    return 0


cdef const char* index_entry_decode(const char* p, const char* end, IndexEntry* e) noexcept nogil:
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


# --- range tombstones ------------------------------------------------------------------------------------------------

cdef int range_encode(const RangeTombstone* r, GrowBuf* out) noexcept nogil:
    cdef char* p
    if buf_reserve(out, r.start_len + r.stop_len + 3 * MAX_VARINT) != 0:
        return -1
    p = put_varint(put_varint(put_varint(out.data + out.len, r.start_len), r.stop_len), r.seq)
    if r.start_len:
        memcpy(p, r.start, r.start_len)
    memcpy(p + r.start_len, r.stop, r.stop_len)
    out.len = <size_t>(p - out.data) + r.start_len + r.stop_len
    return 0


cdef int range_compare(const RangeTombstone* a, const RangeTombstone* b) noexcept nogil:
    cdef int order = lsm_compare(a.start, a.start_len, b.start, b.start_len)
    return order if order != 0 else (a.seq < b.seq) - (a.seq > b.seq)


cdef int _compare_tombstones(const void* a, const void* b) noexcept nogil:
    return range_compare(<const RangeTombstone*>a, <const RangeTombstone*>b)


cdef int tombstones_sort(GrowBuf* section, size_t n) noexcept nogil:
    cdef RangeTombstone* order = <RangeTombstone*>lsm_alloc(n * sizeof(RangeTombstone))
    cdef const char* p = section.data
    cdef const char* end = p + section.len
    cdef GrowBuf sorted_
    cdef size_t i
    cdef int failed = 0
    if order == NULL:
        return -1
    for i in range(n):
        p = range_decode(p, end, &order[i])
    qsort(order, n, sizeof(RangeTombstone), _compare_tombstones)
    memset(&sorted_, 0, sizeof(GrowBuf))
    for i in range(n):
        failed |= range_encode(&order[i], &sorted_)
    buf_free(section)
    section[0] = sorted_
    lsm_free(order)
    return failed

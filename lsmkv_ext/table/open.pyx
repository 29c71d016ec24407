from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset

from lsmkv_ext.block.memory cimport BlockC
from lsmkv_ext.cache.block_cache cimport cache_release, cache_remove, cache_reserve
from lsmkv_ext.cache.fd_cache cimport fd_acquire, fd_forget, fd_release
from lsmkv_ext.entry cimport is_expiry
from lsmkv_ext.filter.format cimport FILTER_BAD_GEOMETRY, FILTER_HEADER_SIZE, filter_decode
from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.compare cimport lsm_compare, lsm_prefix8
from lsmkv_ext.port.file cimport ERR_NOT_REGULAR, OPEN_READ, file_close, file_open, file_size
from lsmkv_ext.port.page_run cimport page_run_alloc, page_run_free
from lsmkv_ext.port.pages cimport lsm_madvise_huge_within
from lsmkv_ext.port.status cimport ST_OK, fail_corrupt, fail_format, fail_io, fail_memory
from lsmkv_ext.port.zstd cimport zstd_missing, zstd_ready
from lsmkv_ext.table.absent_keys cimport absent_keys_bytes, absent_keys_free
from lsmkv_ext.table.format cimport (
    FOOTER_SIZE,
    FRAME_STORED,
    FRAME_TRAILER,
    LATEST_TABLE_VERSION,
    MAX_KEYSPACE_NAME,
    MIN_INDEX_ENTRY,
    MIN_USE,
    OPEN_ALLOWANCE,
    PROP_DATA_BYTES,
    PROP_EXPIRING,
    PROP_EXPIRING_BYTES,
    PROP_FILTER_BLOCKS,
    PROP_FILTER_KEYS,
    PROP_KEYSPACE,
    PROP_LARGEST_EXCLUSIVE,
    PROP_MAX_EXPIRY,
    PROP_MAX_SEQ,
    PROP_MIN_EXPIRY,
    PROP_MIN_SEQ,
    PROP_N_BLOCKS,
    PROP_N_DELETES,
    PROP_N_ENTRIES,
    PROP_N_RANGE_TOMBSTONES,
    PROP_SEED,
    SECTION_INDEX,
    SECTION_PROPS,
    SECTION_TOMBSTONES,
    Frame,
    IndexEntry,
    Section,
    footer_decode,
    frame_check,
    frame_unpack,
    index_entry_decode,
    props_decode,
    use_decode,
)
from lsmkv_ext.table.meta cimport ValueUse
from lsmkv_ext.table.reader cimport INDEX_FANOUT, INDEX_MAX_LEVELS, table_pread, table_uses_zstd
from lsmkv_ext.table.tombstones cimport tombstones_check, tombstones_pack


# --- memory ----------------------------------------------------------------------------------------------------------

cdef bint _allowed(TableC* t, uint64_t n, Status* st) noexcept nogil:
    """Whether n more bytes fit the allowance: sizes come from the file, which may be hostile. Our own tables fit
    (builder_padding)."""
    if n > t.room:
        fail_corrupt(st, "table needs more memory than its size allows", t.number, t.file_size)
        return False
    return True


cdef void* _allocate(TableC* t, uint64_t n, Status* st) noexcept nogil:
    """Allocates n bytes from the allowance of the table; NULL with *st set."""
    cdef void* p
    if not _allowed(t, n, st):
        return NULL
    p = lsm_alloc(n)
    if p == NULL:
        fail_memory(st, "table")
        return NULL
    t.room -= n
    return p


cdef void _release(TableC* t, void* p, uint64_t n) noexcept nogil:
    if p != NULL:
        t.room += n
        lsm_free(p)


cdef int _read_section(TableC* t, const Section* s, int section, char** raw, size_t* raw_len, Status* st) noexcept nogil:
    """Reads, checks and unpacks one framed section into memory that the caller owns. (An uncompressed one keeps its trailer.)"""
    cdef Frame f
    cdef const char* problem = NULL
    cdef int code
    cdef char* frame = <char*>_allocate(t, s.size, st)
    raw[0] = NULL
    raw_len[0] = 0
    if frame == NULL:
        return st.code
    code = table_pread(t, frame, s.size, s.at, st)
    if code == ST_OK:
        # False for the properties themselves, which are not read yet.
        problem = frame_check(frame, s.size, section, s.at, table_uses_zstd(t), &f)
        if problem == NULL:
            raw_len[0] = f.raw_size
            if f.compression == FRAME_STORED:
                raw[0] = frame
                return ST_OK
            raw[0] = <char*>_allocate(t, f.raw_size, st)
            if raw[0] == NULL:
                code = st.code
            else:
                code = frame_unpack(&f, raw[0], t.number, s.at, st)
    if problem != NULL:
        code = fail_corrupt(st, problem, t.number, s.at)
    _release(t, frame, s.size)
    return code


# --- footer and properties -------------------------------------------------------------------------------------------

cdef int _read_footer(TableC* t, Status* st) noexcept nogil:
    cdef char footer[FOOTER_SIZE]
    cdef const char* problem
    cdef uint64_t at = 0
    cdef int code
    if t.file_size < FOOTER_SIZE:
        return fail_corrupt(st, "file too short for a table", t.number, 0)
    code = table_pread(t, footer, FOOTER_SIZE, t.file_size - FOOTER_SIZE, st)
    if code != ST_OK:
        return code
    problem = footer_decode(footer, t.file_size - FOOTER_SIZE, &t.footer, &at)
    if t.footer.version > LATEST_TABLE_VERSION:
        return fail_format(st, problem, t.number)
    if problem != NULL:
        return fail_corrupt(st, problem, t.number, at)
    return ST_OK


cdef bint _names_keyspace(const TableC* t) noexcept nogil:
    """Whether the properties have an id and a name, or neither."""
    cdef uint64_t keyspace = t.props.numbers[PROP_KEYSPACE]
    if keyspace == 0:
        return t.props.keyspace_name == NULL
    return keyspace >> 32 == 0 and 0 < t.props.keyspace_name_len <= MAX_KEYSPACE_NAME


cdef bint _expiries_fit(const TableC* t) noexcept nogil:
    """Whether the four properties of expiries are all there, or none."""
    cdef const uint64_t* numbers = t.props.numbers
    if numbers[PROP_EXPIRING] == 0:
        return not (numbers[PROP_MIN_EXPIRY] or numbers[PROP_MAX_EXPIRY] or numbers[PROP_EXPIRING_BYTES])
    return (numbers[PROP_EXPIRING] <= numbers[PROP_N_ENTRIES] and is_expiry(numbers[PROP_MIN_EXPIRY])
            and is_expiry(numbers[PROP_MAX_EXPIRY]) and numbers[PROP_MIN_EXPIRY] <= numbers[PROP_MAX_EXPIRY])


cdef int _decode_uses(TableC* t, Status* st) noexcept nogil:
    """Decodes the value logs of the table. They are in ascending order of numbers."""
    cdef const char* p = t.props.value_logs
    cdef const char* end = p + t.props.value_logs_len
    cdef size_t n = 0
    if t.props.value_logs_len == 0:
        return _name_own_log(t, st)
    t.uses = <ValueUse*>_allocate(t, (t.props.value_logs_len // MIN_USE + 1) * sizeof(ValueUse), st)
    if t.uses == NULL:
        return st.code
    while p < end:
        p = use_decode(p, end, &t.uses[n])
        if p == NULL or (n and t.uses[n - 1].number >= t.uses[n].number):
            return fail_corrupt(st, "malformed list of value logs", t.number, t.footer.props.at)
        n += 1
    t.n_uses = n
    return _name_own_log(t, st)


cdef int _name_own_log(TableC* t, Status* st) noexcept nogil:
    """Gives the value log of an ingested table its number."""
    if t.own_log == 0:
        return ST_OK
    if t.n_uses != 1 or t.uses[0].number != 0:
        return fail_corrupt(st, "the table has no value log of its own", t.number, t.footer.props.at)
    t.uses[0].number = t.own_log
    return ST_OK


cdef int _require_zstd(TableC* t, Status* st) noexcept nogil:
    if t.footer.version == 1:
        return fail_corrupt(st, "zstd in a table of version 1", t.number, t.footer.props.at)
    return ST_OK if zstd_ready() else fail_format(st, zstd_missing(), t.number)


cdef int _read_props(TableC* t, Status* st) noexcept nogil:
    cdef uint64_t* numbers = t.props.numbers
    cdef uint64_t n_blocks
    cdef size_t n
    cdef int code = _read_section(t, &t.footer.props, SECTION_PROPS, &t.props_bytes, &n, st)
    if code != ST_OK:
        return code
    t.memory += n
    props_decode(t.props_bytes, n, t.footer.version, &t.props)
    if (t.props.smallest == NULL or t.props.smallest_len > MAX_KEY
            or t.props.largest == NULL or t.props.largest_len > MAX_KEY):
        return fail_corrupt(st, "properties lack the key range", t.number, t.footer.props.at)
    if not _names_keyspace(t):
        return fail_corrupt(st, "properties contradict each other about the keyspace", t.number, t.footer.props.at)
    if not _expiries_fit(t):
        return fail_corrupt(st, "properties contradict each other about expiries", t.number, t.footer.props.at)
    if table_uses_zstd(t) and _require_zstd(t, st) != ST_OK:
        return st.code
    if _decode_uses(t, st) != ST_OK:
        return st.code
    n_blocks = numbers[PROP_N_BLOCKS]
    if (n_blocks >> 31 != 0 or n_blocks * FRAME_TRAILER > t.footer.data_end
            or numbers[PROP_DATA_BYTES] != t.footer.data_end):
        return fail_corrupt(st, "properties contradict the file", t.number, t.footer.props.at)
    t.n_blocks = <uint32_t>n_blocks
    t.n_entries = numbers[PROP_N_ENTRIES]
    t.n_deletes = numbers[PROP_N_DELETES]
    t.min_seq = t.global_seq if t.global_seq else numbers[PROP_MIN_SEQ]
    t.max_seq = t.global_seq if t.global_seq else numbers[PROP_MAX_SEQ]
    t.seed = numbers[PROP_SEED]
    t.smallest = t.props.smallest
    t.smallest_len = t.props.smallest_len
    t.largest = t.props.largest
    t.largest_len = t.props.largest_len
    t.largest_exclusive = numbers[PROP_LARGEST_EXCLUSIVE] != 0
    return ST_OK


# --- index -----------------------------------------------------------------------------------------------------------

cdef uint64_t _measure_index(TableC* t, const char* p, size_t n) noexcept nogil:
    """Returns the bytes of all separators without their common prefix, or UINT64_MAX for a malformed index."""
    cdef const char* end = p + n
    cdef uint64_t total = 0, klen = 0, at = 0
    cdef IndexEntry e
    cdef uint32_t i
    for i in range(t.n_blocks):
        p = index_entry_decode(p, end, &e)
        if p == NULL or e.shared > klen or e.size < FRAME_TRAILER or e.size > t.footer.data_end - at:
            return <uint64_t>-1
        klen = e.shared + e.unshared
        if klen > MAX_KEY:
            return <uint64_t>-1
        # The smallest `shared` is what all separators share.
        t.common_len = min(t.common_len, e.shared) if i else klen
        total += klen
        at += e.size
    if p != end or at != t.footer.data_end:
        return <uint64_t>-1
    return total - t.common_len * t.n_blocks


cdef int _fill_index(TableC* t, const char* p, size_t n) noexcept nogil:
    """Decodes the separators, without their common prefix; -1 if they are not increasing."""
    cdef const char* end = p + n
    cdef uint64_t at = 0
    cdef uint64_t before = 0
    cdef uint64_t shared
    cdef IndexEntry e
    cdef uint32_t i
    t.offsets[0] = 0
    t.sep_at[0] = 0
    for i in range(t.n_blocks):
        p = index_entry_decode(p, end, &e)
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


cdef int _build_tree(TableC* t, Status* st) noexcept nogil:
    """Builds the prefix tree. Level 0 has all prefixes, each level above the last of every group of INDEX_FANOUT."""
    cdef uint64_t n = t.n_blocks
    cdef uint64_t padded, i
    cdef uint32_t level = 0
    while True:
        padded = (n + INDEX_FANOUT - 1) // INDEX_FANOUT * INDEX_FANOUT
        if level >= INDEX_MAX_LEVELS:
            return fail_corrupt(st, "index of too many blocks", t.number, t.footer.index.at)
        t.levels[level] = <uint64_t*>_allocate(t, padded * 8, st)
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


cdef int _allocate_index(TableC* t, uint64_t seps, Status* st) noexcept nogil:
    cdef uint64_t places = <uint64_t>t.n_blocks + 1
    t.sep_at = <uint64_t*>_allocate(t, places * 8, st)
    if t.sep_at != NULL:
        t.offsets = <uint64_t*>_allocate(t, places * 8, st)
    if t.offsets != NULL:
        t.seps = <char*>_allocate(t, seps, st)
    if t.seps != NULL:
        t.common = <char*>_allocate(t, t.common_len, st)
    if t.common != NULL:
        t.blocks = <BlockC**>_allocate(t, places * sizeof(BlockC*), st)
    if t.blocks == NULL:
        return st.code
    memset(t.blocks, 0, places * sizeof(BlockC*))
    return ST_OK


cdef int _decode_index(TableC* t, const char* raw, size_t n, Status* st) noexcept nogil:
    cdef uint64_t seps
    cdef uint64_t blocks = t.n_blocks
    cdef int code
    if blocks > n // MIN_INDEX_ENTRY:
        return fail_corrupt(st, "index has fewer entries than the table has blocks", t.number, t.footer.index.at)
    seps = _measure_index(t, raw, n)
    if seps == <uint64_t>-1:
        return fail_corrupt(st, "malformed index", t.number, t.footer.index.at)
    code = _allocate_index(t, seps, st)
    if code != ST_OK:
        return code
    if _fill_index(t, raw, n) != 0:
        return fail_corrupt(st, "index separators out of order", t.number, t.footer.index.at)
    t.memory += (blocks + 1) * 24 + seps + t.common_len
    return _build_tree(t, st) if blocks else ST_OK


cdef int _read_index(TableC* t, Status* st) noexcept nogil:
    cdef char* raw
    cdef size_t n
    cdef int code = _read_section(t, &t.footer.index, SECTION_INDEX, &raw, &n, st)
    if code == ST_OK:
        code = _decode_index(t, raw, n, st)
    _release(t, raw, n)
    return code


# --- range tombstones and filter -------------------------------------------------------------------------------------

cdef int _decode_tombstones(TableC* t, const char* raw, size_t n, Status* st) noexcept nogil:
    cdef const char* problem = tombstones_check(&t.tombstones, raw, n, t.props.numbers[PROP_N_RANGE_TOMBSTONES])
    if problem != NULL:
        return fail_corrupt(st, problem, t.number, t.footer.tombstones.at)
    t.tombstones.places = <uint32_t*>_allocate(t, <uint64_t>t.tombstones.n_places * 4, st)
    if t.tombstones.places != NULL:
        t.tombstones.bytes = <char*>_allocate(t, t.tombstones.len, st)
    if t.tombstones.bytes == NULL:
        return st.code
    tombstones_pack(&t.tombstones, raw, n)
    t.memory += t.tombstones.len + <uint64_t>t.tombstones.n_places * 4
    return ST_OK


cdef int _read_tombstones(TableC* t, Status* st) noexcept nogil:
    cdef char* raw
    cdef size_t n
    cdef int code
    t.tombstones.global_seq = t.global_seq
    if t.footer.tombstones.size == 0:
        if t.props.numbers[PROP_N_RANGE_TOMBSTONES] != 0:
            return fail_corrupt(st, "range tombstones missing", t.number, t.footer.tombstones.at)
        return ST_OK
    code = _read_section(t, &t.footer.tombstones, SECTION_TOMBSTONES, &raw, &n, st)
    if code == ST_OK:
        code = _decode_tombstones(t, raw, n, st)
    _release(t, raw, n)
    return code


cdef char* _allocate_filter(TableC* t, Status* st) noexcept nogil:
    if not _allowed(t, t.footer.filter.size, st):
        return NULL
    t.filter_alloc = page_run_alloc(t.footer.filter.size)
    if t.filter_alloc == NULL:
        fail_memory(st, "filter")
        return NULL
    t.room -= t.footer.filter.size
    return <char*>t.filter_alloc


cdef int _read_filter(TableC* t, Status* st) noexcept nogil:
    """A damaged filter becomes unusable; only a failed read or lack of memory is an error."""
    cdef uint64_t size = t.footer.filter.size
    cdef char* bits = NULL
    cdef int code
    if size:
        bits = _allocate_filter(t, st)
        if bits == NULL:
            return st.code
        # A probe of a large filter is one cache miss; huge pages spare it the page walk.
        lsm_madvise_huge_within(bits, size)
        code = table_pread(t, bits, size, t.footer.filter.at, st)
        if code != ST_OK:
            return code
    filter_decode(t.footer.filter_header, FILTER_HEADER_SIZE, <const uint8_t*>bits, size, &t.filter)
    if t.filter.usable and (t.filter.seed != t.seed or t.filter.n_keys != t.props.numbers[PROP_FILTER_KEYS]
                            or t.filter.n_blocks != t.props.numbers[PROP_FILTER_BLOCKS]):
        # An undamaged filter, but of another table.
        t.filter.usable = 0
        t.filter.problem = FILTER_BAD_GEOMETRY
    t.memory += size
    return ST_OK


# --- open and close --------------------------------------------------------------------------------------------------

cdef int _open_file(TableC* t, Status* st) noexcept nogil:
    cdef int fd = -1
    cdef int err
    if t.fds == NULL:
        err = file_open(t.handle.path, OPEN_READ, &t.handle.fd)
        fd = t.handle.fd
    else:
        err = fd_acquire(t.fds, &t.handle, &fd)
    if err == ERR_NOT_REGULAR and t.fds != NULL:
        # Only the tables of a database share descriptors.
        return fail_corrupt(st, "not a regular file", t.number, 0)
    if err != 0:
        return fail_io(st, "opening a table", err)
    err = file_size(fd, &t.file_size)
    if t.fds != NULL:
        fd_release(t.fds, &t.handle)
    if err != 0:
        return fail_io(st, "reading the size of a table", err)
    return ST_OK


cdef int table_open(TableC* t, char* path, CacheC* cache, FdCacheC* fds, uint64_t number, uint64_t global_seq,
                    uint64_t own_log, bint charge, Status* st) noexcept nogil:
    cdef int code
    memset(t, 0, sizeof(TableC))
    t.handle.path = path
    t.handle.fd = -1
    t.cache = cache
    t.fds = fds
    t.number = number
    t.global_seq = global_seq
    t.own_log = own_log
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
        code = _read_tombstones(t, st)
    if code == ST_OK:
        code = _read_filter(t, st)
    if code != ST_OK:
        table_close(t)
        return code
    if charge and cache != NULL:
        t.charged = 1
        cache_reserve(cache, t.memory, False)
    return ST_OK


cdef void table_close(TableC* t) noexcept nogil:
    cdef uint32_t i
    if t.charged:
        cache_release(t.cache, t.memory + absent_keys_bytes(&t.absent))
    absent_keys_free(t.absent)
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
    lsm_free(t.tombstones.places)
    lsm_free(t.tombstones.bytes)
    page_run_free(t.filter_alloc, t.footer.filter.size)
    lsm_free(t.props_bytes)
    lsm_free(t.uses)
    memset(t, 0, sizeof(TableC))
    t.handle.fd = -1

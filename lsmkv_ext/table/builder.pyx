from libc.stdint cimport uint8_t
from libc.string cimport memmove, memset

from lsmkv_ext.block.builder cimport (
    block_builder_add,
    block_builder_alone,
    block_builder_finish,
    block_builder_free,
    block_builder_init,
    block_builder_reset,
    block_builder_size,
)
from lsmkv_ext.block.memory cimport BLOCK_MAX_RAW
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, expiry_of, expiry_size
from lsmkv_ext.filter.curve cimport filter_blocks_for, filter_k_for
from lsmkv_ext.filter.format cimport FILTER_KIND_BLOCKED, FILTER_KIND_FUSE, filter_encode_header
from lsmkv_ext.filter.fuse cimport (
    FUSE_ATTEMPTS,
    FUSE_BUILT,
    FUSE_NO_MEMORY,
    FuseGeometry,
    fuse_build,
    fuse_geometry,
    fuse_min_keys,
    fuse_width_between,
    lsm_fuse_bytes,
    lsm_fuse_slots,
)
from lsmkv_ext.filter.kernel cimport FilterC, filter_add_many, filter_count_missing, filter_size
from lsmkv_ext.filter.prefix cimport FILTER_MAX_PREFIXES, filter_prefix_hashes
from lsmkv_ext.limits cimport LARGE_VALUE, MAX_KEY, MAX_SEQ, MAX_VALUE
from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.compression cimport COMPRESSION_LZ4, COMPRESSION_ZSTD
from lsmkv_ext.port.growable cimport buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.status cimport ST_OK, fail_argument, fail_corrupt, fail_format, fail_memory
from lsmkv_ext.port.zstd cimport zstd_missing, zstd_ready
from lsmkv_ext.table.format cimport (
    FILTER_ALIGN,
    FOOTER_SIZE,
    FRAME_TRAILER,
    OPEN_ALLOWANCE,
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_CREATED,
    PROP_DATA_BYTES,
    PROP_EXPIRING,
    PROP_EXPIRING_BYTES,
    PROP_FILTER_BLOCKS,
    PROP_FILTER_KEYS,
    PROP_KEYSPACE,
    PROP_KEY_BYTES,
    PROP_LARGEST_EXCLUSIVE,
    PROP_LEVEL,
    PROP_MAX_EXPIRY,
    PROP_MAX_SEQ,
    PROP_MIN_EXPIRY,
    PROP_MIN_SEQ,
    PROP_NUMBER,
    PROP_N_BLOCKS,
    PROP_N_DELETES,
    PROP_N_ENTRIES,
    PROP_N_RANGE_TOMBSTONES,
    PROP_RESTART_INTERVAL,
    PROP_SEED,
    PROP_VALUE_BYTES,
    RANGE_COST,
    SECTION_DATA,
    SECTION_INDEX,
    SECTION_PROPS,
    SECTION_TOMBSTONES,
    IndexEntry,
    Properties,
    block_cost,
    footer_encode,
    frame_seal_split,
    index_entry_encode,
    props_encode,
    range_compare,
    range_decode,
    range_encode,
    tombstones_sort,
    use_encode,
)
from lsmkv_ext.table.meta cimport ValueUse
from lsmkv_ext.table.output cimport (
    output_abandon,
    output_close,
    output_emit,
    output_emit_direct,
    output_emit_frame,
    output_emit_zeros,
    output_free,
    output_offset,
    output_open,
)
from lsmkv_ext.values.format cimport ValuePointer, pointer_decode, pointer_end, value_padded

cdef enum:
    DEFAULT_BLOCK_SIZE = 4096
    MAX_BLOCK_SIZE = 16 << 20
    DEFAULT_INTERVAL = 8
    KEEP_BUFFER = 4 << 20          # a block builder that one huge value grew beyond this frees its memory


# --- open, size and abandon ------------------------------------------------------------------------------------------

cdef void _free(BuilderC* b) noexcept nogil:
    output_free(&b.out)
    block_builder_free(&b.block)
    buf_free(&b.first_key)
    buf_free(&b.last_key)
    buf_free(&b.last_sep)
    buf_free(&b.index)
    buf_free(&b.hashes)
    buf_free(&b.tombstones)
    buf_free(&b.meta.values)


cdef int builder_open(BuilderC* b, const char* path, const BuilderOptions* o, Status* st) noexcept nogil:
    memset(b, 0, sizeof(BuilderC))
    b.out.fd = -1
    if o.compression == COMPRESSION_ZSTD and not zstd_ready():
        return fail_format(st, zstd_missing(), o.number)
    b.o = o[0]
    if b.o.block_size == 0:
        b.o.block_size = DEFAULT_BLOCK_SIZE
    if b.o.block_size > MAX_BLOCK_SIZE:
        return fail_argument(st, "block_size is at most 16 MiB")
    if b.o.restart_interval == 0:
        b.o.restart_interval = DEFAULT_INTERVAL
    block_builder_init(&b.block, b.o.restart_interval)
    b.meta.number = b.o.number
    b.meta.min_seq = <uint64_t>-1
    return output_open(&b.out, path, st)


cdef void builder_abandon(BuilderC* b) noexcept nogil:
    output_abandon(&b.out)
    _free(b)


cdef void builder_drop_filter(BuilderC* b) noexcept nogil:
    b.o.millibits = 0
    buf_free(&b.hashes)


cdef uint64_t builder_size(const BuilderC* b) noexcept nogil:
    cdef uint64_t n = output_offset(&b.out) + b.index.len + builder_padding(b)
    if b.block.n_entries:
        n += block_builder_size(&b.block)
    return n


cdef uint64_t builder_padding(const BuilderC* b) noexcept nogil:
    # Index and range tombstones count twice: opening holds them compressed and raw at once. The properties take at most four
    # keys.
    cdef uint64_t need = (b.index_cost + 2 * b.index.len + 2 * b.tombstones.len + 4 * MAX_KEY
                          + b.meta.range_tombstones * RANGE_COST)
    cdef uint64_t have = output_offset(&b.out) + OPEN_ALLOWANCE
    return need - have if need > have else 0


# --- blocks and their index ------------------------------------------------------------------------------------------

cdef int _add_index_entry(BuilderC* b, const char* sep, size_t n, Status* st) noexcept nogil:
    """Adds the index entry of the finished block."""
    cdef IndexEntry e
    cdef size_t shared = 0
    cdef size_t limit = min(n, b.last_sep.len)
    while shared < limit and sep[shared] == b.last_sep.data[shared]:
        shared += 1
    e.shared = shared
    e.unshared = n - shared
    e.suffix = sep + shared
    e.size = b.pending_size
    e.n_entries = b.pending_entries
    if index_entry_encode(&e, &b.index) != 0 or buf_assign(&b.last_sep, sep, n) != 0:
        return fail_memory(st, "table index")
    b.pending = 0
    b.n_blocks += 1
    b.index_cost += block_cost(n)
    return ST_OK


cdef int _add_separator(BuilderC* b, const char* key, size_t klen, Status* st) noexcept nogil:
    """Picks a separator, last key <= separator < key: the shortest prefix of `key` above the last key, or the last key."""
    cdef size_t same = 0
    cdef size_t limit = min(klen, b.last_key.len)
    while same < limit and key[same] == b.last_key.data[same]:
        same += 1
    if klen > same + 1 and same + 1 <= b.last_key.len:
        return _add_index_entry(b, key, same + 1, st)
    return _add_index_entry(b, b.last_key.data, b.last_key.len, st)


cdef int _cut_block(BuilderC* b, Status* st) noexcept nogil:
    cdef int code
    b.pending_entries = b.block.n_entries
    if block_builder_finish(&b.block) != ST_OK:
        return fail_memory(st, "block")
    code = output_emit_frame(&b.out, &b.block.raw, SECTION_DATA, b.o.compression, &b.pending_size, st)
    if code != ST_OK:
        return code
    b.pending = 1
    if b.block.raw.cap > KEEP_BUFFER:
        block_builder_free(&b.block)
        buf_free(&b.out.packed)
    block_builder_reset(&b.block)
    return ST_OK


cdef int _write_large_entry(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq,
                            int kind, uint64_t hash, Status* st) noexcept nogil:
    """Writes an uncompressed block of one entry, its value straight from the caller's memory."""
    cdef GrowBuf* rest = &b.block.raw
    cdef size_t n
    cdef int code
    if block_builder_alone(&b.block, key, klen, vlen, seq, kind, hash) != ST_OK or buf_reserve(rest, FRAME_TRAILER) != 0:
        return fail_memory(st, "block")
    n = rest.len
    if vlen + n > BLOCK_MAX_RAW:
        return fail_argument(st, "table section too large")
    if frame_seal_split(val, vlen, rest.data, n, SECTION_DATA, output_offset(&b.out)) != 0:
        return fail_memory(st, "checksum")
    b.pending = 1
    b.pending_entries = 1
    b.pending_size = vlen + n + FRAME_TRAILER
    code = output_emit(&b.out, val, vlen, st)
    if code == ST_OK:
        code = output_emit(&b.out, rest.data, n + FRAME_TRAILER, st)
    block_builder_reset(&b.block)
    return code


# --- entries ---------------------------------------------------------------------------------------------------------

cdef int builder_add_hash(BuilderC* b, const char* key, size_t klen, uint64_t hash, Status* st) noexcept nogil:
    if b.o.millibits == 0:
        return ST_OK
    if buf_append(&b.hashes, &hash, 8) != 0:
        return fail_memory(st, "hashes of a filter")
    return _add_prefixes(b, key, klen, st) if b.o.prefix_kind else ST_OK


cdef int _add_prefixes(BuilderC* b, const char* key, size_t klen, Status* st) noexcept nogil:
    """Adds the hashes of the key's prefixes that the last key did not have."""
    cdef uint64_t prefixes[FILTER_MAX_PREFIXES]
    cdef int n = filter_prefix_hashes(b.o.prefix_kind, b.o.prefix_arg, key, klen, b.o.seed, prefixes)
    cdef int i
    for i in range(n):
        if i >= b.n_last_prefixes or prefixes[i] != b.last_prefixes[i]:
            if buf_append(&b.hashes, &prefixes[i], 8) != 0:
                return fail_memory(st, "hashes of a filter")
            b.last_prefixes[i] = prefixes[i]
    b.n_last_prefixes = max(n, b.n_last_prefixes)
    return ST_OK


cdef inline void _count_seq(BuilderC* b, uint64_t seq) noexcept nogil:
    b.meta.min_seq = min(b.meta.min_seq, seq)
    b.meta.max_seq = max(b.meta.max_seq, seq)


cdef void _count_expiry(BuilderC* b, uint64_t expiry, size_t n) noexcept nogil:
    b.meta.min_expiry = min(b.meta.min_expiry, expiry) if b.meta.expiring else expiry
    b.meta.max_expiry = max(b.meta.max_expiry, expiry)
    b.meta.expiring += 1
    b.meta.expiring_bytes += n


cdef uint64_t _identity(const BuilderC* b, uint64_t number) noexcept nogil:
    """Of a value log; 0 if entries may not point into it."""
    cdef Py_ssize_t i
    for i in range(b.o.n_value_logs):
        if b.o.value_logs[i].number == number:
            return b.o.value_logs[i].identity
    return 0


cdef ValueUse* _use_of(BuilderC* b, uint64_t number) noexcept nogil:
    """The counters of a value log, which are inserted in their place; NULL without memory."""
    cdef ValueUse* uses = <ValueUse*>b.meta.values.data
    cdef size_t n = b.meta.values.len // sizeof(ValueUse)
    cdef size_t i = n
    while i and uses[i - 1].number >= number:
        i -= 1
    if i < n and uses[i].number == number:
        return &uses[i]
    if buf_reserve(&b.meta.values, sizeof(ValueUse)) != 0:
        return NULL
    uses = <ValueUse*>b.meta.values.data
    memmove(&uses[i + 1], &uses[i], (n - i) * sizeof(ValueUse))
    memset(&uses[i], 0, sizeof(ValueUse))
    uses[i].number = number
    b.meta.values.len += sizeof(ValueUse)
    return &uses[i]


cdef int _count_pointer(BuilderC* b, const char* pointer, Status* st) noexcept nogil:
    cdef ValuePointer p
    cdef ValueUse* use
    cdef const char* problem = pointer_decode(pointer, &p)
    if problem != NULL:
        return fail_corrupt(st, problem, b.o.number, output_offset(&b.out))
    use = _use_of(b, p.number)
    if use == NULL:
        return fail_memory(st, "value logs")
    if use.identity == 0:
        use.identity = _identity(b, p.number)
        if use.identity == 0:
            return fail_corrupt(st, "a pointer names a value log that its table does not", p.number, p.offset)
    use.values += 1
    use.bytes += value_padded(p.stored, p.raw)
    use.end = max(use.end, pointer_end(&p))
    return ST_OK


cdef int builder_add(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq,
                     int kind, uint64_t hash, Status* st) noexcept nogil:
    cdef int code
    if klen > MAX_KEY or vlen > MAX_VALUE + EXPIRY_SIZE or seq >= MAX_SEQ:
        return fail_argument(st, "key, value or sequence number above its limit")
    if b.meta.entries:
        if lsm_compare(b.last_key.data, b.last_key.len, key, klen) >= 0:
            return fail_argument(st, "keys must be added in strictly increasing order")
    elif buf_assign(&b.first_key, key, klen) != 0:
        return fail_memory(st, "key")
    if b.block.n_entries and klen + vlen >= b.o.block_size:
        # An entry as large as a block gets its own: reading its neighbours must not read it too.
        code = _cut_block(b, st)
        if code != ST_OK:
            return code
    if b.pending:
        code = _add_separator(b, key, klen, st)
        if code != ST_OK:
            return code
    code = builder_add_hash(b, key, klen, hash, st)
    if code != ST_OK:
        return code
    if vlen > LARGE_VALUE:
        code = _write_large_entry(b, key, klen, val, vlen, seq, kind, hash, st)
        if code != ST_OK:
            return code
    elif block_builder_add(&b.block, key, klen, val, vlen, seq, kind, hash) != ST_OK:
        return fail_memory(st, "block")
    if buf_assign(&b.last_key, key, klen) != 0:
        return fail_memory(st, "key")
    b.meta.entries += 1
    b.meta.deletes += kind == ENTRY_DELETE
    if kind & ENTRY_EXPIRY:
        _count_expiry(b, expiry_of(val), klen + vlen)
    if kind & ENTRY_POINTER:
        code = _count_pointer(b, val + expiry_size(kind), st)
        if code != ST_OK:
            return code
    b.key_bytes += klen
    b.value_bytes += vlen
    _count_seq(b, seq)
    if block_builder_size(&b.block) >= b.o.block_size:
        return _cut_block(b, st)
    return ST_OK


cdef int builder_add_frames(BuilderC* b, const char* frames, size_t n, Status* st) noexcept nogil:
    return output_emit_direct(&b.out, frames, n, st)


cdef int builder_add_block(BuilderC* b, size_t frame_size, uint64_t n_entries, const char* sep, size_t sep_len,
                           Status* st) noexcept nogil:
    b.pending_size = frame_size
    b.pending_entries = <uint32_t>n_entries
    return _add_index_entry(b, sep, sep_len, st)


# --- range tombstones ------------------------------------------------------------------------------------------------

cdef int builder_add_range_tombstone(BuilderC* b, const RangeTombstone* r, Status* st) noexcept nogil:
    cdef RangeTombstone last
    cdef size_t at = b.tombstones.len
    if r.start_len > MAX_KEY or r.stop_len > MAX_KEY or r.seq >= MAX_SEQ:
        return fail_argument(st, "key or sequence number above its limit")
    if lsm_compare(r.start, r.start_len, r.stop, r.stop_len) >= 0:
        return fail_argument(st, "a range tombstone needs start < stop")
    if range_encode(r, &b.tombstones) != 0:
        return fail_memory(st, "range tombstone")
    if b.meta.range_tombstones:
        range_decode(b.tombstones.data + b.last_tombstone, b.tombstones.data + at, &last)
        b.tombstones_unsorted |= range_compare(&last, r) > 0
    b.last_tombstone = at
    b.meta.range_tombstones += 1
    _count_seq(b, r.seq)
    return ST_OK


cdef int _widen_key_range(BuilderC* b, bint empty, const RangeTombstone* r) noexcept nogil:
    if empty or lsm_compare(r.start, r.start_len, b.first_key.data, b.first_key.len) < 0:
        if buf_assign(&b.first_key, r.start, r.start_len) != 0:
            return -1
    if empty or lsm_compare(r.stop, r.stop_len, b.last_key.data, b.last_key.len) > 0:
        b.meta.largest_exclusive = 1
        return buf_assign(&b.last_key, r.stop, r.stop_len)
    return 0


cdef int _write_tombstones(BuilderC* b, Status* st) noexcept nogil:
    """Writes the range tombstones and widens the key range of the table to cover them."""
    cdef const char* p
    cdef RangeTombstone r
    cdef bint empty = b.meta.entries == 0
    b.footer.tombstones.at = output_offset(&b.out)
    if b.meta.range_tombstones == 0:
        return ST_OK
    if b.tombstones_unsorted and tombstones_sort(&b.tombstones, b.meta.range_tombstones) != 0:
        return fail_memory(st, "range tombstones")
    p = b.tombstones.data
    while p != b.tombstones.data + b.tombstones.len:
        p = range_decode(p, b.tombstones.data + b.tombstones.len, &r)
        if _widen_key_range(b, empty, &r) != 0:
            return fail_memory(st, "range tombstones")
        empty = False
    return output_emit_frame(&b.out, &b.tombstones, SECTION_TOMBSTONES, b.o.compression, &b.footer.tombstones.size, st)


# --- filter ----------------------------------------------------------------------------------------------------------

cdef int _allocate_bits(FilterC* f, uint64_t size, void** alloc, Status* st) noexcept nogil:
    """Zeroes `size` bytes at f.bits, 64-byte aligned in *alloc."""
    alloc[0] = lsm_alloc(size + FILTER_ALIGN)
    if alloc[0] == NULL:
        return fail_memory(st, "filter")
    memset(alloc[0], 0, size + FILTER_ALIGN)
    f.bits = <const uint8_t*>((<size_t>alloc[0] + FILTER_ALIGN - 1) & ~<size_t>(FILTER_ALIGN - 1))
    return ST_OK


cdef int _build_bloom(BuilderC* b, FilterC* f, void** alloc, Status* st) noexcept nogil:
    cdef int code
    f.n_keys = b.hashes.len // 8
    f.n_blocks = filter_blocks_for(f.n_keys, b.o.millibits)
    f.k = filter_k_for(b.o.millibits)
    code = _allocate_bits(f, filter_size(f), alloc, st)
    if code == ST_OK:
        filter_add_many(<uint8_t*>f.bits, f.n_blocks, f.k, <const uint64_t*>b.hashes.data, f.n_keys)
    return code


cdef int _build_fuse(BuilderC* b, FilterC* f, uint32_t width, void** alloc, Status* st) noexcept nogil:
    """Leaves f.fuse empty if every attempt fails. Repeated hashes are gone afterwards."""
    cdef FuseGeometry g
    cdef size_t n = b.hashes.len // 8
    cdef int code
    fuse_geometry(n, width, &g)
    code = _allocate_bits(f, lsm_fuse_bytes(&g), alloc, st)
    if code != ST_OK:
        return code
    code = fuse_build(<uint64_t*>b.hashes.data, &n, FUSE_ATTEMPTS, &g, <uint8_t*>f.bits)
    b.hashes.len = n * 8
    if code == FUSE_NO_MEMORY:
        return fail_memory(st, "fuse filter")
    if code != FUSE_BUILT:
        lsm_free(alloc[0])
        alloc[0] = NULL
        return ST_OK
    f.fuse = g
    f.n_keys = n
    f.n_blocks = lsm_fuse_slots(&g)
    f.k = width
    return ST_OK


cdef int _build_filter(BuilderC* b, FilterC* f, void** alloc, Status* st) noexcept nogil:
    """Builds the bits in *alloc (64-byte aligned at f.bits) and verifies that every hash passes."""
    cdef uint64_t start = lsm_now_ns()
    cdef int code = ST_OK
    f.millibits = b.o.millibits
    if b.o.milliwidth and b.hashes.len // 8 >= fuse_min_keys():
        code = _build_fuse(b, f, fuse_width_between(b.o.milliwidth, b.o.number), alloc, st)
    if code == ST_OK and f.fuse.width == 0:
        code = _build_bloom(b, f, alloc, st)
    if code != ST_OK:
        return code
    f.usable = 1
    b.filter_build_ns = lsm_now_ns() - start
    if b.o.verify_filter:
        if filter_count_missing(f, <const uint64_t*>b.hashes.data, b.hashes.len // 8) != 0:
            return fail_corrupt(st, "a new filter denies a key it was built from", b.o.number, output_offset(&b.out))
        b.filter_verify_ns = lsm_now_ns() - start - b.filter_build_ns
    return ST_OK


cdef int _write_filter(BuilderC* b, Status* st) noexcept nogil:
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
            code = output_emit_zeros(&b.out, -output_offset(&b.out) & (FILTER_ALIGN - 1), st)
    b.footer.filter.at = output_offset(&b.out)
    b.footer.filter.size = filter_size(&f)
    if code == ST_OK:
        filter_encode_header(&f, b.footer.filter_header)
        if b.footer.filter.size:
            code = output_emit(&b.out, <const char*>f.bits, b.footer.filter.size, st)
    lsm_free(alloc)
    b.meta.filter_bytes = b.footer.filter.size
    b.meta.filter_keys = f.n_keys
    b.meta.millibits = f.millibits
    b.meta.k = f.k
    b.meta.filter_kind = FILTER_KIND_FUSE if f.fuse.width else FILTER_KIND_BLOCKED
    b.meta.filter_level = b.o.level
    b.filter_blocks = f.n_blocks
    return code


# --- the end of the file ---------------------------------------------------------------------------------------------

cdef int _write_index(BuilderC* b, Status* st) noexcept nogil:
    b.footer.data_end = output_offset(&b.out)
    b.footer.index.at = b.footer.data_end
    return output_emit_frame(&b.out, &b.index, SECTION_INDEX, b.o.compression, &b.footer.index.size, st)


cdef void _fill_props(const BuilderC* b, Properties* props) noexcept nogil:
    cdef uint64_t* numbers = props.numbers
    memset(props, 0, sizeof(Properties))
    numbers[PROP_N_ENTRIES] = b.meta.entries
    numbers[PROP_N_DELETES] = b.meta.deletes
    numbers[PROP_N_RANGE_TOMBSTONES] = b.meta.range_tombstones
    numbers[PROP_KEY_BYTES] = b.key_bytes
    numbers[PROP_VALUE_BYTES] = b.value_bytes
    numbers[PROP_DATA_BYTES] = b.footer.data_end
    numbers[PROP_N_BLOCKS] = b.n_blocks
    numbers[PROP_MIN_SEQ] = b.meta.min_seq
    numbers[PROP_MAX_SEQ] = b.meta.max_seq
    numbers[PROP_SEED] = b.o.seed
    numbers[PROP_LARGEST_EXCLUSIVE] = b.meta.largest_exclusive
    numbers[PROP_NUMBER] = b.o.number
    numbers[PROP_CREATED] = b.o.created_unix
    numbers[PROP_LEVEL] = b.o.level
    numbers[PROP_COMPRESSION] = b.o.compression
    numbers[PROP_BLOCK_SIZE] = b.o.block_size
    numbers[PROP_RESTART_INTERVAL] = 1 << b.block.shift
    numbers[PROP_FILTER_KEYS] = b.meta.filter_keys
    numbers[PROP_FILTER_BLOCKS] = b.filter_blocks
    numbers[PROP_KEYSPACE] = b.o.keyspace
    numbers[PROP_EXPIRING] = b.meta.expiring
    numbers[PROP_MIN_EXPIRY] = b.meta.min_expiry
    numbers[PROP_MAX_EXPIRY] = b.meta.max_expiry
    numbers[PROP_EXPIRING_BYTES] = b.meta.expiring_bytes
    props.keyspace_name = b.o.keyspace_name
    props.keyspace_name_len = b.o.keyspace_name_len
    props.smallest = b.first_key.data
    props.smallest_len = b.first_key.len
    props.largest = b.last_key.data
    props.largest_len = b.last_key.len


cdef int _encode_uses(const BuilderC* b, GrowBuf* out) noexcept nogil:
    cdef const ValueUse* uses = <const ValueUse*>b.meta.values.data
    cdef size_t i
    for i in range(b.meta.values.len // sizeof(ValueUse)):
        if use_encode(&uses[i], out) != 0:
            return -1
    return 0


cdef int _write_props(BuilderC* b, Status* st) noexcept nogil:
    cdef Properties props
    cdef GrowBuf raw, uses
    cdef int code, codec
    memset(&raw, 0, sizeof(GrowBuf))
    memset(&uses, 0, sizeof(GrowBuf))
    if b.meta.min_seq > b.meta.max_seq:
        b.meta.min_seq = 0         # an empty table
    _fill_props(b, &props)
    b.footer.props.at = output_offset(&b.out)
    code = _encode_uses(b, &uses)
    props.value_logs = uses.data
    props.value_logs_len = uses.len
    if code != 0 or props_encode(&props, &raw) != 0:
        code = fail_memory(st, "properties")
    else:
        # Never with zstd: they tell a reader whether it needs zstd.
        codec = min(b.o.compression, <int>COMPRESSION_LZ4)
        code = output_emit_frame(&b.out, &raw, SECTION_PROPS, codec, &b.footer.props.size, st)
    buf_free(&raw)
    buf_free(&uses)
    return code


cdef bint _needs_version_2(const BuilderC* b) noexcept nogil:
    return b.o.keyspace or b.meta.expiring or b.meta.values.len or b.o.compression == COMPRESSION_ZSTD


cdef int _write_tail(BuilderC* b, Status* st) noexcept nogil:
    cdef char footer[FOOTER_SIZE]
    cdef uint64_t padding = builder_padding(b)
    cdef int code = _write_index(b, st)
    if code == ST_OK:
        code = output_emit_zeros(&b.out, padding, st)
    if code == ST_OK:
        code = _write_filter(b, st)
    if code == ST_OK:
        code = _write_tombstones(b, st)
    if code == ST_OK:
        code = _write_props(b, st)
    if code != ST_OK:
        return code
    b.footer.version = 2 if _needs_version_2(b) else 1
    footer_encode(&b.footer, footer)
    return output_emit(&b.out, footer, FOOTER_SIZE, st)


cdef void _take_meta(BuilderC* b, TableMetaC* out) noexcept nogil:
    out[0] = b.meta
    out.size = b.out.written
    out.raw_bytes = b.key_bytes + b.value_bytes
    out.data_bytes = b.footer.data_end
    out.index_bytes = b.footer.index.size
    out.smallest = b.first_key
    out.largest = b.last_key
    memset(&b.first_key, 0, sizeof(GrowBuf))
    memset(&b.last_key, 0, sizeof(GrowBuf))
    memset(&b.meta.values, 0, sizeof(GrowBuf))


cdef int builder_finish(BuilderC* b, TableMetaC* out, Status* st) noexcept nogil:
    cdef int code = ST_OK
    memset(out, 0, sizeof(TableMetaC))
    if b.block.n_entries:
        code = _cut_block(b, st)
    if code == ST_OK and b.pending:
        code = _add_index_entry(b, b.last_key.data, b.last_key.len, st)
    if code == ST_OK:
        code = _write_tail(b, st)
    if code == ST_OK:
        code = output_close(&b.out, st)
    if code != ST_OK:
        builder_abandon(b)
        return code
    _take_meta(b, out)
    _free(b)
    return ST_OK

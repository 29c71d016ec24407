import os
import time

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.block.block cimport (
    BLOCK_SLACK,
    BlockC,
    BlockIter,
    block_hash_keys,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_next,
    block_iter_set,
)
from lsmkv_ext.port.growable cimport GrowBuf, buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.coding cimport get_varint
from lsmkv_ext.table.sst cimport summary_dict
from lsmkv_ext.port.status cimport (
    ST_CORRUPT,
    ST_OK,
    Status,
    fail_argument,
    fail_corrupt,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.table.table cimport (
    RangeTombstone,
    RangeWalk,
    Table,
    TableC,
    range_walk_init,
    range_walk_next,
    table_decode_block,
    table_unpin,
)
from lsmkv_ext.table.builder cimport (
    BuilderC,
    BuilderOptions,
    builder_abandon,
    builder_add_block,
    builder_add_frames,
    builder_add_hash,
    builder_add_range_tombstone,
    builder_finish,
    builder_open,
    summary_free,
)
from lsmkv_ext.table.format cimport (
    KIND_DATA,
    KIND_INDEX,
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_KEY_BYTES,
    PROP_MAX_SEQ,
    PROP_MIN_SEQ,
    PROP_RESTART_INTERVAL,
    PROP_VALUE_BYTES,
)
from lsmkv_ext.table.open cimport frame_check, frame_unpack, table_pread, table_prop

cdef enum:
    READ_SIZE = 256 << 10          # what stays in the processor's cache from the read over the hashing to the write

ctypedef struct Copy:              # what the copy of one table needs besides its two ends
    GrowBuf chunk                  # file bytes
    GrowBuf separator
    GrowBuf key                    # room for a key
    GrowBuf index                  # raw, where no block is opened: it knows how many entries each has
    const char* index_next
    BlockIter it
    uint64_t n_entries             # found in the blocks
    uint64_t key_bytes
    uint64_t value_bytes


cdef void _copy_free(Copy* c) noexcept nogil:
    buf_free(&c.chunk)
    buf_free(&c.separator)
    buf_free(&c.key)
    buf_free(&c.index)
    block_iter_close(&c.it)


# --- blocks whose keys are hashed ------------------------------------------------------------------------------------

cdef int _hash_fast(BuilderC* b, BlockC* block, Copy* c, Status* st) noexcept nogil:
    c.key.len = 0
    if buf_reserve(&c.key, <size_t>block.max_klen + BLOCK_SLACK) != 0:
        return fail_memory(st, "key buffer")
    if buf_reserve(&b.hashes, <size_t>block.n_entries * 8) != 0:
        return fail_memory(st, "hashes of a filter")
    c.key_bytes += block_hash_keys(block, b.o.seed, c.key.data, <uint64_t*>(b.hashes.data + b.hashes.len))
    b.hashes.len += <size_t>block.n_entries * 8
    return ST_OK


cdef int _hash_with_prefixes(BuilderC* b, BlockC* block, Copy* c, Status* st) noexcept nogil:
    cdef int code
    if block_iter_set(&c.it, block) != ST_OK:
        return fail_memory(st, "key buffer")
    block_iter_first(&c.it)
    while c.it.valid:
        code = builder_add_hash(b, c.it.entry.key, c.it.entry.klen,
                                xxh3(c.it.entry.key, c.it.entry.klen, b.o.seed), st)
        if code != ST_OK:
            return code
        c.key_bytes += c.it.entry.klen
        block_iter_next(&c.it)
    return ST_OK


cdef int _hash_block(TableC* t, uint32_t i, const char* frame, BuilderC* b, Copy* c, uint64_t* n_entries,
                     Status* st) noexcept nogil:
    cdef BlockC* block = NULL
    cdef int code = table_decode_block(t, frame, t.offsets[i + 1] - t.offsets[i], t.offsets[i], &block, st)
    if code != ST_OK:
        return code
    code = _hash_with_prefixes(b, block, c, st) if b.o.prefix_kind else _hash_fast(b, block, c, st)
    c.value_bytes += block.keys_at
    n_entries[0] = block.n_entries
    table_unpin(t, block)
    return code


# --- blocks that stay closed -----------------------------------------------------------------------------------------

cdef int _load_index(TableC* t, Copy* c, Status* st) noexcept nogil:
    cdef uint32_t raw_size = 0
    cdef int compression = 0
    cdef int code
    if buf_reserve(&c.chunk, t.index_size) != 0:
        return fail_memory(st, "copy buffer")
    code = table_pread(t, c.chunk.data, t.index_size, t.index_at, st)
    if code == ST_OK:
        code = frame_check(t, c.chunk.data, t.index_size, KIND_INDEX, t.index_at, &raw_size, &compression, st)
    if code != ST_OK:
        return code
    if buf_reserve(&c.index, <size_t>raw_size + 1) != 0:
        return fail_memory(st, "index")
    c.index.len = raw_size
    c.index_next = c.index.data
    return frame_unpack(t, c.chunk.data, t.index_size, raw_size, compression, c.index.data, t.index_at, st)


cdef int _check_block(TableC* t, uint32_t i, const char* frame, Copy* c, uint64_t* n_entries, Status* st) noexcept nogil:
    """The checksum of the block, and from the index how many entries it has."""
    cdef const char* end = c.index.data + c.index.len
    cdef const char* p = c.index_next
    cdef uint64_t shared, unshared = 0, size
    cdef uint32_t raw_size
    cdef int compression
    p = get_varint(p, end, &shared)
    if p != NULL:
        p = get_varint(p, end, &unshared)
    if p != NULL and unshared <= <uint64_t>(end - p):
        p = get_varint(p + unshared, end, &size)
        if p != NULL:
            p = get_varint(p, end, n_entries)
    else:
        p = NULL
    if p == NULL:
        return fail_corrupt(st, "damaged index", t.number, t.index_at)
    c.index_next = p
    return frame_check(t, frame, t.offsets[i + 1] - t.offsets[i], KIND_DATA, t.offsets[i], &raw_size, &compression, st)


# --- the copy --------------------------------------------------------------------------------------------------------

cdef int _read_frames(TableC* t, uint32_t i, Copy* c, uint32_t* stop, Status* st) noexcept nogil:
    """Blocks i to stop, as they stand in the file."""
    cdef uint32_t upto = i + 1
    cdef uint64_t n
    cdef int code
    while upto < t.n_blocks and t.offsets[upto + 1] - t.offsets[i] <= READ_SIZE:
        upto += 1
    n = t.offsets[upto] - t.offsets[i]
    c.chunk.len = 0
    if buf_reserve(&c.chunk, n) != 0:
        return fail_memory(st, "copy buffer")
    code = table_pread(t, c.chunk.data, n, t.offsets[i], st)
    c.chunk.len = n
    stop[0] = upto
    return code


cdef int _take_block(TableC* t, uint32_t i, const char* frame, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef uint64_t n_entries = 0
    cdef int code
    if b.o.millibits:
        code = _hash_block(t, i, frame, b, c, &n_entries, st)
    else:
        code = _check_block(t, i, frame, c, &n_entries, st)
    if code != ST_OK:
        return code
    c.n_entries += n_entries
    if buf_assign(&c.separator, t.common, t.common_len) != 0 \
            or buf_append(&c.separator, t.seps + t.sep_at[i], t.sep_at[i + 1] - t.sep_at[i]) != 0:
        return fail_memory(st, "separator")
    return builder_add_block(b, t.offsets[i + 1] - t.offsets[i], n_entries, c.separator.data, c.separator.len, st)


cdef int _copy_blocks(TableC* t, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef uint32_t i = 0, stop = 0
    cdef uint64_t start
    cdef int code
    while i < t.n_blocks:
        start = t.offsets[i]
        code = _read_frames(t, i, c, &stop, st)
        while code == ST_OK and i < stop:
            code = _take_block(t, i, c.chunk.data + (t.offsets[i] - start), b, c, st)
            i += 1
        if code == ST_OK:
            code = builder_add_frames(b, c.chunk.data, c.chunk.len, st)
        if code != ST_OK:
            return code
    return ST_OK


cdef int _inherit(TableC* t, BuilderC* b, Status* st) noexcept nogil:
    """What the properties say of the entries; they are the same ones."""
    b.s.n_entries = t.n_entries
    b.s.n_deletes = t.n_deletes
    b.s.min_seq = table_prop(t, PROP_MIN_SEQ)
    b.s.max_seq = table_prop(t, PROP_MAX_SEQ)
    b.key_bytes = table_prop(t, PROP_KEY_BYTES)
    b.value_bytes = table_prop(t, PROP_VALUE_BYTES)
    b.s.largest_exclusive = t.largest_exclusive
    if buf_assign(&b.first_key, t.smallest, t.smallest_len) != 0 \
            or buf_assign(&b.last_key, t.largest, t.largest_len) != 0:
        return fail_memory(st, "key")
    return ST_OK


cdef int _copy_all(TableC* t, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef RangeTombstone r
    cdef RangeWalk walk
    cdef int code = ST_OK if b.o.millibits else _load_index(t, c, st)
    if code == ST_OK:
        code = _copy_blocks(t, b, c, st)
    range_walk_init(&walk, t)
    # As they stand in the file: with the number of an ingest they would be newer than the entries beside them.
    walk.global_seq = 0
    while code == ST_OK and range_walk_next(&walk, &r):
        code = builder_add_range_tombstone(b, r.start, r.start_len, r.stop, r.stop_len, r.seq, st)
    if code == ST_OK:
        code = _inherit(t, b, st)
    if code != ST_OK:
        return code
    if c.n_entries != b.s.n_entries or (b.o.millibits and (c.key_bytes != b.key_bytes or c.value_bytes != b.value_bytes)):
        # Publishing a copy would bless a table that is not what it says.
        return fail_corrupt(st, "properties contradict the data blocks", t.number, t.props_at)
    return ST_OK


cdef int rebuild_filter(TableC* t, const char* out_path, const RefilterOptions* o, TableSummary* out,
                        Status* st) noexcept nogil:
    cdef BuilderOptions bo
    cdef BuilderC* b
    cdef Copy c
    cdef int code
    memset(out, 0, sizeof(TableSummary))
    if o.seed != t.seed:
        return fail_argument(st, "a filter for the same blocks needs the same seed")
    memset(&c, 0, sizeof(Copy))
    block_iter_init(&c.it)
    memset(&bo, 0, sizeof(BuilderOptions))
    bo.seed = o.seed
    bo.block_size = <uint32_t>table_prop(t, PROP_BLOCK_SIZE)
    bo.restart_interval = <uint32_t>table_prop(t, PROP_RESTART_INTERVAL)
    bo.compression = <int>table_prop(t, PROP_COMPRESSION)
    bo.millibits = o.millibits
    bo.level = o.level
    bo.verify_filter = o.verify_filter
    bo.prefix_kind = o.prefix_kind
    bo.prefix_arg = o.prefix_arg
    bo.number = o.number
    bo.created_unix = o.created_unix
    b = <BuilderC*>malloc(sizeof(BuilderC))
    if b == NULL:
        return fail_memory(st, "table builder")
    code = builder_open(b, out_path, &bo, st)
    if code == ST_OK:
        code = _copy_all(t, b, &c, st)
        if code == ST_OK:
            code = builder_finish(b, out, st)
        else:
            builder_abandon(b)
    free(b)
    _copy_free(&c)
    return code


def rebuild_table_filter(Table table not None, out_path, *, millibits, level=0, number=0, verify=True, prefix_kind=0,
                         prefix_arg=0):
    """Writes `out_path`: the table's data blocks with another filter. Returns the summary of the new table."""
    cdef RefilterOptions o
    cdef TableSummary s
    cdef Status st
    cdef bytes name = os.fsencode(os.path.abspath(os.fsdecode(out_path)))
    cdef const char* path = name
    cdef int code
    memset(&o, 0, sizeof(RefilterOptions))
    o.seed = table.c.seed
    o.millibits = millibits
    o.level = level
    o.verify_filter = verify
    o.prefix_kind = prefix_kind
    o.prefix_arg = prefix_arg
    o.number = number
    o.created_unix = int(time.time())
    status_clear(&st)
    with nogil:
        code = rebuild_filter(table.c, path, &o, &s, &st)
    if code != ST_OK:
        # What was found wrong with the new filter is no fault of the table it was made from.
        of_result = st.code != ST_CORRUPT or st.file_number == o.number != table.c.number
        raise_status(&st, os.fsdecode(name) if of_result else table.path)
    out = summary_dict(&s)
    summary_free(&s)
    return out

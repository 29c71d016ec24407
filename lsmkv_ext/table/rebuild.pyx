import os
import time

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove, memset

from lsmkv_ext.block.block cimport block_hash_keys
from lsmkv_ext.block.iterator cimport (
    BlockIter,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_next,
    block_iter_set,
)
from lsmkv_ext.block.memory cimport BLOCK_SLACK, BlockC
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.growable cimport GrowBuf, buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.port.status cimport (
    ST_CORRUPT,
    ST_OK,
    Status,
    fail_corrupt,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.table.builder cimport (
    builder_abandon,
    builder_add_block,
    builder_add_frames,
    builder_add_hash,
    builder_add_range_tombstone,
    builder_finish,
    builder_open,
)
from lsmkv_ext.table.format cimport (
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_EXPIRING,
    PROP_EXPIRING_BYTES,
    PROP_KEY_BYTES,
    PROP_MAX_EXPIRY,
    PROP_MAX_SEQ,
    PROP_MIN_EXPIRY,
    PROP_MIN_SEQ,
    PROP_RESTART_INTERVAL,
    PROP_VALUE_BYTES,
    SECTION_DATA,
    SECTION_INDEX,
    Frame,
    IndexEntry,
    RangeTombstone,
    frame_check,
    frame_unpack,
    index_entry_decode,
)
from lsmkv_ext.table.meta cimport ValueUse, meta_free, meta_object
from lsmkv_ext.table.reader cimport table_decode_block, table_pread, table_unpin, table_uses_zstd
from lsmkv_ext.table.table cimport Table
from lsmkv_ext.table.tombstones cimport TombstoneWalk, tombstone_walk_init, tombstone_walk_next

cdef enum:
    READ_SIZE = 256 << 10          # stays in the processor's cache from read to hash to write

ctypedef struct Copy:              # the state of one copy
    GrowBuf chunk                  # file bytes: a window, after the cut block in front of it
    uint64_t at                    # file offset of the window
    size_t cut                     # bytes of the cut block in front of the window
    GrowBuf separator
    GrowBuf key                    # room for a key
    GrowBuf index                  # the raw index, if no block is decoded: it has the number of entries of each
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

cdef int _hash_keys(BuilderC* b, BlockC* block, Copy* c, Status* st) noexcept nogil:
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
    cdef int code = table_decode_block(t, frame, t.offsets[i + 1] - t.offsets[i], t.offsets[i], False, &block, st)
    if code != ST_OK:
        return code
    code = _hash_with_prefixes(b, block, c, st) if b.o.prefix_kind else _hash_keys(b, block, c, st)
    c.value_bytes += block.keys_at
    n_entries[0] = block.n_entries
    table_unpin(t, block)
    return code


# --- blocks that are not decoded ------------------------------------------------------------------------------------

cdef int _load_index(TableC* t, Copy* c, Status* st) noexcept nogil:
    cdef Frame f
    cdef const char* problem
    cdef int code
    if buf_reserve(&c.chunk, t.footer.index.size) != 0:
        return fail_memory(st, "copy buffer")
    code = table_pread(t, c.chunk.data, t.footer.index.size, t.footer.index.at, st)
    if code != ST_OK:
        return code
    problem = frame_check(c.chunk.data, t.footer.index.size, SECTION_INDEX, t.footer.index.at, table_uses_zstd(t), &f)
    if problem != NULL:
        return fail_corrupt(st, problem, t.number, t.footer.index.at)
    if buf_reserve(&c.index, <size_t>f.raw_size + 1) != 0:
        return fail_memory(st, "index")
    c.index.len = f.raw_size
    c.index_next = c.index.data
    return frame_unpack(&f, c.index.data, t.number, t.footer.index.at, st)


cdef int _check_block(TableC* t, uint32_t i, const char* frame, Copy* c, uint64_t* n_entries, Status* st) noexcept nogil:
    """Checks the block's checksum and takes its number of entries from the index."""
    cdef IndexEntry e
    cdef Frame f
    cdef const char* problem
    c.index_next = index_entry_decode(c.index_next, c.index.data + c.index.len, &e)
    if c.index_next == NULL:
        return fail_corrupt(st, "malformed index", t.number, t.footer.index.at)
    n_entries[0] = e.n_entries
    problem = frame_check(frame, t.offsets[i + 1] - t.offsets[i], SECTION_DATA, t.offsets[i], table_uses_zstd(t), &f)
    if problem != NULL:
        return fail_corrupt(st, problem, t.number, t.offsets[i])
    return ST_OK


# --- the copy --------------------------------------------------------------------------------------------------------

cdef int _copy_block(TableC* t, uint32_t i, const char* frame, BuilderC* b, Copy* c, Status* st) noexcept nogil:
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


cdef int _read_window(TableC* t, Copy* c, Status* st) noexcept nogil:
    """Reads the next READ_SIZE bytes of data blocks behind the first bytes of a block that the last window cut."""
    cdef uint64_t n = min(<uint64_t>READ_SIZE, t.offsets[t.n_blocks] - c.at)
    c.chunk.len = c.cut
    if buf_reserve(&c.chunk, n) != 0:
        return fail_memory(st, "copy buffer")
    c.chunk.len += n
    return table_pread(t, c.chunk.data + c.cut, n, c.at, st)


cdef int _copy_window(TableC* t, BuilderC* b, Copy* c, uint32_t* next, Status* st) noexcept nogil:
    """Copies the window that was read, and the blocks that end in it. Whole windows are written at multiples of their size, which
    the page cache takes in large folios."""
    cdef uint64_t start = c.at - c.cut
    cdef uint64_t stop = start + c.chunk.len
    cdef uint32_t i = next[0]
    cdef int code = ST_OK
    while code == ST_OK and i < t.n_blocks and t.offsets[i + 1] <= stop:
        code = _copy_block(t, i, c.chunk.data + (t.offsets[i] - start), b, c, st)
        i += 1
    if code == ST_OK:
        code = builder_add_frames(b, c.chunk.data + c.cut, c.chunk.len - c.cut, st)
    if code != ST_OK:
        return code
    c.at = stop
    c.cut = stop - t.offsets[i]
    memmove(c.chunk.data, c.chunk.data + (t.offsets[i] - start), c.cut)
    next[0] = i
    return ST_OK


cdef int _copy_blocks(TableC* t, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef uint32_t i = 0
    cdef int code = ST_OK
    c.at = t.offsets[0] if t.n_blocks else 0
    while code == ST_OK and i < t.n_blocks:
        code = _read_window(t, c, st)
        if code == ST_OK:
            code = _copy_window(t, b, c, &i, st)
    return code


cdef int _inherit(TableC* t, BuilderC* b, Status* st) noexcept nogil:
    """Copies the properties of the entries, which are the same."""
    b.meta.entries = t.n_entries
    b.meta.deletes = t.n_deletes
    b.meta.min_seq = t.props.numbers[PROP_MIN_SEQ]
    b.meta.max_seq = t.props.numbers[PROP_MAX_SEQ]
    b.meta.largest_exclusive = t.largest_exclusive
    b.meta.expiring = t.props.numbers[PROP_EXPIRING]
    b.meta.min_expiry = t.props.numbers[PROP_MIN_EXPIRY]
    b.meta.max_expiry = t.props.numbers[PROP_MAX_EXPIRY]
    b.meta.expiring_bytes = t.props.numbers[PROP_EXPIRING_BYTES]
    b.key_bytes = t.props.numbers[PROP_KEY_BYTES]
    b.value_bytes = t.props.numbers[PROP_VALUE_BYTES]
    if buf_assign(&b.first_key, t.smallest, t.smallest_len) != 0 \
            or buf_assign(&b.last_key, t.largest, t.largest_len) != 0 \
            or buf_assign(&b.meta.values, t.uses, t.n_uses * sizeof(ValueUse)) != 0:
        return fail_memory(st, "key")
    if t.own_log:
        (<ValueUse*>b.meta.values.data).number = 0      # as in the pointers, which are copied
    return ST_OK


cdef void _adopt_ingested(TableC* t, TableMetaC* out) noexcept nogil:
    """What only the manifest knows of an ingested table."""
    if t.global_seq:
        out.global_seq = out.min_seq = out.max_seq = t.global_seq
    if t.own_log:
        out.own_log = (<ValueUse*>out.values.data).number = t.own_log


cdef int _copy_all(TableC* t, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef RangeTombstone r
    cdef TombstoneWalk walk
    cdef int code = ST_OK if b.o.millibits else _load_index(t, c, st)
    if code == ST_OK:
        code = _copy_blocks(t, b, c, st)
    tombstone_walk_init(&walk, &t.tombstones)
    # As stored: with global_seq they would be newer than the entries of the table.
    walk.global_seq = 0
    while code == ST_OK and tombstone_walk_next(&walk, &r):
        code = builder_add_range_tombstone(b, &r, st)
    if code == ST_OK:
        code = _inherit(t, b, st)
    if code != ST_OK:
        return code
    if c.n_entries != b.meta.entries or (b.o.millibits and (c.key_bytes != b.key_bytes or c.value_bytes != b.value_bytes)):
        # A copy with new checksums would hide the damage.
        return fail_corrupt(st, "properties contradict the data blocks", t.number, t.footer.props.at)
    return ST_OK


cdef int rebuild_filter(TableC* t, const char* out_path, BuilderOptions* o, BuilderC* b, TableMetaC* out,
                        Status* st) noexcept nogil:
    cdef Copy c
    cdef int code
    memset(out, 0, sizeof(TableMetaC))
    o.seed = t.seed
    o.block_size = <uint32_t>t.props.numbers[PROP_BLOCK_SIZE]
    o.restart_interval = <uint32_t>t.props.numbers[PROP_RESTART_INTERVAL]
    o.compression = <int>t.props.numbers[PROP_COMPRESSION]
    code = builder_open(b, out_path, o, st)
    if code != ST_OK:
        return code
    memset(&c, 0, sizeof(Copy))
    block_iter_init(&c.it)
    code = _copy_all(t, b, &c, st)
    _copy_free(&c)
    if code != ST_OK:
        builder_abandon(b)
        return code
    code = builder_finish(b, out, st)
    if code == ST_OK:
        _adopt_ingested(t, out)
    return code


def rebuild_table_filter(Table table not None, out_path, *, millibits, milliwidth=0, level=0, number=0, verify=True,
                         prefix_kind=0, prefix_arg=0, keyspace=(0, b"")):
    """Writes the table's data blocks with another filter to `out_path`. Returns a dict like that of Job.run."""
    cdef BuilderOptions o
    cdef TableMetaC meta
    cdef BuilderC* b
    cdef Status st
    cdef bytes name = os.fsencode(os.path.abspath(os.fsdecode(out_path)))
    cdef const char* path = name
    cdef uint64_t began = lsm_now_ns()
    cdef bytes keyspace_name
    cdef int code
    memset(&o, 0, sizeof(BuilderOptions))
    o.millibits = millibits
    o.milliwidth = milliwidth
    o.level = level
    o.verify_filter = verify
    o.prefix_kind = prefix_kind
    o.prefix_arg = prefix_arg
    o.number = number
    o.created_unix = int(time.time())
    o.keyspace, keyspace_name = keyspace
    o.keyspace_name = keyspace_name
    o.keyspace_name_len = <size_t>len(keyspace_name)
    status_clear(&st)
    b = <BuilderC*>malloc(sizeof(BuilderC))
    if b == NULL:
        raise MemoryError("table builder")
    try:
        with nogil:
            code = rebuild_filter(table.c, path, &o, b, &meta, &st)
        if code != ST_OK:
            # Damage found in the new file is not that of the old table.
            of_result = st.code != ST_CORRUPT or st.file_number == o.number != table.c.number
            raise_status(&st, os.fsdecode(name) if of_result else table.path)
        try:
            return {
                "outputs": [meta_object(&meta)],
                "bytes_read": table.c.file_size,
                "bytes_written": meta.size,
                "entries_in": table.c.n_entries,
                "entries_out": meta.entries,
                "filter_build_ns": b.filter_build_ns,
                "filter_verify_ns": b.filter_verify_ns,
                "ns": lsm_now_ns() - began,
            }
        finally:
            meta_free(&meta)
    finally:
        free(b)

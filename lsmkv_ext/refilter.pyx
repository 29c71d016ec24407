import os
import time

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext cimport native
from lsmkv_ext.block cimport (
    BlockC,
    BlockIter,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_next,
    block_iter_set,
)
from lsmkv_ext.buffer cimport GrowBuf, buf_append, buf_assign, buf_free, buf_reserve
from lsmkv_ext.sst cimport summary_dict
from lsmkv_ext.status cimport (
    ST_CORRUPT,
    ST_OK,
    Status,
    fail_argument,
    fail_corrupt,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.table cimport RangeDelete, Table, TableC, table_decode_block, table_unpin
from lsmkv_ext.table_builder cimport (
    BuilderC,
    BuilderOptions,
    builder_abandon,
    builder_add_block,
    builder_add_hash,
    builder_add_range_delete,
    builder_finish,
    builder_open,
    summary_free,
)
from lsmkv_ext.table_format cimport (
    PROP_BLOCK_SIZE,
    PROP_COMPRESSION,
    PROP_KEY_BYTES,
    PROP_RESTART_INTERVAL,
    PROP_VALUE_BYTES,
)
from lsmkv_ext.table_open cimport table_pread, table_prop

cdef enum:
    READ_SIZE = 1 << 20

ctypedef struct Copy:              # what the copy of one table needs besides its two ends
    GrowBuf chunk                  # file bytes from chunk_at
    uint64_t chunk_at
    GrowBuf separator
    GrowBuf key                    # first key, then the last one seen
    BlockIter it


cdef void _copy_free(Copy* c) noexcept nogil:
    buf_free(&c.chunk)
    buf_free(&c.separator)
    buf_free(&c.key)
    block_iter_close(&c.it)


cdef int _frame(TableC* t, uint32_t i, Copy* c, const char** frame, Status* st) noexcept nogil:
    """Block i's bytes in the file, read in large steps."""
    cdef uint64_t at = t.offsets[i]
    cdef uint64_t end = t.offsets[i + 1]
    cdef uint64_t upto
    cdef int code
    if end > c.chunk_at + c.chunk.len:
        upto = min(max(end, at + READ_SIZE), t.data_end)
        c.chunk.len = 0
        if buf_reserve(&c.chunk, upto - at) != 0:
            return fail_memory(st, "copy buffer")
        code = table_pread(t, c.chunk.data, upto - at, at, st)
        if code != ST_OK:
            return code
        c.chunk_at = at
        c.chunk.len = upto - at
    frame[0] = c.chunk.data + (at - c.chunk_at)
    return ST_OK


cdef int _hash_block(BuilderC* b, BlockC* block, Copy* c, Status* st) noexcept nogil:
    cdef int code
    if block_iter_set(&c.it, block) != ST_OK:
        return fail_memory(st, "key buffer")
    block_iter_first(&c.it)
    while c.it.valid:
        code = builder_add_hash(b, c.it.entry.key, c.it.entry.klen,
                                native.xxh3(c.it.entry.key, c.it.entry.klen, b.o.seed), st)
        if code != ST_OK:
            return code
        if b.s.n_entries == 0 and buf_assign(&b.first_key, c.it.entry.key, c.it.entry.klen) != 0:
            return fail_memory(st, "key")
        if buf_assign(&c.key, c.it.entry.key, c.it.entry.klen) != 0:
            return fail_memory(st, "key")
        b.s.n_entries += 1
        b.s.n_deletes += c.it.entry.is_delete
        b.s.min_seq = min(b.s.min_seq, c.it.entry.seq)
        b.s.max_seq = max(b.s.max_seq, c.it.entry.seq)
        b.key_bytes += c.it.entry.klen
        b.value_bytes += c.it.entry.vlen
        block_iter_next(&c.it)
    return ST_OK


cdef int _copy_block(TableC* t, uint32_t i, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef const char* frame = NULL
    cdef size_t n = t.offsets[i + 1] - t.offsets[i]
    cdef BlockC* block = NULL
    cdef int code = _frame(t, i, c, &frame, st)
    if code != ST_OK:
        return code
    code = table_decode_block(t, frame, n, t.offsets[i], &block, st)
    if code != ST_OK:
        return code
    code = _hash_block(b, block, c, st)
    if code == ST_OK and (buf_assign(&c.separator, t.common, t.common_len) != 0
                          or buf_append(&c.separator, t.seps + t.sep_at[i], t.sep_at[i + 1] - t.sep_at[i]) != 0):
        code = fail_memory(st, "separator")
    if code == ST_OK:
        code = builder_add_block(b, frame, n, block.n_entries, c.separator.data, c.separator.len, st)
    table_unpin(t, block)
    return code


cdef int _copy_all(TableC* t, BuilderC* b, Copy* c, Status* st) noexcept nogil:
    cdef const RangeDelete* r
    cdef uint32_t i
    cdef int code
    for i in range(t.n_blocks):
        code = _copy_block(t, i, b, c, st)
        if code != ST_OK:
            return code
    if buf_assign(&b.last_key, c.key.data, c.key.len) != 0:
        return fail_memory(st, "key")
    if b.s.n_entries != t.n_entries or b.key_bytes != table_prop(t, PROP_KEY_BYTES) \
            or b.value_bytes != table_prop(t, PROP_VALUE_BYTES):
        # Publishing a copy would bless a table that is not what it says.
        return fail_corrupt(st, "properties contradict the data blocks", t.number, t.props_at)
    for i in range(t.n_range_deletes):
        r = &t.range_deletes[i]
        code = builder_add_range_delete(b, r.start, r.start_len, r.stop, r.stop_len, r.seq, st)
        if code != ST_OK:
            return code
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
        raise_status(&st, table.path if st.code == ST_CORRUPT else os.fsdecode(name))
    out = summary_dict(&s)
    summary_free(&s)
    return out

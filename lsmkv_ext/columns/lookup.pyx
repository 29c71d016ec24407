"""Lookups of a whole column of keys. The path is that of `multi_get`, without a Python object per key."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from lsmkv_ext.arrow.abi cimport ArrowArray
from lsmkv_ext.arrow.array cimport new_column
from lsmkv_ext.arrow.builder cimport (
    ColumnBuilder,
    column_add,
    column_append,
    column_append_null,
    column_begin,
    column_finish,
    column_free,
    column_has_room,
)
from lsmkv_ext.arrow.column cimport ROWS_OK, column_rows, rows_refuse
from lsmkv_ext.arrow.reader cimport ColumnReader, open_rows
from lsmkv_ext.arrow.schema cimport Field, format_of_type, is_text, is_wide
from lsmkv_ext.arrow.utf8 cimport utf8_bad_row
from lsmkv_ext.port.atomics cimport lsm_prefetch
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.handle cimport HandleC, handle_check
from lsmkv_ext.port.status cimport ST_OK, Status, fail_argument, fail_memory, status_clear
from lsmkv_ext.port.wall_clock cimport Moment
from lsmkv_ext.read.counters cimport Counters, counters_add, counters_start
from lsmkv_ext.read.lookup cimport POINTED, Lookup, probe_many
from lsmkv_ext.read.read_state cimport ReadState, ReadStateC, raise_read, read_state_drain
from lsmkv_ext.read.values cimport find_value, read_value
from lsmkv_ext.reader cimport Reader
from lsmkv_ext.table.reader cimport ReadContext, table_unpin
from lsmkv_ext.tree cimport Tree
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLogC

cdef enum:
    ROWS = 512                  # looked up at once, without the GIL
    AHEAD = 8                   # values that are fetched before they are copied
    FIRST_BYTES = 64 << 10      # of the values

ctypedef struct Work:           # what a lookup without the GIL needs
    Lookup queries[ROWS]
    const char* keys[ROWS]
    size_t key_sizes[ROWS]
    Counters counters
    ReadContext rc
    Moment moment
    Status st


cdef int append_value(Work* w, ReadStateC* state, const Lookup* q, ColumnBuilder* out) noexcept nogil:
    cdef ValuePointer pointer
    cdef ValueLogC* log = NULL
    cdef size_t n = q.vlen
    cdef char* place
    cdef int failed
    if q.found == POINTED:
        log = find_value(state, q.pointer, &pointer, &w.st)
        if log == NULL:
            return w.st.code
        n = pointer.raw
    if not column_has_room(out, n):
        return fail_argument(&w.st, b'the values exceed 2 GiB: ask for value_type="large_binary"')
    if log != NULL:
        place = column_add(out, n)
        return read_value(log, &pointer, place, &w.rc, &w.st) if place != NULL else fail_memory(&w.st, b"Arrow column")
    failed = column_append(out, q.value, n) if q.found else column_append_null(out)
    return fail_memory(&w.st, b"Arrow column") if failed else ST_OK


cdef inline void prefetch_value(const Lookup* q) noexcept nogil:
    """The first two cache lines: the processor fetches the rest by itself."""
    lsm_prefetch(q.value)
    lsm_prefetch(q.value + 64)


cdef int look_up(Work* w, ReadStateC* state, size_t n, uint64_t snapshot, ColumnBuilder* out) noexcept nogil:
    """Looks up the n keys in *w. Returns ST_OK, or the code in w.st."""
    cdef size_t i
    memset(w.queries, 0, n * sizeof(Lookup))
    for i in range(n):
        w.queries[i].key = w.keys[i]
        w.queries[i].klen = w.key_sizes[i]
        w.queries[i].snapshot = snapshot
        w.queries[i].moment = &w.moment
        w.queries[i].hash = xxh3(w.keys[i], w.key_sizes[i], state.seed)
    probe_many(state, w.queries, n, &w.rc, &w.counters, &w.st)
    for i in range(n):
        if i + AHEAD < n:
            prefetch_value(&w.queries[i + AHEAD])
        if w.st.code == ST_OK:
            append_value(w, state, &w.queries[i], out)
        if w.queries[i].pinned != NULL:
            table_unpin(w.queries[i].owner, w.queries[i].pinned)
    return w.st.code


cdef int add_counters(HandleC* handle, Tree tree, Work* w) noexcept:
    counters_add(&tree.lookups, &w.counters)
    handle.reads.cache_hits += w.rc.cache_hits
    handle.reads.disk_reads += w.rc.disk_reads
    handle.reads.disk_bytes += w.rc.disk_bytes
    handle.reads.disk_ns += w.rc.disk_ns
    handle.reads.decompressed += w.rc.decompressed
    w.rc.cache_hits = w.rc.disk_reads = w.rc.disk_bytes = w.rc.disk_ns = w.rc.decompressed = 0
    return 0


cdef int64_t look_up_rows(
    Reader reader, ReadState state, uint64_t snapshot, ColumnReader rows, int64_t row, int64_t before, Work* w, ColumnBuilder* out
) except -1:
    """Looks up to ROWS rows up, from `row` on of the chunk, which begins at row `before` of the column. Returns their number."""
    cdef size_t n = <size_t>min(rows.length - row, <int64_t>ROWS)
    cdef int64_t bad = 0
    cdef int problem
    handle_check(reader.handle)          # the next chunk may have run Python code
    counters_start(&w.counters, &reader.tree.lookups)
    reader.handle.inflight += 1
    with nogil:
        problem = column_rows(&rows.columns[0], row, n, False, w.keys, w.key_sizes, &bad)
        if problem == ROWS_OK:
            look_up(w, &state.c, n, snapshot, out)
    reader.handle.inflight -= 1
    read_state_drain(&state.c)
    add_counters(reader.handle, reader.tree, w)
    if problem != ROWS_OK:
        rows_refuse(problem, before + bad)
    if w.st.code != ST_OK:
        raise_read(state, &w.st, reader.tree.path)
    return <int64_t>n


cdef int look_up_all(Reader reader, ColumnReader rows, Work* w, ColumnBuilder* out) except -1:
    cdef uint64_t snapshot = 0
    cdef int64_t row, before = 0
    cdef ReadState state = reader.open_state(&snapshot)
    w.moment.clock = &reader.handle.clock
    w.moment.now = reader.held_now
    w.rc.fill_cache = True
    status_clear(&w.st)
    while rows.next():
        row = 0
        while row < rows.length:
            row += look_up_rows(reader, state, snapshot, rows, row, before, w, out)
        before += rows.length
    return 0


def look_up_column(Reader reader not None, keys, *, value_type="binary"):
    """An ArrowColumn of the values, null for keys that are missing. All are of one state."""
    cdef ColumnReader rows
    cdef ColumnBuilder out
    cdef ArrowArray array
    cdef Field field
    cdef Work* w
    field.name = b"value"
    field.format = format_of_type(value_type)
    field.nullable = True
    rows = open_rows(keys)
    w = <Work*>calloc(1, sizeof(Work))
    if w == NULL or column_begin(&out, is_wide(field.format), ROWS, FIRST_BYTES) != 0:
        free(w)
        raise MemoryError("Arrow column")
    try:
        look_up_all(reader, rows, w, &out)
        if is_text(field.format) and utf8_bad_row(&out) >= 0:
            raise ValueError('a value is not UTF-8: ask for value_type="binary"')
        if column_finish(&out, &array) != 0:
            raise MemoryError("Arrow column")
    finally:
        free(w)
        column_free(&out)
    try:
        return new_column(&array, &field)
    finally:
        if array.release != NULL:
            array.release(&array)

"""Scans into Arrow batches."""

from operator import index

cimport cython
from libc.string cimport memcpy

from lsmkv_ext.arrow.builder cimport (
    column_add,
    column_append,
    column_begin,
    column_free,
    table_finish,
)
from lsmkv_ext.arrow.schema cimport (
    format_of_type,
    is_text,
    is_wide,
    schema_capsule,
    schema_of_table,
    take_requested,
)
from lsmkv_ext.arrow.stream cimport stream_capsule
from lsmkv_ext.arrow.utf8 cimport utf8_bad_row
from lsmkv_ext.block.memory cimport Entry
from lsmkv_ext.entry cimport ENTRY_POINTER, expiry_size
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.handle cimport handle_check
from lsmkv_ext.port.status cimport ST_OK, fail_argument, fail_memory
from lsmkv_ext.port.wall_clock cimport clock_now
from lsmkv_ext.read.dead_spans cimport run_end
from lsmkv_ext.read.merge cimport merge_next
from lsmkv_ext.read.read_state cimport read_state_drain
from lsmkv_ext.read.scan cimport CONTINUE, ScanC, scan_entry, scan_start
from lsmkv_ext.read.values cimport find_value, read_value
from lsmkv_ext.reader cimport Reader
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLogC

from lsmkv_ext.errors import ClosedError

cdef enum:
    BATCH_BYTES = 8 << 20      # a batch ends after the row that reaches so many
    FIRST_BYTES = 64 << 10      # of the data of the first batch


# --- filling a batch (nogil) -------------------------------------------------------------------------------------------

ctypedef struct Value:          # of an entry: where it is
    ValueLogC* log              # NULL: in the entry
    ValuePointer pointer
    const char* data
    size_t n


cdef inline int find_data(ScanC* s, const Entry* e, Value* out) noexcept nogil:
    cdef size_t hidden = expiry_size(e.kind) if e.kind else 0
    out.log = NULL
    out.data = e.value + hidden
    out.n = e.vlen - hidden
    if e.kind & ENTRY_POINTER:
        out.log = find_value(s.state, out.data, &out.pointer, &s.st)
        if out.log == NULL:
            return s.st.code
        out.n = out.pointer.raw
    return ST_OK


cdef inline int append_value(ScanC* s, ColumnBuilder* b, const Value* v) noexcept nogil:
    cdef char* place = column_add(b, v.n)
    if place == NULL:
        return fail_memory(&s.st, b"Arrow batch")
    if v.log != NULL:
        return read_value(v.log, &v.pointer, place, &s.rc, &s.st)
    memcpy(place, v.data, v.n)
    return ST_OK


cdef int fill_batch(ScanC* s, const Shape* shape, ColumnBuilder* columns) noexcept nogil:
    """Appends rows until the batch is full or the bound is reached. Returns 1 if more may follow, 0 at the end, -1 on error."""
    cdef ColumnBuilder* keys = &columns[shape.key_at] if shape.key_at >= 0 else NULL
    cdef ColumnBuilder* values = &columns[shape.value_at] if shape.value_at >= 0 else NULL
    cdef int64_t left = shape.batch_rows
    cdef size_t bytes = 0
    cdef Entry* e
    cdef Value value
    value.n = 0
    while True:
        e = scan_entry(s)
        if e == NULL:
            return -1 if s.st.code != ST_OK else 0
        if left == 0 or bytes >= BATCH_BYTES:
            return 1
        if values != NULL:
            if find_data(s, e, &value) != ST_OK:
                return -1
            if append_value(s, values, &value) != ST_OK:
                return -1
        if keys != NULL and column_append(keys, e.key, e.klen) != 0:
            fail_memory(&s.st, b"Arrow batch")
            return -1
        bytes += e.klen + value.n
        left -= 1
        s.chunk.n += 1
        if merge_next(&s.merge) != ST_OK:
            return -1


cdef int check_texts(ScanC* s, const Shape* shape, const ColumnBuilder* columns) noexcept nogil:
    cdef int i
    for i in range(shape.n_fields):
        if is_text(shape.fields[i].format) and utf8_bad_row(&columns[i]) >= 0:
            return fail_argument(&s.st, b'a row is not UTF-8: scan it as "binary"')
    return ST_OK


cdef int start_batch(
    ScanC* s, const Shape* shape, ColumnBuilder* columns, int direction, int origin, const char* key, size_t klen, bint inclusive
) noexcept nogil:
    cdef int more
    if scan_start(s, direction, origin, key, klen, inclusive) != ST_OK:
        return -1
    more = fill_batch(s, shape, columns)
    run_end(&s.run)
    if more >= 0 and check_texts(s, shape, columns) != ST_OK:
        return -1
    return more


# --- one scan ----------------------------------------------------------------------------------------------------------

@cython.no_gc_clear     # __dealloc__ needs the state
cdef class ColumnScan(Scan):
    """A scan that fills Arrow batches."""

    def __dealloc__(self):
        self.free_columns()

    cdef void release(self) noexcept:
        Scan.release(self)
        self.free_columns()

    cdef void free_columns(self) noexcept:
        cdef int i
        for i in range(MAX_FIELDS):
            column_free(&self.columns[i])

    cdef int begin_columns(self) except -1:
        cdef int i
        cdef int64_t rows = self.shape.batch_rows if self.started else min(self.shape.batch_rows, <int64_t>1024)
        for i in range(self.shape.n_fields):
            column_free(&self.columns[i])
            if column_begin(&self.columns[i], is_wide(self.shape.fields[i].format), rows,
                            max(self.most_bytes[i], <size_t>FIRST_BYTES)) != 0:
                raise MemoryError("Arrow batch")
        return 0

    cdef int refill(self, int direction, int origin, const char* key, size_t klen, bint inclusive) except -1:
        """Fills the columns with the next batch."""
        cdef int more, i
        self.n_items = 0
        self.chunk_direction = direction
        self.begin_columns()
        self.started = True
        self.handle.inflight += 1
        self.busy = True
        with nogil:
            more = start_batch(&self.c, &self.shape, self.columns, direction, origin, key, klen, inclusive)
        self.busy = False
        self.handle.inflight -= 1
        read_state_drain(&self.state.c)
        self.record_dead()
        self.live = more != 0
        self.n_items = self.c.chunk.n
        for i in range(self.shape.n_fields):
            self.most_bytes[i] = max(self.most_bytes[i], self.columns[i].used + self.columns[i].used // 8)
        self.add_counters(origin != CONTINUE)
        if more < 0:
            self.fail()
        return 0

    cdef int take(self, ArrowArray* out) except -1:
        self.check()
        if self.started:
            self.next_chunk()
        else:
            self.from_bound(self.direction)
        if self.n_items == 0:
            return 0
        if table_finish(self.columns, self.shape.n_fields, out) != 0:
            self.n_items = 0
            fail_memory(&self.c.st, b"Arrow batch")     # rows are lost: nothing may follow
            self.fail()
        return 0


cdef class ScanSource(BatchSource):
    """The batches of a scan, for a stream."""

    cdef int write_schema(self, ArrowSchema* out) except -1:
        if schema_of_table(self.scan.shape.fields, self.scan.shape.n_fields, out) != 0:
            raise MemoryError("Arrow schema")
        return 0

    cdef int next_batch(self, ArrowArray* out) except -1:
        return self.scan.take(out)

    cdef void end(self) noexcept:
        # A consumer that releases the stream inside a call leaves the rest to the last reference.
        if not self.scan.busy:
            self.scan.release()


# --- what users see ----------------------------------------------------------------------------------------------------

cdef int take_columns(Shape* shape, object columns, object key_type, object value_type) except -1:
    cdef Field* field
    shape.n_fields = 0
    shape.key_at = shape.value_at = -1
    if isinstance(columns, (str, bytes)):
        raise TypeError('columns is a sequence of "key" and "value"')
    for name in columns:
        if name not in ("key", "value") or shape.n_fields == MAX_FIELDS:
            raise ValueError(f'the columns are "key" and "value", not {name!r}')
        if (shape.key_at if name == "key" else shape.value_at) >= 0:
            raise ValueError(f"the column {name!r} is asked for twice")
        field = &shape.fields[shape.n_fields]
        if name == "key":
            field.name = b"key"
            shape.key_at = shape.n_fields
        else:
            field.name = b"value"
            shape.value_at = shape.n_fields
        field.format = format_of_type(key_type if name == "key" else value_type)
        field.nullable = False
        shape.n_fields += 1
    if shape.n_fields == 0:
        raise ValueError("a scan of no columns")
    return 0


@cython.no_gc_clear
cdef class ArrowScan(Dependent):
    """ArrowScan()\n--\n\n\
    A range of keys and values as a table of Arrow batches. `DB.scan_arrow` returns it.

    Pass it to whatever reads `__arrow_c_stream__`: `pyarrow.table`, `polars.DataFrame`, `pandas.DataFrame.from_arrow`, a query of
    duckdb. Each of them reads the same rows. It keeps the files it reads on disk until it is closed or collected; a stream
    that was begun keeps them until its own end.

    >>> import pyarrow
    >>> db.put(b"ada", b"1815")
    >>> pyarrow.table(db.scan_arrow()).to_pylist()
    [{'key': b'ada', 'value': b'1815'}]
    """

    cdef ColumnScan new_scan(self, object requested_schema):
        """A scan that is not attached yet."""
        cdef ColumnScan scan = ColumnScan.__new__(ColumnScan)
        scan.shape = self.shape
        take_requested(requested_schema, scan.shape.fields, scan.shape.n_fields, True)
        scan.configure(self.start, self.stop, True, False, self.prefix, self.shape.value_at >= 0, self.fill_cache)
        scan.direction = -1 if self.reverse else 1
        scan.c.chunk_limit = 1
        return scan

    def __arrow_c_stream__(self, requested_schema=None):
        cdef ScanSource source = ScanSource.__new__(ScanSource)
        source.scan = self.new_scan(requested_schema)
        self.check_open()
        source.scan.attach(self.owner, self.state, self.snapshot, self.now)
        return stream_capsule(source)

    def __arrow_c_schema__(self):
        return schema_capsule(self.shape.fields, self.shape.n_fields, True)

    cdef int check_open(self) except -1:
        handle_check(self.handle)
        if self.state is None:
            raise ClosedError("the scan is closed")
        return 0

    cdef void release(self) noexcept:
        self.state = None

    def __dealloc__(self):
        self.leave()        # before `owner` goes, as in Scan

    def close(self):
        """Release the files it keeps. Streams that were begun go on; new ones raise `ClosedError`.

        >>> scan = db.scan_arrow()
        >>> scan.close()
        """
        self.release()
        self.owner = None

    def __enter__(self):
        self.check_open()
        return self

    def __exit__(self, *exc):
        self.close()


def scan_columns(Reader reader not None, *, start=None, stop=None, prefix=None, bint reverse=False, columns=("key", "value"),
                 batch_rows=16384, key_type="binary", value_type="binary", bint fill_cache=True):
    """An ArrowScan of the reader's state at this call."""
    cdef ArrowScan scan = ArrowScan.__new__(ArrowScan)
    take_columns(&scan.shape, columns, key_type, value_type)
    rows = index(batch_rows)
    if not 0 < rows <= MAX_BATCH_ROWS:
        raise ValueError(f"a batch has from 1 to {MAX_BATCH_ROWS} rows, not {rows}")
    scan.shape.batch_rows = rows
    scan.start = None if start is None else as_bytes(start)
    scan.stop = None if stop is None else as_bytes(stop)
    scan.prefix = None if prefix is None else as_bytes(prefix)
    scan.reverse = reverse
    scan.fill_cache = fill_cache
    reader.report_debts()
    scan.state = reader.open_state(&scan.snapshot)
    scan.now = reader.held_now or clock_now(&reader.handle.clock)
    scan.owner = reader
    scan.join(reader.handle)
    return scan

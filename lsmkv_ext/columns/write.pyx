"""Writes of whole columns, in batches. Each batch is encoded without the GIL and takes the path of `DB.write`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from lsmkv_ext.arrow.column cimport ROWS_OK, ColumnC, column_rows, rows_refuse
from lsmkv_ext.arrow.reader cimport ColumnReader, open_columns, open_rows
from lsmkv_ext.batch cimport (
    OP_PUT,
    BatchC,
    WriteBatch,
    batch_add_reserved,
    batch_clear,
    batch_reserve,
    op_size,
    refuse_sync,
)
from lsmkv_ext.engine cimport SYNC_NO, SYNC_YES, sync_wish
from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.large_write cimport write_batch
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.store cimport Store

cdef enum:
    ROWS = 1024                 # encoded at once
    BATCH_ROWS = 8 * ROWS       # a batch ends here,
    BATCH_BYTES = 512 << 10     # or with the row that reaches so many


cdef class RowPairs:
    """Keys and values side by side: of one table, or of two columns that may have other chunks."""

    cdef ColumnReader keys
    cdef ColumnReader values    # None if `table`: then they are the second column of `keys`
    cdef bint table
    cdef int64_t key_row        # the next one, of the chunk
    cdef int64_t value_row
    cdef int64_t before         # rows taken

    cdef bint has_more(self, ColumnReader reader, int64_t* row) except -1:
        while row[0] == reader.length or reader.pending:
            if not reader.next():
                return False
            row[0] = 0
        return True

    cdef int64_t ready(self) except -1:
        """Rows that can be taken at once; 0 at the end."""
        cdef bint key = self.has_more(self.keys, &self.key_row)
        cdef bint value
        if self.table:
            return self.keys.length - self.key_row if key else 0
        value = self.has_more(self.values, &self.value_row)
        if key != value:
            raise ValueError(f"{'more' if key else 'fewer'} keys than values: {self.before} rows have both")
        return min(self.keys.length - self.key_row, self.values.length - self.value_row) if key else 0

    cdef const ColumnC* key_column(self) noexcept:
        return &self.keys.columns[0]

    cdef const ColumnC* value_column(self) noexcept:
        return &self.keys.columns[1] if self.table else &self.values.columns[0]

    cdef int skip(self, int64_t n) noexcept:
        self.key_row += n
        self.value_row = self.key_row if self.table else self.value_row + n
        self.before += n
        return 0


ctypedef struct Rows:           # up to ROWS of them
    const char* keys[ROWS]
    const char* values[ROWS]
    size_t key_sizes[ROWS]
    size_t value_sizes[ROWS]


cdef int encode(BatchC* b, const Rows* rows, size_t n, uint32_t keyspace, uint64_t expiry) noexcept nogil:
    cdef size_t i
    for i in range(n):
        batch_add_reserved(b, keyspace, OP_PUT, rows.keys[i], rows.key_sizes[i], rows.values[i], rows.value_sizes[i], expiry)
    return 0


cdef size_t measure(const Rows* rows, size_t n, uint32_t keyspace, uint64_t expiry, size_t* bytes) noexcept nogil:
    """How many rows have valid sizes and fit into a batch, and their bytes in it."""
    cdef size_t i = 0
    bytes[0] = 0
    while i < n and bytes[0] < BATCH_BYTES:
        if rows.key_sizes[i] > MAX_KEY or rows.value_sizes[i] > <size_t>MAX_VALUE:
            break
        bytes[0] += op_size(OP_PUT, keyspace, rows.key_sizes[i], rows.value_sizes[i], expiry)
        i += 1
    return i


cdef class ColumnWrite:
    """One call: collects rows in a batch and writes it whenever it is full."""

    cdef Store store
    cdef WriteBatch batch
    cdef uint64_t expiry
    cdef int64_t written        # rows

    cdef int collect(self, RowPairs pairs, int64_t ready) except -1:
        """Adds up to ROWS of the rows that are ready."""
        cdef Rows rows
        cdef size_t n = <size_t>min(ready, <int64_t>ROWS), fit = 0, bytes = 0
        cdef const ColumnC* keys = pairs.key_column()
        cdef const ColumnC* values = pairs.value_column()
        cdef int64_t key_row = pairs.key_row
        cdef int64_t value_row = pairs.key_row if pairs.table else pairs.value_row
        cdef int64_t bad = 0, from_row = key_row
        cdef uint32_t keyspace = self.store.tree.keyspace
        cdef uint64_t expiry = self.expiry
        cdef BatchC* b = &self.batch.b
        cdef int problem
        with nogil:
            problem = column_rows(keys, key_row, n, False, rows.keys, rows.key_sizes, &bad)
            if problem == ROWS_OK:
                from_row = value_row
                problem = column_rows(values, value_row, n, False, rows.values, rows.value_sizes, &bad)
            if problem == ROWS_OK:
                fit = measure(&rows, n, keyspace, expiry, &bytes)
        if problem != ROWS_OK:
            rows_refuse(problem, pairs.before + bad - from_row)
        if fit < n and bytes < BATCH_BYTES:
            refuse_sizes(pairs.before + <int64_t>fit, rows.key_sizes[fit], rows.value_sizes[fit])
        batch_reserve(b, <uint32_t>fit, bytes, max(b.used + bytes, <size_t>(BATCH_BYTES + BATCH_BYTES // 4)))
        with nogil:
            encode(b, &rows, fit, keyspace, expiry)
        return pairs.skip(<int64_t>fit)

    cdef int write(self, int sync) except -1:
        cdef int64_t n = self.batch.b.count
        self.store.check_writable()
        write_batch(self.store.engine, &self.batch.b, sync)
        self.written += n
        batch_clear(&self.batch.b)
        return 0

    cdef int run(self, RowPairs pairs, int sync) except -1:
        cdef int64_t ready = pairs.ready()
        while ready:
            self.collect(pairs, ready)
            ready = pairs.ready()
            if ready and (self.batch.b.used >= BATCH_BYTES or self.batch.b.count >= BATCH_ROWS):
                self.write(SYNC_NO)
        # The last batch also syncs those before it.
        return self.write(sync)


cdef int refuse_sizes(int64_t row, size_t key_size, size_t value_size) except -1:
    if key_size > MAX_KEY:
        raise ValueError(f"row {row}: a key is at most {MAX_KEY} bytes long, this one has {key_size}")
    raise ValueError(f"row {row}: a value is at most {MAX_VALUE} bytes long (1 GiB), this one has {value_size}")


cdef object write_pairs(Store store, RowPairs pairs, object sync, object ttl, object expire_at):
    cdef ColumnWrite write = ColumnWrite.__new__(ColumnWrite)
    cdef int wish = sync_wish(sync)
    write.store = store
    write.batch = WriteBatch()
    if ttl is not None or expire_at is not None:
        write.expiry = expiry_from(ttl, expire_at, &store.handle.clock)
    store.check_writable()
    if wish == SYNC_YES and store.engine.log is None:
        refuse_sync()
    write.expiry = write.expiry or store.default_expiry()
    write.run(pairs, wish)
    return write.written


def write_table(Store store not None, table, *, sync=None, ttl=None, expire_at=None):
    """Puts the rows of a table of two columns. Returns their number."""
    cdef RowPairs pairs = RowPairs.__new__(RowPairs)
    pairs.keys = open_columns(table, 2)
    pairs.table = True
    if pairs.keys is None:
        raise TypeError("write_arrow takes a table of two columns: keys and values")
    return write_pairs(store, pairs, sync, ttl, expire_at)


def write_columns(Store store not None, keys, values, *, sync=None, ttl=None, expire_at=None):
    """Puts the rows of two columns or sequences. Returns their number."""
    cdef RowPairs pairs = RowPairs.__new__(RowPairs)
    pairs.keys = open_rows(keys)
    pairs.values = open_rows(values)
    return write_pairs(store, pairs, sync, ttl, expire_at)

"""Writes a table file outside a database."""

import operator
import os
import time

from lsmkv_ext.errors import ClosedError, Error, ForkError, OptionError
from lsmkv_ext.port import compression as codecs, zstd

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.arrow.column cimport ROWS_OK, column_rows, rows_refuse
from lsmkv_ext.arrow.reader cimport ColumnReader, open_columns
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, EXPIRY_SIZE, POINTER_SIZE, expiry_from, expiry_size
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport put_u64
from lsmkv_ext.port.file cimport file_sync_dir
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.status cimport ST_OK, Status, fail_io, raise_status, status_clear
from lsmkv_ext.port.wall_clock cimport ClockC
from lsmkv_ext.table.builder cimport (
    BuilderC,
    BuilderOptions,
    builder_abandon,
    builder_add,
    builder_add_range_tombstone,
    builder_finish,
    builder_open,
    builder_size,
)
from lsmkv_ext.table.format cimport RangeTombstone
from lsmkv_ext.table.meta cimport TableMetaC, meta_free, meta_object
from lsmkv_ext.values.format cimport ValuePointer, pointer_encode
from lsmkv_ext.values.reader cimport ValueLogC
from lsmkv_ext.values.writer cimport (
    ValueWriterC,
    value_append,
    value_seal,
    value_writer_close,
    value_writer_open,
)

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)


cdef enum:
    ROWS = 1024                     # of a column, per release of the GIL

cdef ClockC system_clock            # no database has it

cdef enum:
    MIN_THRESHOLD = 64              # bytes; a pointer takes 32


cdef uint64_t _number(str name, value, low, high) except? 0:
    try:
        n = operator.index(value)
    except TypeError:
        raise OptionError(f"{name} must be an integer from {low} to {high}, not {value!r}") from None
    if not low <= n <= high:
        raise OptionError(f"{name} must be from {low} to {high}, not {n}")
    return n


cdef int _fill_options(BuilderOptions* o, compression, block_size, restart_interval, bits_per_key, seed, level,
                       number) except -1:
    memset(o, 0, sizeof(BuilderOptions))
    if compression not in codecs.CODECS:
        raise OptionError(f"compression must be None, 'lz4' or 'zstd', not {compression!r}")
    if not 0 <= bits_per_key <= 100:
        raise OptionError(f"bits_per_key must be from 0 (no filter) to 100, not {bits_per_key!r}")
    o.compression = codecs.CODECS[compression]
    o.block_size = _number("block_size", block_size, 1, 16 << 20)
    o.restart_interval = _number("restart_interval", restart_interval, 1, 64)
    o.millibits = round(bits_per_key * 1000)
    o.seed = int.from_bytes(os.urandom(8), "little") if seed is None else _number("seed", seed, 0, (1 << 64) - 1)
    o.level = _number("level", level, 0, 64)
    o.number = _number("number", number, 0, (1 << 64) - 1)
    o.verify_filter = True
    o.created_unix = int(time.time())
    return 0


cdef uint64_t _threshold(value) except 0:
    """From which size on values go to the value log."""
    return <uint64_t>-1 if value is None else _number("large_value_threshold", value, MIN_THRESHOLD, MAX_VALUE)


cdef int _value_compression(value) except -1:
    if value not in codecs.CODECS:
        raise OptionError(f"large_value_compression must be None, 'lz4' or 'zstd', not {value!r}")
    if value == "zstd":
        zstd.require()
    return codecs.CODECS[value]


cdef dict _summary_of(meta, const BuilderC* b, uint64_t value_log_bytes):
    """The public form of a TableMeta, with the builder's own counters. Its names are those of Table.properties."""
    cdef bint empty = meta.entries == 0 and meta.range_tombstones == 0
    return {
        "file_size": meta.size,
        "n_entries": meta.entries,
        "n_deletes": meta.deletes,
        "n_range_tombstones": meta.range_tombstones,
        "raw_bytes": meta.raw_bytes,
        "data_bytes": meta.data_bytes,
        "index_bytes": meta.index_bytes,
        "filter_bytes": meta.filter_bytes,
        "value_log_bytes": value_log_bytes,
        "min_seq": meta.min_seq,
        "max_seq": meta.max_seq,
        "n_blocks": b.n_blocks,
        "filter_keys": meta.filter_keys,
        "millibits": meta.millibits,
        "k": meta.k,
        "level": meta.filter_level,
        "filter_build_ns": b.filter_build_ns,
        "filter_verify_ns": b.filter_verify_ns,
        "smallest": None if empty else meta.smallest,
        "largest": None if empty else meta.largest,
        "largest_exclusive": meta.largest_exclusive,
    }


cdef str _wrong_row(int64_t row, size_t key_size, size_t value_size):
    if key_size > MAX_KEY:
        return f"row {row}: key of {key_size} bytes: the limit is {MAX_KEY}"
    if value_size > <size_t>MAX_VALUE:
        return f"row {row}: value of {value_size} bytes: the limit is {MAX_VALUE}"
    return f"row {row}: keys must be added in strictly increasing order"


@cython.no_gc_clear                # __dealloc__ needs _value_path
cdef class SSTWriter:
    """SSTWriter(path, *, compression='lz4', block_size=4096, restart_interval=8, bits_per_key=10, \
    seed=None, level=0, number=0, large_value_threshold=None, large_value_compression='lz4')\n--\n\n\
    Writes a table file outside a database, for `DB.ingest` or `SSTReader`.

    Keys come in strictly increasing order. As a context manager it finishes the file at the end of the block, and
    removes it if the block raises.

    After an ingest a range tombstone hides older keys of the database, never a key of its own file. With `seed=db.seed`
    lookups in `db` need not hash their key again for this table.

    With `large_value_threshold` values of so many bytes or more go to a value log beside the table: `people.vlog` for
    `people.sst`. The two files belong together; `DB.ingest` takes both.

    One thread at a time: a call raises `Error` while another thread is in one. The constructor raises `IOError` if
    `path` exists, `OptionError` for a wrong option, and `FormatError` if zstd is not installed.

    >>> with lsmkv.SSTWriter("people.sst") as table:
    ...     table.put(b"ada", b"1815")
    >>> db.ingest(["people.sst"])
    """

    # GIL-protected: b, values, busy and _last. `busy` is set while a call works on them without the GIL.
    cdef BuilderC* b
    cdef ValueWriterC values        # the value log; identity 0: it has no value, and there is no file
    cdef ValueLogC own              # its number, which is 0, and identity: entries may point into it
    cdef ValueLogC* own_log         # &own
    cdef uint64_t large_value       # values of so many bytes go there
    cdef int value_compression
    cdef bytes _value_path
    cdef const char* value_name     # of the value log; points into _value_path
    cdef bint busy
    cdef int born                   # fork_count when it was created
    cdef object _path
    cdef dict _summary
    cdef bytes _last

    def __cinit__(self, path, *, compression="lz4", block_size=4096, restart_interval=8, bits_per_key=10, seed=None,
                  level=0, number=0, large_value_threshold=None, large_value_compression="lz4"):
        cdef BuilderOptions o
        cdef Status st
        cdef bytes name
        self.born = fork_count
        self.values.fd = -1
        self.large_value = _threshold(large_value_threshold)
        self.value_compression = _value_compression(large_value_compression)
        _fill_options(&o, compression, block_size, restart_interval, bits_per_key, seed, level, number)
        self._path = os.path.abspath(os.fsdecode(path))
        name = os.fsencode(self._path)
        self._value_path = os.fsencode(os.path.splitext(self._path)[0] + ".vlog")
        self.value_name = self._value_path
        self.own.identity = int.from_bytes(os.urandom(8), "little") or 1
        self.own_log = &self.own
        o.value_logs = &self.own_log
        o.n_value_logs = 1
        self.b = <BuilderC*>malloc(sizeof(BuilderC))
        if self.b == NULL:
            raise MemoryError("table builder")
        status_clear(&st)
        if builder_open(self.b, name, &o, &st) != ST_OK:
            free(self.b)
            self.b = NULL
            raise_status(&st, self._path)

    def __dealloc__(self):
        self._drop()

    cdef void _drop(self) noexcept:
        """Removes the unfinished files. After a fork they are those of the parent, and what another thread used is leaked."""
        if self.born != fork_count:
            self.b = NULL
        elif self.b != NULL:
            builder_abandon(self.b)
            free(self.b)
            self.b = NULL
            self._drop_values()

    cdef void _drop_values(self) noexcept:
        if self.values.identity:
            value_writer_close(&self.values)
            memset(&self.values, 0, sizeof(ValueWriterC))
            unlink(self.value_name)

    cdef int _check_open(self) except -1:
        if self.b == NULL:
            raise ClosedError("this SSTWriter is finished or aborted")
        if self.born != fork_count:
            raise ForkError("this SSTWriter was created before a fork: only the parent may use it")
        if self.busy:
            raise Error("another thread is using this SSTWriter")
        return 0

    cdef int _failed(self, Status* st) except -1:
        # The file is half written: nothing can be added to it.
        self._drop()
        raise_status(st, self._path)
        return -1

    cdef int _add(self, key, value, uint64_t seq, int kind, uint64_t expiry) except -1:
        cdef bytes k = as_bytes(key)
        cdef bytes v = as_bytes(value)
        cdef const char* kp = k
        cdef const char* vp = v
        cdef size_t kn = <size_t>len(k)
        cdef size_t vn = <size_t>len(v)
        cdef char place[EXPIRY_SIZE + POINTER_SIZE]
        cdef bint large = vn >= self.large_value
        cdef Status st
        cdef int code = ST_OK
        self._check_open()
        if kn > MAX_KEY:
            raise ValueError(f"key of {kn} bytes: the limit is {MAX_KEY}")
        if vn > <size_t>MAX_VALUE:
            raise ValueError(f"value of {vn} bytes: the limit is {MAX_VALUE}")
        if expiry and not large:
            v = (<const char*>&expiry)[:EXPIRY_SIZE] + v
            vp = v
            vn += EXPIRY_SIZE
        if self._last is not None and k <= self._last:
            raise ValueError(f"keys must be added in strictly increasing order: {k[:64]!r} after {self._last[:64]!r}")
        status_clear(&st)
        self.busy = True
        with nogil:
            if large:
                code = self._separate(vp, vn, expiry, place, &st)
                vp = place
                vn = POINTER_SIZE + expiry_size(kind)
                kind |= ENTRY_POINTER
            if code == ST_OK:
                code = builder_add(self.b, kp, kn, vp, vn, seq, kind, xxh3(kp, kn, self.b.o.seed), &st)
        self.busy = False
        if code != ST_OK:
            self._failed(&st)
        self._last = k
        return 0

    cdef int _separate(self, const char* value, size_t n, uint64_t expiry, char* place, Status* st) noexcept nogil:
        """Appends a value to the value log. What the table stores of it goes to `place`."""
        cdef ValuePointer p
        if self.values.identity == 0 and value_writer_open(&self.values, self.value_name, 0, self.own.identity, st) != ST_OK:
            return st.code
        if value_append(&self.values, value, n, self.value_compression, &p, st) != ST_OK:
            return st.code
        if expiry:
            put_u64(place, expiry)
            place += EXPIRY_SIZE
        pointer_encode(&p, place)
        return ST_OK

    def put(self, key, value, *, seq=0, ttl=None, expire_at=None):
        """Add a key. Raises `ValueError` if `key` is not above the last one, and `IOError` if the disk fails.

        `DB.ingest` replaces the sequence number `seq`. `ttl` and `expire_at` are those of `DB.put`; a TTL counts from this
        call.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        """
        cdef uint64_t expiry = expiry_from(ttl, expire_at, &system_clock)
        self._add(key, value, seq, ENTRY_EXPIRY if expiry else 0, expiry)

    def put_arrow(self, table, *, seq=0):
        """Add the rows of a table of two columns, keys and values, in key order, without a Python object per row.

        `table` has `__arrow_c_stream__` or `__arrow_c_array__`, as those of pyarrow, polars and duckdb have; both columns
        are binary or text. Raises `ValueError` with the row if a key is not above the last one, or if something is null or
        inconsistent, and `TypeError` for another type. The rows before it may have been added.

        >>> import pyarrow
        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put_arrow(pyarrow.table({"key": [b"ada", b"grace"], "value": [b"1815", b"1906"]}))
        """
        cdef ColumnReader rows = open_columns(table, 2)
        cdef uint64_t sequence = seq
        cdef int64_t row, before = 0
        if rows is None:
            raise TypeError("put_arrow takes a table of two columns: keys and values")
        self._check_open()
        while rows.next():
            row = 0
            while row < rows.length:
                row += self._put_rows(rows, row, before, sequence)
            before += rows.length

    cdef int64_t _put_rows(self, ColumnReader rows, int64_t row, int64_t before, uint64_t seq) except -1:
        """Adds up to ROWS rows from `row` on of the chunk, which begins at row `before` of the table."""
        cdef const char* keys[ROWS]
        cdef const char* values[ROWS]
        cdef size_t key_sizes[ROWS]
        cdef size_t value_sizes[ROWS]
        cdef size_t n = <size_t>min(rows.length - row, <int64_t>ROWS), i = 0
        cdef bytes last = self._last
        cdef const char* last_key = last if last is not None else b""
        cdef size_t last_size = <size_t>len(last) if last is not None else 0
        cdef bint first = last is None
        cdef int64_t bad = 0
        cdef Status st
        cdef int problem, code = ST_OK
        self._check_open()               # the next chunk may have run Python code
        status_clear(&st)
        self.busy = True
        with nogil:
            problem = column_rows(&rows.columns[0], row, n, False, keys, key_sizes, &bad)
            if problem == ROWS_OK:
                problem = column_rows(&rows.columns[1], row, n, False, values, value_sizes, &bad)
            if problem == ROWS_OK:
                while i < n and key_sizes[i] <= MAX_KEY and value_sizes[i] <= <size_t>MAX_VALUE:
                    if not first and lsm_compare(last_key, last_size, keys[i], key_sizes[i]) >= 0:
                        break
                    code = self._add_row(keys[i], key_sizes[i], values[i], value_sizes[i], seq, &st)
                    if code != ST_OK:
                        break
                    first = False
                    last_key = keys[i]
                    last_size = key_sizes[i]
                    i += 1
        self.busy = False
        if code != ST_OK:
            self._failed(&st)
        if problem != ROWS_OK:
            rows_refuse(problem, before + bad)
        self._last = None if first else last_key[:last_size]
        if i < n:
            raise ValueError(_wrong_row(before + row + <int64_t>i, key_sizes[i], value_sizes[i]))
        return <int64_t>n

    cdef int _add_row(
        self, const char* key, size_t key_size, const char* value, size_t value_size, uint64_t seq, Status* st
    ) noexcept nogil:
        cdef char place[EXPIRY_SIZE + POINTER_SIZE]
        cdef uint64_t h = xxh3(key, key_size, self.b.o.seed)
        if value_size < self.large_value:
            return builder_add(self.b, key, key_size, value, value_size, seq, 0, h, st)
        if self._separate(value, value_size, 0, place, st) != ST_OK:
            return st.code
        return builder_add(self.b, key, key_size, place, POINTER_SIZE, seq, ENTRY_POINTER, h, st)

    def delete(self, key, *, seq=0):
        """Add a tombstone, in key order. Raises as `put` does.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.delete(b"ada")
        """
        self._add(key, b"", seq, ENTRY_DELETE, 0)

    def delete_range(self, start, stop, *, seq=0):
        """Add a range tombstone over [start, stop), in any order. Raises `ValueError` if stop <= start.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.delete_range(b"a", b"b")
        """
        cdef bytes a = as_bytes(start)
        cdef bytes z = as_bytes(stop)
        cdef RangeTombstone r
        cdef Status st
        if len(a) > MAX_KEY or len(z) > MAX_KEY:
            raise ValueError(f"a key of a range tombstone has at most {MAX_KEY} bytes")
        if a >= z:
            raise ValueError("a range tombstone needs start < stop")
        r.start = a
        r.start_len = <size_t>len(a)
        r.stop = z
        r.stop_len = <size_t>len(z)
        r.seq = seq
        status_clear(&st)
        self._check_open()
        if builder_add_range_tombstone(self.b, &r, &st) != ST_OK:
            self._failed(&st)

    @property
    def path(self):
        """The path of the file.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.path.endswith("people.sst")
        True
        """
        return self._path

    @property
    def size(self):
        """The bytes so far, with those of the value log. The finished table is a little larger: filter and index follow.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.size
        0
        """
        self._check_open()
        return builder_size(self.b) + self.values.offset

    @property
    def summary(self):
        """The result of `finish`, None before it.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        >>> table.summary["n_entries"]
        1
        """
        return self._summary

    def finish(self):
        """Write filter, index and footer, and sync the files and their directory. Returns the properties of the table.

        Raises `IOError` if the disk fails.

        >>> table = lsmkv.SSTWriter("people.sst")
        >>> table.put(b"ada", b"1815")
        >>> table.finish()["n_entries"]
        1
        """
        cdef TableMetaC meta
        cdef Status st
        cdef bytes directory = os.fsencode(os.path.dirname(self._path))
        cdef const char* name = directory
        cdef BuilderC* b
        cdef uint64_t value_bytes = self.values.offset
        cdef int err = 0
        self._check_open()
        status_clear(&st)
        b, self.b = self.b, NULL
        try:
            with nogil:
                if self._finish_values(b, &st) == ST_OK and builder_finish(b, &meta, &st) == ST_OK:
                    err = file_sync_dir(name)
            if st.code != ST_OK:
                self._drop_values()
            raise_status(&st, self._path)
            value_writer_close(&self.values)
            try:
                self._summary = _summary_of(meta_object(&meta), b, value_bytes)
            finally:
                meta_free(&meta)
        finally:
            free(b)
        if err != 0:
            fail_io(&st, "fsync of a directory", err)
            raise_status(&st, os.fsdecode(directory))
        return self._summary

    cdef int _finish_values(self, BuilderC* b, Status* st) noexcept nogil:
        """Syncs the value log before the table that points into it is complete. On failure the table is gone."""
        cdef int err = value_seal(&self.values) if self.values.identity else 0
        if err:
            builder_abandon(b)
            return fail_io(st, "value log: seal", err)
        return ST_OK

    def abort(self):
        """Remove the unfinished files. Finished ones stay, and in a child those that its parent writes.

        >>> table = lsmkv.SSTWriter("people.sst")
        >>> table.abort()
        """
        if self.b != NULL and self.born == fork_count:
            self._check_open()
        self._drop()

    def __enter__(self):
        self._check_open()
        return self

    def __exit__(self, exc_type, exc, tb):
        if exc_type is not None:
            self.abort()
        elif self.b != NULL:
            self.finish()

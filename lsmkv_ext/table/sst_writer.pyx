"""Writes a table file outside a database."""

import operator
import os
import time

from lsmkv_ext.errors import ClosedError, Error, OptionError

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, EXPIRY_SIZE, expiry_from
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.file cimport file_sync_dir
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


cdef ClockC system_clock            # no database has it

cdef dict _COMPRESSIONS = {None: 0, "lz4": 1}


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
    if compression not in _COMPRESSIONS:
        raise OptionError(f"compression must be None or 'lz4', not {compression!r}")
    if not 0 <= bits_per_key <= 100:
        raise OptionError(f"bits_per_key must be from 0 (no filter) to 100, not {bits_per_key!r}")
    o.compression = _COMPRESSIONS[compression]
    o.block_size = _number("block_size", block_size, 1, 16 << 20)
    o.restart_interval = _number("restart_interval", restart_interval, 1, 64)
    o.millibits = round(bits_per_key * 1000)
    o.seed = int.from_bytes(os.urandom(8), "little") if seed is None else _number("seed", seed, 0, (1 << 64) - 1)
    o.level = _number("level", level, 0, 64)
    o.number = _number("number", number, 0, (1 << 64) - 1)
    o.verify_filter = True
    o.created_unix = int(time.time())
    return 0


cdef dict _summary_of(meta, const BuilderC* b):
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


cdef class SSTWriter:
    """SSTWriter(path, *, compression='lz4', block_size=4096, restart_interval=8, bits_per_key=10, \
    seed=None, level=0, number=0)\n--\n\n\
    Writes a table file outside a database, for `DB.ingest` or `SSTReader`.

    Keys come in strictly increasing order. As a context manager it finishes the file at the end of the block, and
    removes it if the block raises.

    After an ingest a range tombstone hides older keys of the database, never a key of its own file. With `seed=db.seed`
    lookups in `db` need not hash their key again for this table.

    One thread at a time: a call raises `Error` while another thread is in one. The constructor raises `IOError` if
    `path` exists, and `OptionError` for a wrong option.

    >>> with lsmkv.SSTWriter("people.sst") as table:
    ...     table.put(b"ada", b"1815")
    >>> db.ingest(["people.sst"])
    """

    # GIL-protected: b, busy and _last. `busy` is set while a call works on the builder without the GIL.
    cdef BuilderC* b
    cdef bint busy
    cdef object _path
    cdef dict _summary
    cdef bytes _last

    def __cinit__(self, path, *, compression="lz4", block_size=4096, restart_interval=8, bits_per_key=10, seed=None,
                  level=0, number=0):
        cdef BuilderOptions o
        cdef Status st
        cdef bytes name
        _fill_options(&o, compression, block_size, restart_interval, bits_per_key, seed, level, number)
        self._path = os.path.abspath(os.fsdecode(path))
        name = os.fsencode(self._path)
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
        if self.b != NULL:
            builder_abandon(self.b)
            free(self.b)
            self.b = NULL

    cdef int _check_open(self) except -1:
        if self.b == NULL:
            raise ClosedError("this SSTWriter is finished or aborted")
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
        cdef Status st
        cdef int code
        self._check_open()
        if kn > MAX_KEY:
            raise ValueError(f"key of {kn} bytes: the limit is {MAX_KEY}")
        if vn > <size_t>MAX_VALUE:
            raise ValueError(f"value of {vn} bytes: the limit is {MAX_VALUE}")
        if expiry:
            v = (<const char*>&expiry)[:EXPIRY_SIZE] + v
            vp = v
            vn += EXPIRY_SIZE
        if self._last is not None and k <= self._last:
            raise ValueError(f"keys must be added in strictly increasing order: {k[:64]!r} after {self._last[:64]!r}")
        status_clear(&st)
        self.busy = True
        with nogil:
            code = builder_add(self.b, kp, kn, vp, vn, seq, kind, xxh3(kp, kn, self.b.o.seed), &st)
        self.busy = False
        if code != ST_OK:
            self._failed(&st)
        self._last = k
        return 0

    def put(self, key, value, *, seq=0, ttl=None, expire_at=None):
        """Add a key. Raises `ValueError` if `key` is not above the last one, and `IOError` if the disk fails.

        `DB.ingest` replaces the sequence number `seq`. `ttl` and `expire_at` are those of `DB.put`; a TTL counts from this
        call.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.put(b"ada", b"1815")
        """
        cdef uint64_t expiry = expiry_from(ttl, expire_at, &system_clock)
        self._add(key, value, seq, ENTRY_EXPIRY if expiry else 0, expiry)

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
        """The bytes so far. The finished file is a little larger: filter and index follow.

        >>> with lsmkv.SSTWriter("people.sst") as table:
        ...     table.size
        0
        """
        self._check_open()
        return builder_size(self.b)

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
        """Write filter, index and footer, and sync the file and its directory. Returns the properties of the table.

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
        cdef int code, err
        self._check_open()
        status_clear(&st)
        b, self.b = self.b, NULL
        try:
            with nogil:
                code = builder_finish(b, &meta, &st)
                err = file_sync_dir(name) if code == ST_OK else 0
            raise_status(&st, self._path)
            try:
                self._summary = _summary_of(meta_object(&meta), b)
            finally:
                meta_free(&meta)
        finally:
            free(b)
        if err != 0:
            fail_io(&st, "fsync of a directory", err)
            raise_status(&st, os.fsdecode(directory))
        return self._summary

    def abort(self):
        """Remove the unfinished file. A finished one stays.

        >>> table = lsmkv.SSTWriter("people.sst")
        >>> table.abort()
        """
        if self.b != NULL:
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

import errno
import os

from lsmkv_ext.port.compression import codec_name

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.cache.block_cache cimport CacheC, cache_remove
from lsmkv_ext.cache.fd_cache cimport FdCacheC, fd_duplicate
from lsmkv_ext.entry cimport ENTRY_DELETE, ENTRY_EXPIRY, ENTRY_POINTER, expiry_of, expiry_size
from lsmkv_ext.filter.curve cimport filter_designed_fpr
from lsmkv_ext.filter.format cimport FILTER_KIND_BLOCKED, FILTER_KIND_FUSE, filter_kind_text, filter_problem_text
from lsmkv_ext.filter.kernel cimport filter_fill_ratio, filter_probe
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u64
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.handle cimport fork_count
from lsmkv_ext.port.status cimport ST_NOT_FOUND, ST_OK, Status, raise_status, status_clear
from lsmkv_ext.table.absent_keys cimport absent_keys_bytes
from lsmkv_ext.table.format cimport (
    FRAME_TRAILER,
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
    PROP_LEVEL,
    PROP_MAX_EXPIRY,
    PROP_MIN_EXPIRY,
    PROP_NUMBER,
    PROP_N_RANGE_TOMBSTONES,
    PROP_RESTART_INTERVAL,
    PROP_VALUE_BYTES,
    Properties,
    RangeTombstone,
)
from lsmkv_ext.table.iterator cimport (
    TableIter,
    table_iter_close,
    table_iter_init,
    table_iter_next,
    table_iter_prev,
    table_iter_seek,
    table_iter_seek_first,
    table_iter_seek_for_prev,
    table_iter_seek_last,
)
from lsmkv_ext.table.meta cimport TableMetaC, ValueUse, meta_object
from lsmkv_ext.table.open cimport table_close, table_open
from lsmkv_ext.table.reader cimport (
    ReadContext,
    table_find_block,
    table_get,
    table_offset_of,
    table_peek_block,
    table_pread,
    table_read_block,
    table_unpin,
)
from lsmkv_ext.table.tombstones cimport TombstoneWalk, tombstone_walk_init, tombstone_walk_next

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.errors import IOError as LsmIOError


cdef bytes _bytes(key):
    """Converts bytes-like to bytes; raises TypeError for str, int and the like."""
    return key if type(key) is bytes else bytes(memoryview(key))


@cython.no_gc_clear                # __dealloc__ needs cache and fds alive
cdef class Table:
    """An open SSTable. Opening checks everything but the data blocks; those are checked when read. `own_log` is the number of the
    value log that an ingested table brought along."""

    def __cinit__(self, path, number=0, BlockCache cache=None, FdCache fds=None, *, global_seq=0, own_log=0, charge=False):
        cdef Status st
        cdef CacheC* c = cache.c if cache is not None else NULL
        cdef FdCacheC* p = fds.c if fds is not None else NULL
        cdef uint64_t n = number, seq = global_seq, own = own_log
        cdef bint charged = charge
        cdef char* name
        cdef int code
        self.born = fork_count
        self.value_logs = []
        self.path = os.path.abspath(os.fsdecode(path))
        self._path = os.fsencode(self.path)
        self.cache = cache
        self.fds = fds
        self.c = <TableC*>calloc(1, sizeof(TableC))
        if self.c == NULL:
            raise MemoryError("table")
        self.c.handle.fd = -1
        name = self._path
        status_clear(&st)
        with nogil:
            code = table_open(self.c, name, c, p, n, seq, own, charged, &st)
        if code != ST_OK:
            raise_status(&st, self.path)
        self._decode_keyspace()

    cdef int _decode_keyspace(self) except -1:
        cdef Properties* props = &self.c.props
        try:
            self.keyspace = PyBytes_FromStringAndSize(props.keyspace_name, props.keyspace_name_len).decode()
        except UnicodeDecodeError:
            raise CorruptionError("the name of the keyspace is not UTF-8", self.path, self.c.footer.props.at) from None
        return 0

    def __dealloc__(self):
        if self.c == NULL or self.born != fork_count:
            # After a fork a thread that only the parent has may hold the cache's lock: leak it all.
            return
        table_close(self.c)
        free(self.c)
        self.c = NULL
        if self._obsolete is not None:
            self._obsolete.append(self._number)

    def value_log(self, uint64_t number):
        """The open value log of that number; raises CorruptionError if it is missing."""
        return self._value_log(number)

    def hold(self, value_logs):
        """Keeps the open value logs that its entries point into. Before anybody reads it."""
        self.value_logs = list(value_logs)

    cdef ValueLog _value_log(self, uint64_t number):
        """The value log of that number. A table outside a database looks for it beside itself."""
        cdef ValueLog log
        cdef size_t i
        for log in self.value_logs:
            if log.c.number == number:
                return log
        for i in range(self.c.n_uses):
            if self.c.uses[i].number == number:
                folder, name = os.path.split(self.path)
                name = f"{number:06d}" if number else os.path.splitext(name)[0]
                path = os.path.join(folder, name + ".vlog")
                try:
                    log = ValueLog(path, number, self.fds, identity=self.c.uses[i].identity)
                except LsmIOError as error:
                    if error.errno != errno.ENOENT:
                        raise
                    raise CorruptionError("a value log is missing", path, 0) from None
                self.value_logs.append(log)
                return log
        raise CorruptionError("a pointer names a value log that its table does not", self.path, 0)

    cdef object _value(self, const Entry* e):
        """Without the expiry; None for a tombstone. Follows a pointer."""
        cdef size_t hidden = expiry_size(e.kind)
        if e.kind == ENTRY_DELETE:
            return None
        value = PyBytes_FromStringAndSize(e.value + hidden, e.vlen - hidden)
        return self._value_log(get_u64(e.value + hidden)).read(value) if e.kind & ENTRY_POINTER else value

    def descriptor(self):
        """A descriptor of the file, which the caller closes. The file may have no name any more."""
        return fd_duplicate(self.c.fds, &self.c.handle)

    def mark_obsolete(self, list into):
        """Makes the table append its number to `into` once the last reference is gone: then the file may be unlinked."""
        self._number = self.c.number
        self._obsolete = into

    def __repr__(self):
        return f"<Table {self.path!r}: {self.c.n_entries} entries in {self.c.n_blocks} blocks>"

    cdef bint _is_empty(self):
        return self.c.n_entries == 0 and self.c.tombstones.n == 0

    @property
    def number(self):
        return self.c.number

    @property
    def file_size(self):
        return self.c.file_size

    @property
    def n_entries(self):
        return self.c.n_entries

    @property
    def n_deletes(self):
        return self.c.n_deletes

    @property
    def n_blocks(self):
        return self.c.n_blocks

    @property
    def min_seq(self):
        return self.c.min_seq

    @property
    def max_seq(self):
        return self.c.max_seq

    @property
    def global_seq(self):
        return self.c.global_seq

    @property
    def seed(self):
        return self.c.seed

    @property
    def smallest(self):
        """The smallest key, range tombstones included; None for an empty table."""
        if self._is_empty():
            return None
        return PyBytes_FromStringAndSize(self.c.smallest, self.c.smallest_len)

    @property
    def largest(self):
        """The largest key, range tombstones included; None for an empty table."""
        if self._is_empty():
            return None
        return PyBytes_FromStringAndSize(self.c.largest, self.c.largest_len)

    @property
    def largest_exclusive(self):
        """Whether `largest` is the stop of a range tombstone, not a key."""
        return bool(self.c.largest_exclusive)

    @property
    def wasted(self):
        """Point reads that got past the filter and found nothing."""
        return lsm_load64(&self.c.wasted)

    @property
    def dead_passed(self):
        """Tombstones that scans passed one by one."""
        return lsm_load64(&self.c.dead_passed)

    @property
    def memory(self):
        """Bytes resident while the table is open: index, filter, range tombstones."""
        return self.c.memory

    @property
    def range_tombstones(self):
        """[(start, stop, seq)], sorted by start."""
        cdef RangeTombstone r
        cdef TombstoneWalk walk
        out = []
        tombstone_walk_init(&walk, &self.c.tombstones)
        while tombstone_walk_next(&walk, &r):
            out.append((r.start[:r.start_len], r.stop[:r.stop_len], r.seq))
        return out

    @property
    def properties(self):
        """The properties section as a dict, with the sizes of file, index and filter."""
        cdef TableC* t = self.c
        cdef const uint64_t* numbers = t.props.numbers
        return {
            "file_size": t.file_size,
            "n_entries": t.n_entries,
            "n_deletes": t.n_deletes,
            "n_range_tombstones": numbers[PROP_N_RANGE_TOMBSTONES],
            "key_bytes": numbers[PROP_KEY_BYTES],
            "value_bytes": numbers[PROP_VALUE_BYTES],
            "data_bytes": numbers[PROP_DATA_BYTES],
            "index_bytes": t.footer.index.size,
            "filter_bytes": t.footer.filter.size,
            "n_blocks": t.n_blocks,
            "min_seq": t.min_seq,
            "max_seq": t.max_seq,
            "smallest": self.smallest,
            "largest": self.largest,
            "largest_exclusive": self.largest_exclusive,
            "seed": t.seed,
            "number": numbers[PROP_NUMBER],
            "created": numbers[PROP_CREATED],
            "level": numbers[PROP_LEVEL],
            "compression": codec_name(numbers[PROP_COMPRESSION]),
            "block_size": numbers[PROP_BLOCK_SIZE],
            "restart_interval": numbers[PROP_RESTART_INTERVAL],
            "filter_keys": numbers[PROP_FILTER_KEYS],
            "filter_blocks": numbers[PROP_FILTER_BLOCKS],
            "expiring": numbers[PROP_EXPIRING],
            "min_expiry": numbers[PROP_MIN_EXPIRY],
            "max_expiry": numbers[PROP_MAX_EXPIRY],
            "expiring_bytes": numbers[PROP_EXPIRING_BYTES],
            "version": t.footer.version,
            "keyspace_id": numbers[PROP_KEYSPACE],
            "keyspace": self.keyspace,
        }

    @property
    def expiring(self):
        """Number of entries with an expiry."""
        return self.c.props.numbers[PROP_EXPIRING]

    @property
    def meta(self):
        """The table's TableMeta, as the manifest stores it."""
        cdef TableC* t = self.c
        cdef const uint64_t* numbers = t.props.numbers
        cdef TableMetaC m
        memset(&m, 0, sizeof(TableMetaC))
        m.number = t.number
        m.size = t.file_size
        m.entries = t.n_entries
        m.deletes = t.n_deletes
        m.range_tombstones = t.tombstones.n
        m.min_seq = t.min_seq
        m.max_seq = t.max_seq
        m.global_seq = t.global_seq
        m.raw_bytes = numbers[PROP_KEY_BYTES] + numbers[PROP_VALUE_BYTES]
        m.data_bytes = numbers[PROP_DATA_BYTES]
        m.index_bytes = t.footer.index.size
        m.filter_bytes = t.footer.filter.size
        m.filter_keys = t.filter.n_keys
        m.millibits = t.filter.millibits
        m.k = t.filter.k
        m.filter_kind = FILTER_KIND_FUSE if t.filter.fuse.width else FILTER_KIND_BLOCKED
        m.filter_level = t.filter.level
        m.expiring = numbers[PROP_EXPIRING]
        m.min_expiry = numbers[PROP_MIN_EXPIRY]
        m.max_expiry = numbers[PROP_MAX_EXPIRY]
        m.expiring_bytes = numbers[PROP_EXPIRING_BYTES]
        m.smallest.data = <char*>t.smallest
        m.smallest.len = t.smallest_len
        m.largest.data = <char*>t.largest
        m.largest.len = t.largest_len
        m.largest_exclusive = t.largest_exclusive
        m.values.data = <char*>t.uses
        m.values.len = t.n_uses * sizeof(ValueUse)
        m.own_log = t.own_log
        return meta_object(&m)

    @property
    def filter_info(self):
        """The filter's parameters. A damaged filter has usable=False and the reason in `problem`."""
        cdef TableC* t = self.c
        return {
            "kind": filter_kind_text(&t.filter).decode(),
            "usable": bool(t.filter.usable),
            "problem": None if t.filter.usable else filter_problem_text(t.filter.problem).decode(),
            "bytes": t.footer.filter.size,
            "n_blocks": t.filter.n_blocks,
            "n_keys": t.filter.n_keys,
            "seed": t.filter.seed,
            "millibits": t.filter.millibits,
            "k": t.filter.k,
            "level": t.filter.level,
            "prefix_kind": t.filter.prefix_kind,
            "prefix_arg": t.filter.prefix_arg,
            "fill_ratio": filter_fill_ratio(&t.filter),
            "designed_fpr": filter_designed_fpr(&t.filter),
        }

    @property
    def remembered_bytes(self):
        """Bytes of the absent keys that passed the filter and are remembered."""
        return absent_keys_bytes(&self.c.absent)

    def filter_bytes(self):
        """Returns (header, bits) as stored."""
        cdef TableC* t = self.c
        bits = PyBytes_FromStringAndSize(NULL, t.footer.filter.size)
        cdef char* p = bits
        cdef Status st
        status_clear(&st)
        with nogil:
            table_pread(t, p, t.footer.filter.size, t.footer.filter.at, &st)
        raise_status(&st, self.path)
        return t.footer.filter_header[:64], bits

    def get(self, key, *, fill_cache=True):
        """Returns (value, seq), with None as the value of a tombstone, or None without an entry. Does not probe the filter."""
        found = self.find(key, fill_cache=fill_cache)
        return None if found is None else found[:2]

    def find(self, key, *, fill_cache=True):
        """Returns (value, seq, expiry) as `get` does; the expiry is in milliseconds, 0 if there is none."""
        cdef ReadContext rc
        cdef Entry e
        cdef BlockC* pinned = NULL
        cdef Status st
        cdef bytes held = _bytes(key)
        cdef const char* k = held
        cdef size_t n = <size_t>len(held)
        memset(&rc, 0, sizeof(ReadContext))
        rc.gil_held = True
        rc.fill_cache = fill_cache
        status_clear(&st)
        cdef int code = table_get(self.c, k, n, xxh3(k, n, self.c.seed), &rc, &e, &pinned, &st)
        if code == ST_NOT_FOUND:
            return None
        if code != ST_OK:
            raise_status(&st, self.path)
        expiry = _expiry(&e)
        try:
            # Last: it may release the GIL, and the block may go then.
            return self._value(&e), e.seq, expiry
        finally:
            table_unpin(self.c, pinned)

    def may_contain(self, key):
        """Probes the filter."""
        cdef bytes k = _bytes(key)
        return bool(filter_probe(&self.c.filter, xxh3(<const char*>k, <size_t>len(k), self.c.seed)))

    def find_block(self, key):
        """Returns the index of the block that would hold `key`, or None past the last."""
        cdef bytes k = _bytes(key)
        cdef uint32_t i = table_find_block(self.c, k, <size_t>len(k))
        return i if i < self.c.n_blocks else None

    def offset_of(self, key):
        """Returns the bytes of data in front of `key`'s block."""
        cdef bytes k = _bytes(key)
        return table_offset_of(self.c, k, <size_t>len(k))

    def separators(self):
        """Returns the index: one key per block, not smaller than its last and smaller than the next block's first."""
        cdef TableC* t = self.c
        cdef uint32_t i
        common = t.common[:t.common_len] if t.n_blocks else b""
        return [common + t.seps[t.sep_at[i]:t.sep_at[i + 1]] for i in range(t.n_blocks)]

    def block_layout(self):
        """Returns [{offset, size, raw_size, n_entries, compression, separator, cached}], one per data block. Reads them all."""
        cdef uint32_t i
        out = []
        for i, separator in enumerate(self.separators()):
            out.append(self._describe_block(i, separator))
        return out

    cdef str _block_codec(self, uint32_t i):
        cdef TableC* t = self.c
        cdef Status st
        cdef char codec = 0
        status_clear(&st)
        if table_pread(t, &codec, 1, t.offsets[i + 1] - FRAME_TRAILER + 4, &st) != ST_OK:
            raise_status(&st, self.path)
        return codec_name(codec)

    cdef dict _describe_block(self, uint32_t i, bytes separator):
        cdef TableC* t = self.c
        cdef ReadContext rc
        cdef Status st
        cdef BlockC* b = NULL
        cdef bint cached = table_peek_block(t, i) != NULL
        memset(&rc, 0, sizeof(ReadContext))
        rc.gil_held = True
        rc.scan = True
        status_clear(&st)
        if table_read_block(t, i, &rc, &b, &st) != ST_OK:
            raise_status(&st, self.path)
        size = t.offsets[i + 1] - t.offsets[i]
        codec = self._block_codec(i)
        out = {
            "offset": t.offsets[i],
            "size": size,
            "raw_size": b.raw_size,
            "n_entries": b.n_entries,
            "compression": codec,
            "separator": separator,
            "cached": cached,
        }
        table_unpin(t, b)
        return out

    def count(self, *, mode="scan", fill_cache=False, reverse=False):
        """Returns (entries, bytes of keys and values), by one scan without the GIL."""
        cdef TableIter it
        cdef ReadContext rc
        cdef uint64_t n = 0, size = 0
        cdef bint backward = reverse
        cdef int code
        _set_context(&rc, mode, fill_cache)
        table_iter_init(&it, self.c, &rc)
        with nogil:
            code = table_iter_seek_last(&it) if backward else table_iter_seek_first(&it)
            while code == ST_OK and it.valid:
                n += 1
                size += it.entry.klen + it.entry.vlen
                code = table_iter_prev(&it) if backward else table_iter_next(&it)
            table_iter_close(&it)
        if code != ST_OK:
            raise_status(&it.status, self.path)
        return n, size

    def evict_blocks(self):
        """Evicts all blocks of the table. Pinned ones wait in limbo, as after an eviction without the GIL."""
        if self.c.cache != NULL:
            cache_remove(self.c.cache, self.c.blocks, self.c.n_blocks)

    def pointers(self):
        """Returns an iterator over (key, pointer) of the entries whose values are in value logs."""
        entries = TableEntries(self, None, None, False, "compaction", False, False)
        (<TableEntries>entries).only_pointers = True
        return entries

    def keys(self, start=None, stop=None):
        """Returns an iterator over the keys with start <= key < stop, those of tombstones too. Follows no pointer."""
        entries = TableEntries(self, start, stop, False, "compaction", False, False)
        (<TableEntries>entries).only_keys = True
        return entries

    def entries(self, start=None, stop=None, *, reverse=False, mode="scan", fill_cache=False, expiries=False):
        """Returns an iterator over (key, value, seq) with start <= key < stop; the value of a tombstone is None. With `expiries`
        each item also has the expiry in milliseconds, or 0."""
        return TableEntries(self, start, stop, reverse, mode, fill_cache, expiries)


cdef inline uint64_t _expiry(const Entry* e) noexcept:
    return expiry_of(e.value) if e.kind & ENTRY_EXPIRY else 0


cdef int _set_context(ReadContext* rc, str mode, bint fill_cache) except -1:
    if mode not in ("scan", "compaction", "get"):
        raise ValueError(f"mode is 'scan', 'compaction' or 'get', not {mode!r}")
    memset(rc, 0, sizeof(ReadContext))
    rc.fill_cache = fill_cache
    rc.scan = mode == "scan"
    rc.compaction = mode == "compaction"
    return 0


@cython.no_gc_clear                # __dealloc__ needs the table
cdef class TableEntries:
    """The iterator of Table.entries. It pins one block at a time."""

    cdef Table table
    cdef TableIter it
    cdef ReadContext rc
    cdef bytes start
    cdef bytes stop
    cdef bint reverse
    cdef bint expiries
    cdef bint only_keys
    cdef bint only_pointers
    cdef bint started

    def __cinit__(self, Table table not None, start, stop, reverse, mode, fill_cache, expiries):
        _set_context(&self.rc, mode, fill_cache)
        self.rc.gil_held = True
        self.table = table
        self.start = None if start is None else bytes(start)
        self.stop = None if stop is None else bytes(stop)
        self.reverse = reverse
        self.expiries = expiries
        table_iter_init(&self.it, table.c, &self.rc)

    def __dealloc__(self):
        table_iter_close(&self.it)

    cdef int _begin(self):
        if not self.reverse:
            if self.start is None:
                return table_iter_seek_first(&self.it)
            return table_iter_seek(&self.it, self.start, len(self.start))
        if self.stop is None:
            return table_iter_seek_last(&self.it)
        return table_iter_seek_for_prev(&self.it, self.stop, len(self.stop), False)

    cdef bint _outside(self):
        cdef Entry* e = &self.it.entry
        if self.reverse:
            return self.start is not None and lsm_compare(e.key, e.klen, self.start, len(self.start)) < 0
        return self.stop is not None and lsm_compare(e.key, e.klen, self.stop, len(self.stop)) >= 0

    def __iter__(self):
        return self

    cdef int _step(self) except -1:
        cdef int code = ST_OK
        if not self.started:
            self.started = True
            code = self._begin()
        elif self.it.valid:
            code = table_iter_prev(&self.it) if self.reverse else table_iter_next(&self.it)
        if code != ST_OK:
            raise_status(&self.it.status, self.table.path)
        if not self.it.valid or self._outside():
            self.it.valid = False
        return 0

    def __next__(self):
        cdef Entry* e = &self.it.entry
        cdef size_t hidden
        self._step()
        while self.only_pointers and self.it.valid and not e.kind & ENTRY_POINTER:
            self._step()
        if not self.it.valid:
            raise StopIteration
        if self.only_keys:
            return PyBytes_FromStringAndSize(e.key, e.klen)
        if self.only_pointers:
            hidden = expiry_size(e.kind)
            return PyBytes_FromStringAndSize(e.key, e.klen), PyBytes_FromStringAndSize(e.value + hidden, e.vlen - hidden)
        if self.expiries:
            return PyBytes_FromStringAndSize(e.key, e.klen), self.table._value(e), e.seq, _expiry(e)
        return PyBytes_FromStringAndSize(e.key, e.klen), self.table._value(e), e.seq

    @property
    def counters(self):
        return {
            "cache_hits": self.rc.cache_hits,
            "disk_reads": self.rc.disk_reads,
            "disk_bytes": self.rc.disk_bytes,
            "disk_ns": self.rc.disk_ns,
            "decompressed": self.rc.decompressed,
        }

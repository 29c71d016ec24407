import io

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from lsmkv_ext.cache.row_cache cimport RowCacheC, row_cache_find, row_cache_offer, row_cache_prefetch, row_cache_worth_probing
from lsmkv_ext.entry cimport MAX_EXPIRY
from lsmkv_ext.port.atomics cimport lsm_unlikely
from lsmkv_ext.port.bytes_like cimport as_bytes, get_bytes_view
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.handle cimport HandleC, handle_check
from lsmkv_ext.port.status cimport ST_OK, Status, status_clear
from lsmkv_ext.port.wall_clock cimport Moment, clock_now
from lsmkv_ext.read.counters cimport Counters, counters_add, counters_start, lsm_count
from lsmkv_ext.read.cursor cimport Cursor, new_cursor
from lsmkv_ext.read.explain cimport explain_lookup
from lsmkv_ext.read.iterator cimport Iterator, new_iterator
from lsmkv_ext.read.lookup cimport (
    ABSENT, FOUND, POINTED, Lookup, prefetch_lookup, probe_many, probe_memtables, probe_tables,
)
from lsmkv_ext.read.read_state cimport raise_read, read_state_drain
from lsmkv_ext.read.values cimport find_value, read_value, view_of_pointer
from lsmkv_ext.table.reader cimport ReadContext, table_unpin
from lsmkv_ext.tree cimport refuse_dropped
from lsmkv_ext.values.format cimport VALUE_STORED, ValuePointer
from lsmkv_ext.values.file cimport open_value_file
from lsmkv_ext.values.reader cimport ValueLog, ValueLogC

from lsmkv_ext.errors import ClosedError, KeyspaceError

cdef object MISSING = object()
cdef enum:
    DEAD_LIMIT = 1000           # tombstones that scans pass before the tables are looked at


cdef bint expects_hit(object expect) except -1:
    if expect is None:
        return False
    if expect == "hit":
        return True
    raise ValueError(f'expect must be "hit" or None, not {expect!r}')


cdef int count_disk(HandleC* handle, const ReadContext* rc) noexcept:
    handle.reads.disk_reads += rc.disk_reads
    handle.reads.disk_bytes += rc.disk_bytes
    handle.reads.disk_ns += rc.disk_ns
    handle.reads.decompressed += rc.decompressed
    return 0


# --- one key ---------------------------------------------------------------------------------------------------------------

cdef object pointed_value(Reader self, ReadState state, const Lookup* q, int form):
    """The value that an entry points to. Releases the GIL; the caller holds the state."""
    cdef ReadContext rc
    cdef Status st
    cdef ValuePointer p
    cdef ValueLogC* log
    cdef object value = None
    if form == NOT_READ:
        return True
    memset(&rc, 0, sizeof(rc))
    rc.gil_held = True
    status_clear(&st)
    log = find_value(&state.c, q.pointer, &p, &st)
    if log != NULL and form == AS_VIEW and p.compression == VALUE_STORED and p.raw:
        return view_of_pointer(state, q.pointer)
    if log != NULL and form == AS_FILE:
        return open_value_file(<ValueLog>log.owner, &p)
    if log != NULL:
        value = PyBytes_FromStringAndSize(NULL, p.raw)
        self.handle.inflight += 1
        read_value(log, &p, PyBytes_AS_STRING(value), &rc, &st)
        self.handle.inflight -= 1
        count_disk(self.handle, &rc)
    if st.code != ST_OK:
        raise_read(state, &st, self.tree.path)
    return value


cdef object get_from_tables(Reader self, ReadState state, Lookup* q, bytes row_key, bint offer, object default,
                            bint fill_cache, int form):
    cdef ReadContext rc
    cdef Status st
    cdef object value
    cdef uint32_t generation = self.tree.generation
    memset(&rc, 0, sizeof(rc))
    rc.gil_held = True
    rc.fill_cache = fill_cache
    status_clear(&st)
    self.handle.inflight += 1
    probe_tables(&state.c, q, &rc, &self.tree.lookups, &st)
    self.handle.inflight -= 1
    self.handle.reads.cache_hits += rc.cache_hits
    if rc.disk_reads:
        count_disk(self.handle, &rc)
    if st.code != ST_OK:
        raise_read(state, &st, self.tree.path)
    if not q.found:
        return default
    if q.found == POINTED:
        table_unpin(q.owner, q.pinned)
        return pointed_value(self, state, q, form)
    value = PyBytes_FromStringAndSize(q.value, q.vlen)
    if q.pinned != NULL:
        table_unpin(q.owner, q.pinned)
    # A disk read releases the GIL: the levels may be others by now, or the database closed. A row has no expiry.
    if (offer and fill_cache and generation == self.tree.generation and self.tree.row_cache.c.sets != NULL
            and q.expiry == 0):
        row_cache_offer(&self.tree.row_cache.c, q.hash ^ self.tree.row_salt, row_key, value, generation)
    return value


cdef object lookup_bytes(Reader self, ReadState state, uint64_t snapshot, const char* key, size_t klen, bytes row_key,
                         object default, bint fill_cache, bint expect_hit, uint64_t* expiry, int form):
    cdef Lookup q
    cdef Moment moment
    cdef RowCacheC* rows = &self.tree.row_cache.c
    cdef uint64_t row_hash
    cdef int answer
    cdef bint probed
    cdef void* row
    cdef object value
    moment.clock = &self.handle.clock
    moment.now = self.held_now
    q.moment = &moment
    q.expiry = 0
    q.key = key
    q.klen = klen
    q.trace = NULL
    q.hash = xxh3(key, klen, state.c.seed)
    row_hash = q.hash ^ self.tree.row_salt
    row_cache_prefetch(rows, row_hash)
    prefetch_lookup(&state.c, &q, rows.sets == NULL or rows.bypassed)
    q.snapshot = snapshot
    q.skip_bottom_filter = expect_hit
    answer = probe_memtables(&state.c, &q, &self.tree.lookups)
    if answer == FOUND:
        if expiry != NULL:
            expiry[0] = q.expiry
        if lsm_unlikely(q.found == POINTED):
            return pointed_value(self, state, &q, form)
        return PyBytes_FromStringAndSize(q.value, q.vlen)
    if answer != ABSENT:
        return default
    probed = (rows.sets != NULL and row_key is not None and state is self.tree.state and row_cache_worth_probing(rows))
    if probed:
        row = row_cache_find(rows, row_hash, key, klen, self.tree.generation)
        if row != NULL:
            lsm_count(&self.tree.lookups.row_hits, 1)
            lsm_count(&self.tree.lookups.gets_found, 1)
            return <object>row
    value = get_from_tables(self, state, &q, row_key, probed, default, fill_cache, form)
    if expiry != NULL:
        expiry[0] = q.expiry
    return value


cdef object lookup_buffer(Reader self, object key, object default, bint fill_cache, bint expect_hit, int form):
    cdef uint64_t snapshot = 0
    cdef ReadState state
    cdef Py_buffer kb
    if isinstance(key, str):
        raise TypeError("keys are bytes, not str: encode it first")
    get_bytes_view(key, &kb)
    try:
        state = self.open_state(&snapshot)
        return lookup_bytes(self, state, snapshot, <const char*>kb.buf, kb.len, None, default, fill_cache, expect_hit, NULL,
                            form)
    finally:
        PyBuffer_Release(&kb)


cdef inline object lookup(Reader self, object key, object default, bint fill_cache, bint expect_hit, int form):
    cdef uint64_t snapshot = 0
    cdef ReadState state
    if not PyBytes_CheckExact(key):
        return lookup_buffer(self, key, default, fill_cache, expect_hit, form)
    if self.pinned:
        state = self.open_state(&snapshot)
    else:
        # What open_state does, without the call.
        handle_check(self.handle)
        snapshot = self.handle.visible
        state = self.tree.state
        if state is None:
            refuse_dropped()
    return lookup_bytes(self, state, snapshot, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), <bytes>key, default, fill_cache,
                        expect_hit, NULL, form)


# --- many keys -------------------------------------------------------------------------------------------------------------

cdef list keys_held(object keys):
    """A copy: the caller's list may change while the GIL is released, and this one keeps the keys alive."""
    cdef list held = list(keys)
    cdef Py_ssize_t i
    for i in range(len(held)):
        if not PyBytes_CheckExact(held[i]):
            held[i] = as_bytes(held[i])
    return held


cdef list lookup_many(Reader self, ReadState state, uint64_t snapshot, list keys, object default):
    cdef Py_ssize_t n = len(keys)
    cdef Py_ssize_t i
    cdef Lookup* queries
    cdef Counters* local
    cdef Moment moment
    cdef ReadContext rc
    cdef Status st
    cdef list out = [None] * n
    queries = <Lookup*>calloc(n + 1, sizeof(Lookup))
    local = <Counters*>calloc(1, sizeof(Counters))
    if queries == NULL or local == NULL:
        free(queries)
        free(local)
        raise MemoryError("multi_get")
    memset(&rc, 0, sizeof(rc))
    rc.fill_cache = True
    status_clear(&st)
    counters_start(local, &self.tree.lookups)
    moment.clock = &self.handle.clock
    moment.now = self.held_now
    for i in range(n):
        queries[i].key = PyBytes_AS_STRING(keys[i])
        queries[i].klen = PyBytes_GET_SIZE(keys[i])
        queries[i].snapshot = snapshot
        queries[i].moment = &moment
    try:
        self.handle.inflight += 1
        with nogil:
            for i in range(n):
                queries[i].hash = xxh3(queries[i].key, queries[i].klen, state.c.seed)
            probe_many(&state.c, queries, n, &rc, local, &st)
        self.handle.inflight -= 1
        read_state_drain(&state.c)
        counters_add(&self.tree.lookups, local)
        self.handle.reads.cache_hits += rc.cache_hits
        count_disk(self.handle, &rc)
        if st.code != ST_OK:
            raise_read(state, &st, self.tree.path)
        for i in range(n):
            if lsm_unlikely(queries[i].found == POINTED):
                out[i] = pointed_value(self, state, &queries[i], AS_BYTES)
            else:
                out[i] = PyBytes_FromStringAndSize(queries[i].value, queries[i].vlen) if queries[i].found else default
        return out
    finally:
        for i in range(n):
            if queries[i].pinned != NULL:
                table_unpin(queries[i].owner, queries[i].pinned)
        free(queries)
        free(local)


# --- the calls -------------------------------------------------------------------------------------------------------------

cdef object seconds_left(uint64_t expiry, uint64_t now):
    return None if expiry == 0 or expiry == MAX_EXPIRY else max(0, <int64_t>(expiry - now)) / 1000.0


cdef class Reader(Dependent):
    """The calls that a database and its snapshots share."""

    @cython.final
    cdef ReadState open_state(self, uint64_t* snapshot):
        """The state to read, and in `snapshot` the sequence number to read at. Raises ClosedError after a close."""
        handle_check(self.handle)
        if not self.pinned:
            snapshot[0] = self.handle.visible
            if self.tree.state is None:
                refuse_dropped()
            return self.tree.state
        if self.held is None:
            raise ClosedError("the snapshot is closed")
        snapshot[0] = self.held_seq
        return self.held

    cdef list pin_states(self, uint64_t* snapshot):
        """[(tree, state)] of all keyspaces, and in `snapshot` the sequence number, of one moment. Raises as open_state does."""
        return [(self.tree, self.open_state(snapshot))]

    def get(self, key, default=None, *, bint verify_checksums=True, bint fill_cache=True, expect=None, bint copy=True):
        """Return the value of `key`, or `default` if it is missing.

        With `copy=False` a value is a read-only memoryview. A large uncompressed value is mapped, not copied: its checksums
        are verified, the view keeps its file on disk, and a disk error while reading it kills the process (SIGBUS).

        `fill_cache=False` keeps the blocks it reads out of the block cache. `expect="hit"` skips the filter of the last
        level, which is useless for a key that exists. Checksums are always verified; `verify_checksums` has no
        effect.

        Raises `CorruptionError` if a block is damaged, and `IOError` if the disk fails.

        >>> db.put(b"ada", b"1815")
        >>> db.get(b"ada"), db.get(b"bob", b"?")
        (b'1815', b'?')
        """
        cdef bint expect_hit = expect is not None and expects_hit(expect)
        cdef object found
        if copy:
            return lookup(self, key, default, fill_cache, expect_hit, AS_BYTES)
        found = lookup(self, key, MISSING, fill_cache, expect_hit, AS_VIEW)
        if found is MISSING:
            return default
        return found if isinstance(found, memoryview) else memoryview(found)

    def open_value(self, key):
        """Return the value of `key` as a binary file object, with `read` and `seek`.

        A value in a value log is read and checked in chunks of 64 KiB, whatever its size. The file keeps it on disk, even
        if the key is overwritten. Raises `KeyError` if the key is missing, and as `get` does.

        >>> db.put(b"ada", b"1815")
        >>> with db.open_value(b"ada") as file:
        ...     file.seek(2), file.read()
        (2, b'15')
        """
        cdef object found = lookup(self, key, MISSING, True, False, AS_FILE)
        if found is MISSING:
            raise KeyError(key)
        return io.BytesIO(found) if isinstance(found, bytes) else found

    def __getitem__(self, key):
        cdef object value = lookup(self, key, MISSING, True, False, AS_BYTES)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        return lookup(self, key, MISSING, True, False, NOT_READ) is not MISSING

    def multi_get(self, keys, default=None):
        """Return the values of several keys in their order, `default` for those that are missing.

        All keys are read from the same state. It is faster than as many calls of `get`: disk reads and cache misses
        overlap, and other threads run meanwhile. Raises as `get` does.

        >>> db.put(b"ada", b"1815")
        >>> db.multi_get([b"ada", b"bob"])
        [b'1815', None]
        """
        cdef uint64_t snapshot = 0
        cdef list held
        handle_check(self.handle)
        held = keys_held(keys)
        return lookup_many(self, self.open_state(&snapshot), snapshot, held, default)

    def ttl(self, key):
        """Return the seconds until `key` expires, or None if it never does.

        Raises `KeyError` if the key is missing, and as `get` does.

        >>> db.put(b"ada", b"token", ttl=60)
        >>> 59 < db.ttl(b"ada") <= 60
        True
        """
        cdef uint64_t snapshot = 0
        cdef uint64_t expiry = 0
        cdef bytes k = as_bytes(key)
        cdef ReadState state = self.open_state(&snapshot)
        if lookup_bytes(self, state, snapshot, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), None, MISSING, True, False,
                        &expiry, NOT_READ) is MISSING:
            raise KeyError(key)
        return seconds_left(expiry, self.held_now or clock_now(&self.handle.clock))

    def _on_seek_debt(self):
        """Hook, called in the reader's thread: seeks have searched the tables of L0 so often that merging them is cheaper."""

    def _on_dead_debt(self):
        """Hook, called in the reader's thread: scans have passed many tombstones in tables, which may be worth a compaction."""

    cdef int report_debts(self) except -1:
        cdef uint64_t snapshot = 0
        cdef ReadState state = self.open_state(&snapshot)
        if self.pinned:
            return 0
        if state.c.dead_debt >= DEAD_LIMIT:
            state.c.dead_debt = 0
            self._on_dead_debt()
        if state.c.seek_debt > state.c.seek_limit:
            state.c.seek_debt = 0
            self._on_seek_debt()
        return 0

    def iterator(self, *, bint reverse=False, start=None, stop=None, bint include_start=True, bint include_stop=False,
                 prefix=None, bint include_key=True, bint include_value=True, bint fill_cache=True, bint copy=True):
        """Return an `Iterator` over the keys in [start, stop) in key order; None is the first or last key.

        `include_start` and `include_stop` change which bounds belong to the range, `prefix` narrows it to the keys with
        that prefix, and `reverse` walks it from the end. Items are (key, value), or the key or value alone without
        `include_value` or `include_key`. `fill_cache=False` keeps a long scan out of the block cache. With `copy=False`
        values are memoryviews, as those of `get`.

        It sees the state at this call; later writes do not show. It keeps the files it reads on disk until it is closed
        or collected.

        >>> db.put(b"ada", b"1815")
        >>> list(db.iterator(prefix=b"a", include_value=False))
        [b'ada']
        """
        cdef uint64_t snapshot = 0
        cdef Iterator it
        self.report_debts()
        it = new_iterator(start, stop, include_start, include_stop, prefix, reverse, include_key, include_value, fill_cache,
                          copy)
        it.attach(self, self.open_state(&snapshot), snapshot, self.held_now)
        return it

    def cursor(self, *, start=None, stop=None, prefix=None, bint fill_cache=True):
        """Return a `Cursor` over the keys in [start, stop), or over the keys with a prefix. It stands on no key yet.

        It sees the state at this call, and keeps the files it reads on disk until it is closed or collected.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"a"), cursor.key()
        (True, b'ada')
        """
        cdef uint64_t snapshot = 0
        cdef Cursor cursor
        self.report_debts()
        cursor = new_cursor(start, stop, prefix, fill_cache)
        cursor.attach(self, self.open_state(&snapshot), snapshot, self.held_now)
        return cursor

    def _explain(self, key):
        """The trace of one lookup as plain data; `DB.explain` makes an `Explain` of it."""
        cdef uint64_t snapshot = 0
        cdef bytes k = as_bytes(key)
        return explain_lookup(self.handle, self.open_state(&snapshot), snapshot, self.held_now, k, self.tree.path)


cdef class SnapshotBase(Reader):
    """One state of a database, for as long as it is held."""

    def __init__(self, Reader source not None, SnapshotBase moment=None):
        """`moment`: another snapshot of the database, whose state it shows."""
        if self.source is not None:
            raise TypeError("a snapshot is made once")
        if moment is None:
            self.states = source.pin_states(&self.held_seq)
            self.held_now = clock_now(&source.handle.clock)
        else:
            self.take_moment(source, moment)
        self.pinned = True
        self.turn_to(source.tree)
        self.source = source
        self.join(source.handle)

    cdef int take_moment(self, Reader source, SnapshotBase moment) except -1:
        if source.handle != moment.handle:
            raise ValueError("the keyspace is of another database than the snapshot")
        if moment.states is None:
            raise ClosedError("the snapshot is closed")
        self.states = moment.states
        self.held_seq = moment.held_seq
        self.held_now = moment.held_now
        return 0

    cdef int turn_to(self, Tree tree) except -1:
        for each, state in self.states:
            if each is tree:
                self.tree = tree
                self.held = state
                return 0
        raise KeyspaceError("the keyspace was created after the snapshot, or dropped before it")

    def __dealloc__(self):
        # Off the list before `source` goes: this may be the last reference to the database, and its close walks the list.
        self.leave()

    cdef void release(self) noexcept:
        self.held = None
        self.states = None

    @property
    def sequence(self):
        """The sequence number of the last write that the snapshot sees.

        >>> db.put(b"ada", b"1815")
        >>> db.snapshot().sequence
        1
        """
        return self.held_seq

    def close(self):
        """Release the files that the snapshot keeps. Reads raise `ClosedError` from then on.

        >>> before = db.snapshot()
        >>> before.close()
        """
        self.release()

    @property
    def closed(self):
        """Whether the snapshot or its database is closed.

        >>> with db.snapshot() as before:
        ...     before.closed
        False
        """
        return self.held is None or bool(self.handle.closed)

    def __enter__(self):
        self.open_state(&self.held_seq)
        return self

    def __exit__(self, *exc):
        self.close()

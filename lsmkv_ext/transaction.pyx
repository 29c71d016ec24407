from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from lsmkv_ext.batch cimport OP_DELETE, OP_DELETE_RANGE, OP_PUT, batch_add, checked_key, refuse_value
from lsmkv_ext.engine cimport WriteCondition, sync_wish
from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.forest cimport Forest
from lsmkv_ext.large_write cimport write_batch
from lsmkv_ext.limits cimport MAX_SEQ, MAX_VALUE
from lsmkv_ext.memtable.arena cimport MemEntry, entry_footprint, entry_key, entry_klen
from lsmkv_ext.memtable.memtable cimport Memtable, mem_covering_seq, mem_find
from lsmkv_ext.memtable.tombstones cimport MemRangeTombstone, Span
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compare cimport lsm_compare
from lsmkv_ext.port.handle cimport handle_check
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.reader cimport AS_BYTES, Reader, lookup_bytes, seconds_left
from lsmkv_ext.store cimport Store

from lsmkv_ext.errors import ClosedError, ConflictError, KeyspaceError

cdef object MISSING = object()


# --- what was read -----------------------------------------------------------------------------------------------------------

cdef class ReadRange:
    """The keys that an iteration has passed. It grows with the iteration."""

    cdef bint holds(self, const char* key, size_t klen) noexcept:
        cdef int order
        if self.low is not None and lsm_compare(key, klen, PyBytes_AS_STRING(self.low), PyBytes_GET_SIZE(self.low)) < 0:
            return False
        if self.high is None:
            return True
        order = lsm_compare(key, klen, PyBytes_AS_STRING(self.high), PyBytes_GET_SIZE(self.high))
        return order < 0 or (order == 0 and self.high_included)

    cdef bint meets(self, const Span* other) noexcept:
        """Whether a range tombstone deletes keys of this range."""
        cdef size_t n
        if self.holds(other.start, other.start_len):
            return True
        if self.low is None:
            return False
        n = PyBytes_GET_SIZE(self.low)
        return (lsm_compare(other.start, other.start_len, PyBytes_AS_STRING(self.low), n) < 0
                and lsm_compare(other.stop, other.stop_len, PyBytes_AS_STRING(self.low), n) > 0)

    def widen(self, bytes low, bytes high, bint high_included):
        self.low = low
        self.high = high
        self.high_included = high_included


cdef bint newer_entry(list memtables, const char* key, size_t klen, uint64_t hash, uint64_t snapshot) noexcept:
    """Whether one of them has a newer entry of the key."""
    cdef Memtable memtable
    cdef MemEntry* e
    for memtable in memtables:
        if memtable.c.max_seq <= snapshot:
            continue
        e = mem_find(memtable.c, key, klen, hash, MAX_SEQ)
        if e != NULL and e.seq > snapshot:
            return True
        if mem_covering_seq(memtable.c, key, klen, MAX_SEQ) > snapshot:
            return True
    return False


cdef bint newer_in_range(const MemC* m, const Position* began, ReadRange span, uint64_t snapshot) noexcept:
    """Whether a memtable has a newer entry or range tombstone in the range. Entries are in the order of their sequence numbers,
    so those before the start of the transaction are passed over at once."""
    cdef ArenaChunk* chunk = m.first
    cdef MemRangeTombstone* d = m.range_tombstones
    cdef MemEntry* e
    cdef size_t at = 0
    if began.memtable == m:
        chunk = began.chunk
        at = began.used
    while chunk != NULL:
        while at < chunk.used:
            e = <MemEntry*>(chunk.base + at)
            if e.seq > snapshot and span.holds(entry_key(e), entry_klen(e)):
                return True
            at += entry_footprint(entry_klen(e), e.vlen)
        chunk = chunk.next
        at = 0
    while d != NULL and d.span.seq > snapshot:
        if span.meets(&d.span):
            return True
        d = d.older
    return False


cdef Tree tree_of(TransactionBase self, object keyspace):
    """None is the keyspace that the transaction was begun in."""
    cdef Reader reader
    if keyspace is None:
        return self.tree
    if not isinstance(keyspace, Reader):
        raise TypeError(f"keyspace must be a Keyspace, not {type(keyspace).__name__}")
    reader = <Reader>keyspace
    if reader.handle != self.handle:
        raise ValueError("the keyspace is of another database than the transaction")
    return reader.tree


cdef ReadState state_of(TransactionBase self, Tree tree):
    if tree is self.tree:
        return self.held
    for each, state in self.states:
        if each is tree:
            return state
    raise KeyspaceError("the keyspace was created after the transaction began, or dropped before it")


cdef class Unchanged(WriteCondition):
    """That nothing which a transaction read has changed."""

    def __cinit__(self, TransactionBase transaction not None):
        self.transaction = transaction

    cdef bint holds(self) noexcept:
        cdef TransactionBase transaction = self.transaction
        if transaction.held is None or not transaction.unchanged():
            return False
        # The write follows at once.
        transaction.last_written = transaction.handle.visible + transaction.batch.b.count
        return True


# --- the transaction ---------------------------------------------------------------------------------------------------------

cdef class TransactionBase(SnapshotBase):
    """TransactionBase(db)\n--\n\n\
    Reads of one moment and writes that are committed together, if nothing it read has changed."""

    def __cinit__(self):
        self.own = {}
        self.own_expiries = {}
        self.own_ranges = []
        self.reads = []
        self.ranges = []

    def __init__(self, Store db not None):
        SnapshotBase.__init__(self, db)
        self.engine = db.engine
        while not self.pin_positions():
            self.states = db.pin_states(&self.held_seq)
            self.turn_to(db.tree)
        self.counted_in = <PyObject*>self.engine.forest
        Py_INCREF(self.engine.forest)
        self.engine.forest.begin_transaction(self.held_seq)

    cdef bint pin_positions(self) except -1:
        """Notes where each tree goes on. False if anything was written since the states were taken: by a finalizer."""
        cdef Tree tree
        cdef Py_ssize_t i
        free(self.positions)
        self.positions = <Position*>calloc(len(self.states), sizeof(Position))
        if self.positions == NULL:
            raise MemoryError("transaction")
        handle_check(self.handle)
        for i in range(len(self.states)):
            tree = <Tree>(<tuple>self.states[i])[0]
            if tree.state is not (<tuple>self.states[i])[1]:
                return False
            self.positions[i].memtable = tree.active.c
            self.positions[i].chunk = tree.active.c.last
            self.positions[i].used = tree.active.c.last.used
        return self.handle.visible == self.held_seq

    def __dealloc__(self):
        self.uncount()
        free(self.positions)

    cdef int uncount(self) noexcept:
        cdef Forest forest
        if self.counted_in != NULL:
            forest = <Forest>self.counted_in
            self.counted_in = NULL
            forest.end_transaction()
            Py_DECREF(forest)
        return 0

    cdef int end(self) noexcept:
        self.uncount()
        SnapshotBase.release(self)
        return 0

    cdef void release(self) noexcept:
        self.end()

    cdef int check_live(self) except -1:
        handle_check(self.handle)
        if self.held is None:
            raise ClosedError("the transaction has ended")
        return 0

    # --- reads ---------------------------------------------------------------------------------------------------------------

    cdef int record(self, Tree tree, int op, bytes key, bytes value, uint64_t expiry) except -1:
        """Adds a write to the batch."""
        if self.batch is None:
            self.batch = WriteBatch()
        if value is None:
            return batch_add(&self.batch.b, tree.keyspace, op, key, len(key), NULL, 0, 0)
        return batch_add(&self.batch.b, tree.keyspace, op, key, len(key), value, len(value), expiry)

    cdef object lookup(self, object key, object default, object keyspace, uint64_t* expiry):
        cdef bytes k = as_bytes(key)
        cdef Tree tree
        cdef ReadState state
        self.check_live()
        tree = tree_of(self, keyspace)
        if self.own or self.own_ranges:
            value = self.own.get((tree.keyspace, k), MISSING)
            if value is not MISSING:
                if expiry != NULL and value is not None:
                    expiry[0] = self.own_expiries[(tree.keyspace, k)] or self.default_expiry(tree)
                return default if value is None else value
            for space, start, stop in self.own_ranges:
                if space == tree.keyspace and <bytes>start <= k < <bytes>stop:
                    return default
        self.reads.append((tree, k))
        self.check_live()
        state = state_of(self, tree)
        return lookup_bytes(self, state, self.held_seq, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), None, default, True, False,
                            expiry, AS_BYTES)

    cdef uint64_t default_expiry(self, Tree tree) noexcept:
        return self.held_now + tree.default_ttl if tree.default_ttl else 0

    def get(self, key, default=None, *, keyspace=None):
        """Return the value of `key`, or `default` if it is missing. It sees the transaction's own writes.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", b"1815")
        ...     tx.get(b"ada")
        b'1815'
        """
        return self.lookup(key, default, keyspace, NULL)

    def multi_get(self, keys, default=None, *, keyspace=None):
        """Return the values of several keys in their order, `default` for those that are missing.

        >>> with db.transaction() as tx:
        ...     tx.multi_get([b"ada", b"bob"])
        [None, None]
        """
        return [self.lookup(key, default, keyspace, NULL) for key in keys]

    def ttl(self, key, *, keyspace=None):
        """Return the seconds from the start of the transaction until `key` expires, or None if it never does.

        Raises `KeyError` if the key is missing.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", b"token", ttl=60)
        ...     tx.ttl(b"ada") >= 60
        True
        """
        cdef uint64_t expiry = 0
        if self.lookup(key, MISSING, keyspace, &expiry) is MISSING:
            raise KeyError(key)
        return seconds_left(expiry, self.held_now)

    def __getitem__(self, key):
        value = self.lookup(key, MISSING, None, NULL)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        return self.lookup(key, MISSING, None, NULL) is not MISSING

    def _read_range(self, keyspace):
        """A new range of the keys read, empty so far."""
        cdef ReadRange span = ReadRange()
        self.check_live()
        span.tree = tree_of(self, keyspace)
        span.low = b""
        span.high = b""
        self.ranges.append(span)
        return span

    # --- writes --------------------------------------------------------------------------------------------------------------

    def put(self, key, value, *, keyspace=None, ttl=None, expire_at=None):
        """Set `key` to `value`. Others see it after the commit. `ttl` and `expire_at` are those of `DB.put`; a TTL counts from
        this call.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", b"1815")
        """
        cdef bytes k = checked_key(key)
        cdef bytes v = as_bytes(value)
        cdef uint64_t expiry = expiry_from(ttl, expire_at, &self.handle.clock)
        cdef Tree tree
        if len(v) > MAX_VALUE:
            refuse_value(len(v))
        self.check_live()
        tree = tree_of(self, keyspace)
        self.record(tree, OP_PUT, k, v, expiry)
        self.own_expiries[(tree.keyspace, k)] = expiry
        self.own[(tree.keyspace, k)] = None if 0 < expiry <= self.held_now else v

    def delete(self, key, *, keyspace=None):
        """Delete `key`. A missing key is no error.

        >>> with db.transaction() as tx:
        ...     tx.delete(b"ada")
        """
        cdef bytes k = checked_key(key)
        cdef Tree tree
        self.check_live()
        tree = tree_of(self, keyspace)
        self.record(tree, OP_DELETE, k, None, 0)
        self.own[(tree.keyspace, k)] = None

    def delete_range(self, start, stop, *, keyspace=None):
        """Delete the keys in [start, stop). It deletes nothing if stop <= start.

        >>> with db.transaction() as tx:
        ...     tx.delete_range(b"a", b"b")
        """
        cdef bytes first = checked_key(start)
        cdef bytes last = checked_key(stop)
        cdef Tree tree
        self.check_live()
        if first >= last:
            return
        tree = tree_of(self, keyspace)
        self.record(tree, OP_DELETE_RANGE, first, last, 0)
        self.own_ranges.append((tree.keyspace, first, last))
        for space, key in [each for each in self.own if each[0] == tree.keyspace and first <= each[1] < last]:
            self.own[(space, key)] = None

    def cursor(self, **options):
        """Not for transactions, which must know what was read: use `items`.

        >>> db.transaction().cursor()
        Traceback (most recent call last):
        ...
        TypeError: a transaction has no cursors: use items()
        """
        raise TypeError("a transaction has no cursors: use items()")

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def _own_writes(self, keyspace):
        """The transaction's own writes to a keyspace: [(key, value or None)] by key, and the ranges deleted."""
        cdef Tree tree
        self.check_live()
        tree = tree_of(self, keyspace)
        mine = sorted((key, value) for (space, key), value in self.own.items() if space == tree.keyspace)
        return mine, [(start, stop) for space, start, stop in self.own_ranges if space == tree.keyspace]

    # --- the end -------------------------------------------------------------------------------------------------------------

    cdef bint range_changed(self, ReadRange span, list memtables) noexcept:
        cdef Memtable memtable
        cdef Position* began = NULL
        cdef Py_ssize_t i
        for i in range(len(self.states)):
            if (<tuple>self.states[i])[0] is span.tree:
                began = &self.positions[i]
        for memtable in memtables:
            if memtable.c.max_seq > self.held_seq and newer_in_range(memtable.c, began, span, self.held_seq):
                return True
        return False

    cdef bint unchanged(self) noexcept:
        """Whether all that was read is as it was. Allocates nothing, which might run Python code: the write follows at once."""
        cdef Tree tree
        cdef ReadRange span
        cdef bytes key
        cdef const char* k
        cdef size_t n
        cdef uint64_t hash
        cdef Py_ssize_t i
        for i in range(len(self.reads)):
            tree = <Tree>(<tuple>self.reads[i])[0]
            key = <bytes>(<tuple>self.reads[i])[1]
            k = PyBytes_AS_STRING(key)
            n = PyBytes_GET_SIZE(key)
            if tree.state is None or tree.forgotten > self.held_seq:
                return False
            hash = xxh3(k, n, tree.seed)
            if newer_entry(tree.state.memtables, k, n, hash, self.held_seq) or newer_entry(tree.kept, k, n, hash, self.held_seq):
                return False
        for i in range(len(self.ranges)):
            span = <ReadRange>self.ranges[i]
            if span.tree.state is None or span.tree.forgotten > self.held_seq:
                return False
            if self.range_changed(span, span.tree.state.memtables) or self.range_changed(span, span.tree.kept):
                return False
        return True

    def commit(self, *, sync=None):
        """Write everything at once, unless something that was read has changed: then raise `ConflictError` and write nothing.

        The transaction ends either way. `sync` and errors are those of `DB.put`.

        >>> tx = db.transaction()
        >>> tx.put(b"ada", b"1815")
        >>> tx.commit()
        """
        cdef int wish = sync_wish(sync)
        self.check_live()
        try:
            if self.batch is not None and not self.write(wish):
                raise ConflictError("something that the transaction read has changed since it began")
        finally:
            self.end()

    cdef bint write(self, int wish) except -1:
        """Returns whether the batch was written."""
        cdef WriteBatch batch = self.batch
        cdef bint written = False
        condition = Unchanged(self)
        self.engine.check_writable()
        batch.b.writers += 1    # the write may release the GIL: another thread must not change the batch
        try:
            written = write_batch(self.engine, &batch.b, wish, condition)
            return written
        finally:
            batch.b.writers -= 1
            if not written:
                self.last_written = 0

    @property
    def committed(self):
        """The sequence number of the last write of the commit; 0 if it has not written anything.

        >>> with db.transaction() as tx:
        ...     tx.put(b"ada", b"1815")
        >>> tx.committed
        1
        """
        return self.last_written

    @property
    def _source(self):
        return self.source

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None and self.held is not None:
            self.commit()
        else:
            self.end()

    def rollback(self):
        """End the transaction without writing anything. It is no error if it has ended.

        >>> tx = db.transaction()
        >>> tx.rollback()
        """
        self.end()

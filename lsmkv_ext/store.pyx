from operator import index

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from lsmkv_ext.batch cimport OP_DELETE, OP_DELETE_RANGE, OP_PUT, WriteBatch, batch_add, checked_key, refuse_key, refuse_value
from lsmkv_ext.engine cimport sync_wish
from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.large_write cimport put_file, put_value, write_batch
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.bytes_like cimport get_bytes_view
from lsmkv_ext.port.handle cimport handle_check, handle_unref
from lsmkv_ext.port.wall_clock cimport clock_now


cdef class Store(Reader):
    """A `Reader` that also writes. `lsmkv.open` returns its subclass `lsmkv.DB`."""

    def _bind(self, Engine engine not None, Tree tree not None):
        """Reads and writes go to `tree` of `engine` from now on."""
        handle_unref(self.handle)
        self.handle = engine.handle
        self.handle.refs += 1
        self.engine = engine
        self.tree = tree

    @property
    def _engine(self):
        return self.engine

    @property
    def _live(self):
        return self.tree

    def _check_open(self):
        handle_check(self.handle)

    @property
    def keyspace_id(self):
        """The id of the keyspace; that of the default one is 0.

        >>> db.keyspace_id
        0
        """
        return 0 if self.tree is None else self.tree.keyspace

    cdef list pin_states(self, uint64_t* snapshot):
        cdef list states = None
        cdef uint64_t seen
        handle_check(self.handle)
        while states is None or seen != self.engine.forest.changes:     # making the list may run a finalizer
            seen = self.engine.forest.changes
            states = [(tree, tree.state) for tree in self.engine.forest.trees]
            handle_check(self.handle)
        snapshot[0] = self.handle.visible
        return states

    @property
    def closed(self):
        """Whether the database is closed.

        >>> db.closed
        False
        """
        return bool(self.handle.closed)

    @property
    def path(self):
        """The directory of the database.

        >>> lsmkv.open("people.db").path.endswith("people.db")
        True
        """
        return None if self.tree is None else self.tree.path

    @property
    def seed(self):
        """The seed of the key hashes in memtables and filters, drawn at random when the database is created.

        A lookup hashes its key once for all tables with this seed. Pass it to the `SSTWriter` of a table to ingest.

        >>> 0 <= db.seed < 1 << 64
        True
        """
        return 0 if self.tree is None else self.tree.seed

    @property
    def readonly(self):
        """Whether the database was opened read-only.

        >>> lsmkv.open(db.path, "r").readonly
        True
        """
        return self.engine is not None and bool(self.engine.readonly)

    cdef int check_writable(self) except -1:
        handle_check(self.handle)       # also raises before _bind
        if not self.engine.writable:
            self.engine.fail_write()
        return 0

    cdef uint64_t default_expiry(self) noexcept:
        return clock_now(&self.handle.clock) + self.tree.default_ttl if self.tree.default_ttl else 0

    cdef int write_op(self, int op, object key, object value, uint64_t expiry, int sync) except -1:
        """Takes any bytes-like key and value (None for a delete). Copies the key: it is hashed now, and the write may wait."""
        cdef Py_buffer vb
        cdef bytes k = checked_key(key)
        if op == OP_DELETE:
            self.check_writable()
            return self.engine.write_one(self.tree, op, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), NULL, 0, 0, sync)
        get_bytes_view(value, &vb)
        try:
            if vb.len > MAX_VALUE:
                refuse_value(vb.len)
            self.check_writable()
            return put_value(self.engine, self.tree, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), <const char*>vb.buf, vb.len,
                             expiry or self.default_expiry(), sync)
        finally:
            PyBuffer_Release(&vb)

    cdef int put_from(self, object key, object file, object length, uint64_t expiry, int sync) except -1:
        cdef bytes k = checked_key(key)
        cdef Py_ssize_t n = index(length)
        if n < 0:
            raise ValueError("the length is negative")
        if n > MAX_VALUE:
            refuse_value(n)
        self.check_writable()
        return put_file(self.engine, self.tree, k, file, n, expiry or self.default_expiry(), sync)

    def put(self, key, value, *, sync=None, ttl=None, expire_at=None, length=None):
        """Set `key` to `value`.

        With `ttl` (seconds or timedelta) the entry expires that long after this call; with `expire_at` (seconds since 1970
        or datetime) at that time. No read returns an expired entry. Without either, `default_ttl` applies; `ttl=math.inf`
        never expires.

        With `sync=True` it returns once the write survives a power cut, with `sync=False` once it survives the death of
        the process. None means the option `sync`.

        With `length` the value is the next so many bytes of a binary file object. A large one goes to a value log (option
        `large_value_threshold`) piece by piece, in little memory.

        Raises `ReadOnlyError` if the database is read-only, `ValueError` if the key exceeds 65535 bytes, the value 1 GiB,
        or a TTL is not above 0, and `IOError` if the disk fails.

        >>> db.put(b"ada", b"1815")
        >>> db[b"ada"]
        b'1815'
        """
        cdef Py_ssize_t klen, vlen
        cdef int wish = sync_wish(sync)
        cdef uint64_t expiry = 0
        if ttl is not None or expire_at is not None:
            expiry = expiry_from(ttl, expire_at, &self.handle.clock)
        if length is not None:
            self.put_from(key, value, length, expiry, wish)
            return
        self.check_writable()
        if PyBytes_CheckExact(key) and PyBytes_CheckExact(value):
            klen = PyBytes_GET_SIZE(key)
            vlen = PyBytes_GET_SIZE(value)
            if klen > MAX_KEY:
                refuse_key(key, klen)
            if vlen > MAX_VALUE:
                refuse_value(vlen)
            if expiry == 0 and self.tree.default_ttl:
                expiry = self.default_expiry()
            put_value(self.engine, self.tree, PyBytes_AS_STRING(key), klen, PyBytes_AS_STRING(value), vlen, expiry, wish)
            return
        self.write_op(OP_PUT, key, value, expiry, wish)

    def delete(self, key, *, sync=None):
        """Delete `key`. A missing key is no error. `sync` and errors are those of `put`.

        >>> db.put(b"ada", b"1815")
        >>> db.delete(b"ada")
        """
        self.check_writable()
        self.write_op(OP_DELETE, key, None, 0, sync_wish(sync))

    def delete_range(self, start, stop, *, sync=None):
        """Delete the keys in [start, stop), with one small write. Delete nothing if stop <= start.

        `sync` and errors are those of `put`.

        >>> db.put(b"ada", b"1815")
        >>> db.delete_range(b"a", b"b")
        """
        cdef WriteBatch batch = WriteBatch()
        cdef int wish = sync_wish(sync)
        cdef bytes first = checked_key(start)
        cdef bytes last = checked_key(stop)
        self.check_writable()
        if first < last:
            batch_add(&batch.b, self.tree.keyspace, OP_DELETE_RANGE, first, len(first), last, len(last), 0)
        write_batch(self.engine, &batch.b, wish)

    def write(self, WriteBatch batch not None, *, sync=None):
        """Apply the operations of `batch` in their order: all of them or none, for readers and after a crash.

        The batch keeps its operations. `sync` and errors are those of `put`. A keyspace takes only batches of its own
        `write_batch`.

        >>> batch = lsmkv.WriteBatch()
        >>> batch.put(b"ada", b"1815")
        >>> db.write(batch)
        """
        cdef int wish = sync_wish(sync)
        self.check_writable()
        if batch.b.keyspaces and batch.handle != self.handle:
            raise ValueError("the batch names keyspaces of another database")
        if self.tree.keyspace and batch.keyspace != self.tree.keyspace:
            raise ValueError("the batch was not made by write_batch() of this keyspace")
        batch.b.writers += 1
        try:
            write_batch(self.engine, &batch.b, wish)
        finally:
            batch.b.writers -= 1

    def sync(self):
        """Sync the logs. Without logs, `DB.sync` flushes."""
        self.check_writable()
        self.engine.sync()

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self.delete(key)

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from lsmkv_ext.batch cimport OP_DELETE, OP_PUT, WriteBatch, refuse_key, refuse_value
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.bytes_like cimport as_bytes, get_bytes_view
from lsmkv_ext.port.handle cimport handle_check, handle_unref


cdef class Store(Reader):
    """A reader that also writes. `lsmkv.open` returns its subclass, `lsmkv.DB`."""

    def _bind(self, Engine engine not None):
        """Reads and writes go to `engine` from now on."""
        handle_unref(self.handle)
        self.handle = engine.handle
        self.handle.refs += 1
        self.engine = engine
        self.tree = engine.tree

    @property
    def _engine(self):
        return self.engine

    def _check_open(self):
        handle_check(self.handle)

    @property
    def closed(self):
        """Whether the database is closed."""
        return bool(self.handle.closed)

    @property
    def path(self):
        """The database's folder."""
        return None if self.tree is None else self.tree.path

    @property
    def seed(self):
        """The seed of the database's hashes."""
        return 0 if self.tree is None else self.tree.seed

    @property
    def readonly(self):
        """Whether the database was opened for reading only."""
        return self.engine is not None and bool(self.engine.readonly)

    cdef int check_writable(self) except -1:
        handle_check(self.handle)       # also raises before _bind
        if not self.engine.writable:
            self.engine.fail_write()
        return 0

    cdef int write_op(self, int op, object key, object value, object sync) except -1:
        """Any bytes-like key and value (None for a delete). The key as it is now: it is hashed before the write may wait."""
        cdef Py_buffer vb
        cdef bytes k = as_bytes(key)
        if PyBytes_GET_SIZE(k) > MAX_KEY:
            refuse_key(key, PyBytes_GET_SIZE(k))
        if op == OP_DELETE:
            return self.engine.write_one(op, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), NULL, 0, sync)
        get_bytes_view(value, &vb)
        try:
            if vb.len > MAX_VALUE:
                refuse_value(vb.len)
            return self.engine.write_one(op, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), <const char*>vb.buf, vb.len, sync)
        finally:
            PyBuffer_Release(&vb)

    def put(self, key, value, *, sync=None):
        """Stores value under key. sync=True returns once it survives a power cut; the default survives kill -9."""
        cdef Py_ssize_t klen, vlen
        self.check_writable()
        if PyBytes_CheckExact(key) and PyBytes_CheckExact(value):
            klen = PyBytes_GET_SIZE(key)
            vlen = PyBytes_GET_SIZE(value)
            if klen > MAX_KEY:
                refuse_key(key, klen)
            if vlen > MAX_VALUE:
                refuse_value(vlen)
            self.engine.write_one(OP_PUT, PyBytes_AS_STRING(key), klen, PyBytes_AS_STRING(value), vlen, sync)
            return
        self.write_op(OP_PUT, key, value, sync)

    def delete(self, key, *, sync=None):
        """Removes key; no error where it is absent."""
        self.check_writable()
        self.write_op(OP_DELETE, key, None, sync)

    def delete_range(self, start, stop, *, sync=None):
        """Removes every key with start <= key < stop, at the cost of one small write."""
        cdef WriteBatch batch = WriteBatch(self)
        self.check_writable()
        batch.delete_range(start, stop)
        if as_bytes(start) >= as_bytes(stop):
            batch.clear()
        self.engine.write_payload(&batch.b, sync)

    def write(self, WriteBatch batch not None, *, sync=None):
        """Writes a batch: all of it or nothing, for readers and after a crash."""
        self.check_writable()
        batch.b.writers += 1
        try:
            self.engine.write_payload(&batch.b, sync)
        finally:
            batch.b.writers -= 1

    def sync(self):
        """Everything written so far survives a power cut once this returns."""
        self.check_writable()
        self.engine.sync()

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def counters(self):
        """The raw counters as a dict; `lsmkv.stats.metrics` makes sense of them."""
        handle_check(self.handle)
        return self.engine.counters()

    def reset_counters(self):
        """Set the raw counters to zero."""
        handle_check(self.handle)
        self.engine.reset_counters()

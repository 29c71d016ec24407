from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from lsmkv_ext.port.coding cimport put_varint, varint_size
from lsmkv_ext.memtable.arena cimport entry_footprint
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.batch cimport OP_DELETE, OP_DELETE_RANGE, OP_PUT

from lsmkv_ext.errors import OptionError


cdef int refuse_key(object key, Py_ssize_t n) except -1:
    raise ValueError(f"a key is at most {MAX_KEY} bytes long, this one has {n}")


cdef int refuse_value(Py_ssize_t n) except -1:
    raise ValueError(f"a value is at most {MAX_VALUE} bytes long (1 GiB), this one has {n}")


cdef int check_idle(const BatchC* b) except -1:
    if b.writers:
        raise BufferError("the batch is being written by another thread")
    return 0


cdef int refuse_sync() except -1:
    raise OptionError("this database has no log to sync (wal=None): flush() or sync() makes its writes durable")


cdef size_t encoded_size(int op, size_t klen, size_t vlen) noexcept nogil:
    if op == OP_DELETE:
        return 1 + varint_size(klen) + klen
    return 1 + varint_size(klen) + klen + varint_size(vlen) + vlen


cdef char* encode_op(char* p, int op, const char* key, size_t klen, const char* value, size_t vlen) noexcept nogil:
    p[0] = <char>op
    p = put_varint(p + 1, klen)
    memcpy(p, key, klen)
    p += klen
    if op != OP_DELETE:
        p = put_varint(p, vlen)
        memcpy(p, value, vlen)
        p += vlen
    return p


cdef int batch_add(BatchC* b, int op, const char* key, size_t klen, const char* value, size_t vlen) except -1:
    cdef size_t n = encoded_size(op, klen, vlen)
    cdef size_t capacity
    cdef char* grown
    check_idle(b)
    if b.count == MAX_BATCH_COUNT or b.used + n > MAX_BATCH_BYTES:
        raise ValueError(f"a batch holds at most {MAX_BATCH_COUNT} operations and {MAX_BATCH_BYTES} bytes")
    if b.capacity - b.used < n:
        capacity = b.capacity * 2 + n + 256
        grown = <char*>realloc(b.data, capacity)
        if grown == NULL:
            raise MemoryError("write batch")
        b.data = grown
        b.capacity = capacity
    encode_op(b.data + b.used, op, key, klen, value, vlen)
    b.used += n
    b.count += 1
    b.deletes += op != OP_PUT
    b.footprint += entry_footprint(klen, vlen)
    return 0


cdef int add_objects(BatchC* b, int op, object key, object value) except -1:
    """Two bytes-like objects (value is None for a delete)."""
    cdef Py_buffer kb
    cdef Py_buffer vb
    cdef size_t limit = MAX_KEY if op == OP_DELETE_RANGE else MAX_VALUE
    if isinstance(key, str) or isinstance(value, str):
        raise TypeError("keys and values are bytes, not str: encode it first")
    PyObject_GetBuffer(key, &kb, PyBUF_SIMPLE)
    try:
        if kb.len > MAX_KEY:
            refuse_key(key, kb.len)
        if value is None:
            return batch_add(b, op, <const char*>kb.buf, kb.len, NULL, 0)
        PyObject_GetBuffer(value, &vb, PyBUF_SIMPLE)
        try:
            if <size_t>vb.len > limit:
                if op == OP_DELETE_RANGE:
                    refuse_key(value, vb.len)
                refuse_value(vb.len)
            return batch_add(b, op, <const char*>kb.buf, kb.len, <const char*>vb.buf, vb.len)
        finally:
            PyBuffer_Release(&vb)
    finally:
        PyBuffer_Release(&kb)


cdef class WriteBatch:
    """Operations that become visible, and durable, all together or not at all.

    >>> with db.write_batch() as batch:        # doctest: +SKIP
    ...     batch.put(b"a", b"1")
    ...     batch.delete(b"b")
    """

    def __init__(self, engine=None, *, bint transaction=True, sync=None):
        self.engine = engine
        self.transaction = transaction
        self.sync = sync

    def __dealloc__(self):
        free(self.b.data)

    def put(self, key, value):
        cdef bytes k, v
        if type(key) is bytes and type(value) is bytes:
            k = <bytes>key
            v = <bytes>value
            if len(k) > MAX_KEY:
                refuse_key(key, len(k))
            if len(v) > MAX_VALUE:
                refuse_value(len(v))
            batch_add(&self.b, OP_PUT, k, len(k), v, len(v))
            return
        if value is None:
            raise TypeError("a value is bytes-like, not None")
        add_objects(&self.b, OP_PUT, key, value)

    def delete(self, key):
        add_objects(&self.b, OP_DELETE, key, None)

    def delete_range(self, start, stop):
        """Deletes start <= key < stop; nothing where stop <= start."""
        if start is None or stop is None:
            raise TypeError("delete_range needs two bytes-like bounds")
        add_objects(&self.b, OP_DELETE_RANGE, start, stop)

    def clear(self):
        """Forgets every operation."""
        check_idle(&self.b)
        self.b.used = 0
        self.b.count = 0
        self.b.deletes = 0
        self.b.footprint = 0

    def append(self, WriteBatch other not None):
        """Adds another batch's operations behind these."""
        cdef size_t need = self.b.used + other.b.used
        cdef size_t n = other.b.used
        cdef char* grown
        check_idle(&self.b)
        if need > MAX_BATCH_BYTES or self.b.count + other.b.count > MAX_BATCH_COUNT:
            raise ValueError(f"a batch holds at most {MAX_BATCH_COUNT} operations and {MAX_BATCH_BYTES} bytes")
        if n == 0:
            return
        if need > self.b.capacity:
            grown = <char*>realloc(self.b.data, need)
            if grown == NULL:
                raise MemoryError("write batch")
            self.b.data = grown
            self.b.capacity = need
        memcpy(self.b.data + self.b.used, other.b.data, n)
        self.b.used += n
        self.b.count += other.b.count
        self.b.deletes += other.b.deletes
        self.b.footprint += other.b.footprint

    def write(self, *, sync=None):
        """Writes the operations gathered so far, then forgets them."""
        if self.engine is None:
            raise ValueError("this batch belongs to no database: use db.write(batch)")
        check_idle(&self.b)
        self.engine.write(self, sync=self.sync if sync is None else sync)
        self.clear()

    def __len__(self):
        return self.b.count

    @property
    def size_bytes(self):
        return self.b.used

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        self.delete(key)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        # As in plyvel: with transaction=False what was gathered before an exception is written all the same.
        if exc_type is None or not self.transaction:
            self.write()
        else:
            self.clear()

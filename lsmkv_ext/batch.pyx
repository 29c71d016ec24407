from cpython.buffer cimport PyBuffer_Release
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.bytes_like cimport as_bytes, get_bytes_view
from lsmkv_ext.port.handle cimport Dependent, handle_check, handle_unref
from lsmkv_ext.port.status cimport Status, fail_corrupt, raise_status, status_clear
from lsmkv_ext.port.wall_clock cimport ClockC

from lsmkv_ext.errors import OptionError

cdef ClockC system_clock        # for batches that belong to no database

cdef dict OP_NAMES = {OP_PUT: "put", OP_DELETE: "delete", OP_DELETE_RANGE: "delete_range", OP_PUT_POINTER: "put_pointer"}


# --- reading operations ----------------------------------------------------------------------------------------------

cdef const char* ops_problem(const char* payload, size_t n, uint32_t count, int allowed) noexcept nogil:
    cdef OpCursor ops
    cdef Operation op
    cdef const char* problem = ops_begin(&ops, payload, n, count, 0, allowed)
    while problem == NULL and ops.left:
        problem = ops_next(&ops, &op)
    return problem


cdef tuple op_tuple(const Operation* op):
    return OP_NAMES[op.op], op.key[:op.klen], None if op.value == NULL else op.value[:op.vlen], op.seq, op.keyspace, op.expiry


def decode_operations(bytes payload not None, uint32_t count, uint64_t first_seq):
    """Return [(name, key, value or None, seq, keyspace, expiry or 0)] of a log record's payload.

    Raises CorruptionError if it does not hold exactly `count` operations.
    """
    cdef OpCursor ops
    cdef Operation op
    cdef Status st
    cdef const char* problem = ops_begin(&ops, payload, len(payload), count, first_seq, ANY_OPERATION)
    out = []
    while problem == NULL and ops.left:
        problem = ops_next(&ops, &op)
        if problem == NULL:
            out.append(op_tuple(&op))
    if problem != NULL:
        status_clear(&st)
        fail_corrupt(&st, problem, 0, ops.p - <const char*>payload)
        raise_status(&st, None)
    return out


# --- collecting them -------------------------------------------------------------------------------------------------

cdef int refuse_key(object key, Py_ssize_t n) except -1:
    raise ValueError(f"a key is at most {MAX_KEY} bytes long, this one has {n}")


cdef int refuse_value(Py_ssize_t n) except -1:
    raise ValueError(f"a value is at most {MAX_VALUE} bytes long (1 GiB), this one has {n}")


cdef bytes checked_key(object key):
    cdef bytes k = as_bytes(key)
    if len(k) > MAX_KEY:
        refuse_key(key, len(k))
    return k


cdef int check_idle(const BatchC* b) except -1:
    if b.writers:
        raise BufferError("the batch is being written by another thread")
    return 0


cdef int refuse_sync() except -1:
    raise OptionError("this database has no log to sync (wal=None): flush() or sync() makes its writes durable")


cdef int batch_reserve(BatchC* b, uint32_t count, size_t n, size_t capacity) except -1:
    cdef char* grown
    check_idle(b)
    if count > MAX_BATCH_COUNT - b.count or n > MAX_BATCH_BYTES - b.used:
        raise ValueError(f"a batch holds at most {MAX_BATCH_COUNT} operations and {MAX_BATCH_BYTES} bytes")
    if b.capacity - b.used < n:
        capacity = min(capacity, <size_t>MAX_BATCH_BYTES)
        grown = <char*>realloc(b.data, capacity)
        if grown == NULL:
            raise MemoryError("write batch")
        b.data = grown
        b.capacity = capacity
    return 0


cdef int batch_add(BatchC* b, uint32_t keyspace, int op, const char* key, size_t klen, const char* value,
                   size_t vlen, uint64_t expiry) except -1:
    cdef size_t n = op_size(op, keyspace, klen, vlen, expiry)
    if b.writers or b.count == MAX_BATCH_COUNT or b.capacity - b.used < n:
        batch_reserve(b, 1, n, b.capacity * 2 + n + 256)
    batch_add_reserved(b, keyspace, op, key, klen, value, vlen, expiry)
    return 0


cdef void batch_clear(BatchC* b) noexcept:
    b.used = 0
    b.count = 0
    b.deletes = 0
    b.keyspaces = False
    b.expiries = False
    b.largest = 0


cdef int add_objects(BatchC* b, uint32_t keyspace, int op, object key, object value, uint64_t expiry) except -1:
    """Adds an operation on two bytes-like objects; value is None for a delete."""
    cdef Py_buffer kb
    cdef Py_buffer vb
    cdef size_t limit = MAX_KEY if op == OP_DELETE_RANGE else MAX_VALUE
    if isinstance(key, str) or isinstance(value, str):
        raise TypeError("keys and values are bytes, not str: encode it first")
    get_bytes_view(key, &kb)
    try:
        if kb.len > MAX_KEY:
            refuse_key(key, kb.len)
        if value is None:
            return batch_add(b, keyspace, op, <const char*>kb.buf, kb.len, NULL, 0, 0)
        get_bytes_view(value, &vb)
        try:
            if <size_t>vb.len > limit:
                if op == OP_DELETE_RANGE:
                    refuse_key(value, vb.len)
                refuse_value(vb.len)
            return batch_add(b, keyspace, op, <const char*>kb.buf, kb.len, <const char*>vb.buf, vb.len, expiry)
        finally:
            PyBuffer_Release(&vb)
    finally:
        PyBuffer_Release(&kb)


cdef int join_database(WriteBatch batch, HandleC* handle) except -1:
    """Called when an operation names a keyspace: ids mean something in one database only."""
    if batch.handle == NULL:
        batch.handle = handle
        handle.refs += 1
    elif batch.handle != handle:
        raise ValueError("the keyspace is of another database than the batch")
    return 0


cdef uint32_t keyspace_of(WriteBatch batch, object keyspace) except? 0:
    """The id of `keyspace`, a Keyspace or None. The batch belongs to its database from now on."""
    cdef HandleC* handle
    if keyspace is None:
        return batch.keyspace
    number = getattr(keyspace, "keyspace_id", None)
    if number is None or not isinstance(keyspace, Dependent):
        raise TypeError(f"keyspace must be a Keyspace, not {type(keyspace).__name__}")
    handle = (<Dependent>keyspace).handle
    handle_check(handle)
    join_database(batch, handle)
    return number


cdef inline int check_open(WriteBatch batch) except -1:
    return 0 if batch.handle == NULL else handle_check(batch.handle)


cdef class WriteBatch:
    """WriteBatch(engine=None, *, transaction=True, sync=None)\n--\n\n\
    A list of operations that `DB.write` applies together or not at all.

    `DB.write_batch` returns one that belongs to the database. As a context manager it writes at the end of the block;
    if the block raises, it writes nothing, or with `transaction=False` the operations so far. `sync` is passed on to
    the write.

    >>> with db.write_batch() as batch:
    ...     batch.put(b"ada", b"1815")
    ...     batch.delete(b"bob")
    """

    def __init__(self, engine=None, *, bint transaction=True, sync=None):
        self.engine = engine
        self.transaction = transaction
        self.sync = sync
        handle_unref(self.handle)
        self.handle = NULL
        if isinstance(engine, Dependent):
            self.handle = (<Dependent>engine).handle
            self.handle.refs += 1
            self.keyspace = engine.keyspace_id

    def __dealloc__(self):
        handle_unref(self.handle)
        free(self.b.data)

    def __repr__(self):
        return f"<lsmkv.WriteBatch of {self.b.count:,} operations, {self.b.used:,} bytes>"

    def put(self, key, value, *, keyspace=None, ttl=None, expire_at=None):
        """Add a put, to `keyspace` or to the one that the batch was made by. `ttl` and `expire_at` are those of `DB.put`;
        a TTL counts from this call.

        Raises `ValueError` if the key exceeds 65535 bytes, the value 1 GiB, or the batch its limit.

        >>> batch = lsmkv.WriteBatch()
        >>> batch.put(b"ada", b"1815")
        >>> batch.put(b"ada", b"London", keyspace=db.keyspace("cities"))
        """
        cdef bytes k, v
        cdef uint32_t space = keyspace_of(self, keyspace)
        cdef uint64_t expiry = 0
        if ttl is not None or expire_at is not None:
            expiry = expiry_from(ttl, expire_at, &system_clock if self.handle == NULL else &self.handle.clock)
        check_open(self)
        if type(key) is bytes and type(value) is bytes:
            k = <bytes>key
            v = <bytes>value
            if len(k) > MAX_KEY:
                refuse_key(key, len(k))
            if len(v) > MAX_VALUE:
                refuse_value(len(v))
            batch_add(&self.b, space, OP_PUT, k, len(k), v, len(v), expiry)
            return
        if value is None:
            raise TypeError("a value is bytes-like, not None")
        add_objects(&self.b, space, OP_PUT, key, value, expiry)

    def delete(self, key, *, keyspace=None):
        """Add a delete. A missing key is no error. `keyspace` is that of `put`.

        >>> batch = lsmkv.WriteBatch()
        >>> batch.delete(b"ada")
        """
        cdef uint32_t space = keyspace_of(self, keyspace)
        check_open(self)
        add_objects(&self.b, space, OP_DELETE, key, None, 0)

    def delete_range(self, start, stop, *, keyspace=None):
        """Add a delete of the keys in [start, stop). It deletes nothing if stop <= start. `keyspace` is that of `put`.

        >>> batch = lsmkv.WriteBatch()
        >>> batch.delete_range(b"a", b"b")
        """
        if start is None or stop is None:
            raise TypeError("delete_range needs two bytes-like bounds")
        cdef uint32_t space = keyspace_of(self, keyspace)
        check_open(self)
        add_objects(&self.b, space, OP_DELETE_RANGE, start, stop, 0)

    def clear(self):
        """Drop all operations. Raises `BufferError` while another thread writes the batch.

        >>> batch = lsmkv.WriteBatch()
        >>> batch.put(b"ada", b"1815")
        >>> batch.clear()
        """
        check_idle(&self.b)
        batch_clear(&self.b)

    def append(self, WriteBatch other not None):
        """Add the operations of another batch behind these.

        >>> first, second = lsmkv.WriteBatch(), lsmkv.WriteBatch()
        >>> second.put(b"ada", b"1815")
        >>> first.append(second)
        """
        cdef size_t n = other.b.used
        check_open(self)
        if other.b.keyspaces:
            join_database(self, other.handle)
        batch_reserve(&self.b, other.b.count, n, self.b.used + n)
        if n == 0:
            return
        memcpy(self.b.data + self.b.used, other.b.data, n)
        self.b.used += n
        self.b.count += other.b.count
        self.b.deletes += other.b.deletes
        self.b.keyspaces |= other.b.keyspaces
        self.b.expiries |= other.b.expiries
        self.b.largest = max(self.b.largest, other.b.largest)

    def write(self, *, sync=None):
        """Write the operations to the batch's database and drop them. If the write fails, the batch keeps them.

        Raises `ValueError` if the batch belongs to no database, and as `DB.write` does.

        >>> batch = db.write_batch()
        >>> batch.put(b"ada", b"1815")
        >>> batch.write(sync=True)
        """
        if self.engine is None:
            raise ValueError("this batch belongs to no database: use db.write(batch)")
        check_idle(&self.b)
        self.engine.write(self, sync=self.sync if sync is None else sync)
        self.clear()

    def __len__(self):
        return self.b.count

    @property
    def size_bytes(self):
        """The bytes of the operations in the log.

        >>> lsmkv.WriteBatch().size_bytes
        0
        """
        return self.b.used

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        self.delete(key)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, traceback):
        # As in plyvel: with transaction=False the operations collected before an exception are written.
        if exc_type is None or not self.transaction:
            self.write()
        else:
            self.clear()

from lsmkv_ext.batch cimport (
    ANY_OPERATION, LOGGED_POINTER, OP_PUT, OP_PUT_POINTER, OpCursor, Operation, WriteBatch, batch_add, ops_begin, ops_next,
    refuse_sync,
)
from lsmkv_ext.engine cimport LARGE_BATCH, SYNC_YES, key_unchanged, wants_sync
from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport put_u64
from lsmkv_ext.port.section cimport section_enter, section_leave
from lsmkv_ext.port.status cimport ST_OK, Status, raise_status, status_clear
from lsmkv_ext.tree cimport refuse_dropped
from lsmkv_ext.values.format cimport ValuePointer, pointer_encode, value_padded
from lsmkv_ext.values.writer cimport ValueWriter, read_exactly, value_append

cdef uint64_t _shortest_stream = 1 << 20    # bytes; a shorter value is read first


def set_shortest_stream(uint64_t length):
    """Only tests change it: their values are short."""
    global _shortest_stream
    _shortest_stream = length


cdef int begin(Engine engine, uint64_t footprint, int sync) except -1:
    """Takes the turn, because an append may release the GIL."""
    if sync == SYNC_YES and engine.log is None:
        refuse_sync()
    if not engine.format_2:
        engine.upgrade()
    engine.check_writable()
    engine.begin_write(footprint, True, False)
    engine.handle.inflight += 1
    section_enter()
    return 0


cdef int end(Engine engine) noexcept:
    section_leave()
    engine.handle.inflight -= 1
    return engine.end_turn()


cdef int open_values(Engine engine) except -1:
    """Makes sure that there is a value log. The caller holds the turn."""
    cdef ValueWriter values
    if engine.values is None:
        values = engine.on_large_value()
        engine.check_writable()
        if engine.log is not None:
            engine.log.attach_values(values)
        engine.values = values
    return 0


cdef int append_value(Engine engine, Tree tree, const char* value, size_t vlen, char* pointer) except -1:
    """Appends a value to the value log, and writes the LOGGED_POINTER bytes of its pointer."""
    cdef ValueWriter values = engine.values
    cdef int compression = tree.value_compression
    cdef ValuePointer p
    cdef Status st
    tree.active.hold(values.log)
    status_clear(&st)
    if vlen >= LARGE_BATCH:
        with nogil:
            value_append(values.c, value, vlen, compression, &p, &st)
    else:
        value_append(values.c, value, vlen, compression, &p, &st)
    if st.code != ST_OK:
        raise_status(&st, values.path)
    pointer_encode(&p, pointer)
    put_u64(pointer + POINTER_SIZE, values.c.identity)
    engine.writes.value_log_bytes += value_padded(p.stored, p.raw)
    return 0


cdef int add_put(WriteBatch out, Engine engine, Tree tree, const char* key, size_t klen, const char* value, size_t vlen,
                 uint64_t expiry) except -1:
    """Appends the value and adds the put of its pointer to `out`."""
    cdef char pointer[LOGGED_POINTER]
    append_value(engine, tree, value, vlen, pointer)
    return batch_add(&out.b, tree.keyspace, OP_PUT_POINTER, key, klen, pointer, LOGGED_POINTER, expiry)


cdef WriteBatch with_pointers(Engine engine, const BatchC* b):
    """A copy of the batch whose large values are in the value log."""
    cdef WriteBatch out = WriteBatch()
    cdef OpCursor ops
    cdef Operation op
    cdef Tree tree
    if b.keyspaces:
        engine.check_keyspaces(b)
    ops_begin(&ops, b.data, b.used, b.count, 0, ANY_OPERATION)
    while ops.left:
        ops_next(&ops, &op)     # never fails: a batch encodes its own operations
        tree = engine.forest.tree_of(op.keyspace)
        if op.op == OP_PUT and op.vlen >= tree.large_value:
            add_put(out, engine, tree, op.key, op.klen, op.value, op.vlen, op.expiry)
        else:
            batch_add(&out.b, op.keyspace, op.op, op.key, op.klen, op.value, op.vlen, op.expiry)
    return out


cdef int write_pointers(Engine engine, WriteBatch batch, uint64_t* logged) except -1:
    """Writes a batch whose values are in the value log. Syncs and rotations of both go together."""
    engine.check_writable()
    engine.apply_payload(&batch.b, False, logged)
    if engine.values.c.offset >= engine.value_capacity:
        engine.buffered = max(engine.buffered, engine.capacity)     # a full value log counts as full memtables
    return 0


cdef int put_large(Engine engine, Tree tree, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                   int sync, Seen seen) except -1:
    cdef WriteBatch batch
    cdef uint64_t hash
    cdef uint64_t logged = 0
    if vlen < LARGE_BATCH and wants_sync(engine, sync):
        return engine.write_one(tree, OP_PUT, key, klen, value, vlen, expiry, sync, seen)      # one sync instead of two
    batch = WriteBatch()
    begin(engine, klen + vlen, sync)
    try:
        hash = xxh3(key, klen, engine.seed)
        if seen is not None and not key_unchanged(tree, key, klen, hash, seen):
            return 0    # before the append, so that it leaves no garbage
        open_values(engine)
        if tree.state is None:
            refuse_dropped()
        add_put(batch, engine, tree, key, klen, value, vlen, expiry)
        # The turn excludes other writers. A flush may change the state: then the caller reads again.
        if seen is not None and not key_unchanged(tree, key, klen, hash, seen):
            return 0
        write_pointers(engine, batch, &logged)
    finally:
        end(engine)
    engine.writes.puts += 1
    engine.writes.bytes_written += klen + vlen
    if wants_sync(engine, sync):
        engine.sync_to(logged)
    return 1


cdef int write_large(Engine engine, const BatchC* b, int sync, WriteCondition condition) except -1:
    cdef WriteBatch expiring, batch
    cdef uint64_t logged = 0
    if b.used < LARGE_BATCH and wants_sync(engine, sync):
        return engine.write_payload(b, sync, condition)     # one sync instead of two
    if engine.default_ttls:
        expiring = engine.with_default_expiries(b)
        b = &expiring.b
    begin(engine, b.used, sync)
    try:
        if condition is not None and not condition.holds():
            return 0    # before the appends, so that they leave no garbage
        open_values(engine)
        batch = with_pointers(engine, b)
        if condition is not None and not condition.holds():
            return 0
        write_pointers(engine, batch, &logged)
    finally:
        end(engine)
    engine.count_batch(b)
    if wants_sync(engine, sync):
        engine.sync_to(logged)
    return 1


cdef int put_file(Engine engine, Tree tree, bytes key, object file, uint64_t length, uint64_t expiry, int sync) except -1:
    cdef bytes value
    cdef ValueWriter values
    if length >= _shortest_stream and length >= tree.large_value:
        if not engine.format_2:
            engine.upgrade()
        engine.check_writable()
        values = engine.on_streamed_value()
        value = values.stream(file, length, tree.value_compression)
        values.seal()
        return put_streamed(engine, tree, key, values, value, length, expiry, sync)
    value = read_exactly(file, length)
    engine.check_writable()
    return put_value(engine, tree, key, len(key), value, length, expiry, sync)


cdef int put_streamed(Engine engine, Tree tree, bytes key, ValueWriter values, bytes pointer, uint64_t length, uint64_t expiry,
                      int sync) except -1:
    """Writes the put of a value that is on disk."""
    cdef WriteBatch batch = WriteBatch()
    cdef bytes logged_pointer = pointer + values.log.identity.to_bytes(8, "little")
    cdef uint64_t logged = 0
    batch_add(&batch.b, tree.keyspace, OP_PUT_POINTER, key, len(key), logged_pointer, LOGGED_POINTER, expiry)
    begin(engine, len(key) + length, sync)
    try:
        engine.check_writable()
        if tree.state is None:
            refuse_dropped()
        tree.active.hold(values.log)
        engine.check_writable()
        engine.apply_payload(&batch.b, False, &logged)
        if engine.value_capacity != <uint64_t>-1:
            # Recovery reads the values of all unsynced records: so many bytes in them are full memtables.
            engine.buffered += <uint64_t>(<double>engine.capacity * length / engine.value_capacity)
    finally:
        end(engine)
    engine.writes.value_log_bytes += values.c.offset
    engine.writes.puts += 1
    engine.writes.bytes_written += len(key) + length
    if wants_sync(engine, sync):
        engine.sync_to(logged)
    return 1

"""Calls for an event loop: each does its work at once, or nothing.

A read that would wait for the disk returns WOULD_BLOCK. A write that would wait for the log, the disk, its turn or another
thread returns False; the caller then makes the ordinary call in a thread of its own.

A write keeps the GIL from its first check to the end, so what it has checked still holds when it acts. A read does too, but for
decompression where the C functions are not found: the Python functions release the GIL.

One that finds the database closed, or its argument wrong, raises what the ordinary call raises.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from lsmkv_ext.batch cimport OP_DELETE, OP_PUT, WriteBatch, op_size
from lsmkv_ext.cache.row_cache cimport RowCacheC, row_cache_find, row_cache_offer, row_cache_worth_probing
from lsmkv_ext.engine cimport LARGE_BATCH, Engine, sync_wish, wants_sync
from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.large_write cimport put_value, write_batch
from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.status cimport ST_IO, ST_OK, Status, status_clear
from lsmkv_ext.port.wall_clock cimport Moment
from lsmkv_ext.read.counters cimport Counters, counters_add, counters_start, lsm_count
from lsmkv_ext.read.lookup cimport ABSENT, FOUND, POINTED, Lookup, prefetch_lookup, probe_memtables, probe_tables
from lsmkv_ext.read.read_state cimport ReadState, raise_read
from lsmkv_ext.read.values cimport find_value, read_value
from lsmkv_ext.reader cimport Reader
from lsmkv_ext.store cimport Store
from lsmkv_ext.table.reader cimport ReadContext, table_unpin
from lsmkv_ext.tree cimport Tree
from lsmkv_ext.values.format cimport ValuePointer
from lsmkv_ext.values.reader cimport ValueLogC
from lsmkv_ext.wal.writer cimport log_has_room

cdef enum:
    SHORT_VALUE = 64 << 10      # bytes; a longer one takes too long to read and check


class WouldBlock:
    """The answer of a read that would have to wait."""

    def __repr__(self):
        return "WOULD_BLOCK"


WOULD_BLOCK = WouldBlock()

ctypedef struct Attempt:        # counts of reads, which are dropped if one of them would block
    Counters lookups
    ReadContext rc
    Status st


# --- reads -----------------------------------------------------------------------------------------------------------------

cdef int begin_attempt(Attempt* a, Reader reader) noexcept:
    counters_start(&a.lookups, &reader.tree.lookups)
    memset(&a.rc, 0, sizeof(ReadContext))
    a.rc.gil_held = True
    a.rc.no_wait = True
    a.rc.fill_cache = True
    status_clear(&a.st)
    return 0


cdef int end_attempt(const Attempt* a, Reader reader) noexcept:
    counters_add(&reader.tree.lookups, &a.lookups)
    reader.handle.reads.cache_hits += a.rc.cache_hits
    reader.handle.reads.disk_reads += a.rc.disk_reads
    reader.handle.reads.disk_bytes += a.rc.disk_bytes
    reader.handle.reads.disk_ns += a.rc.disk_ns
    reader.handle.reads.decompressed += a.rc.decompressed
    return 0


cdef object failed(ReadState state, const Attempt* a, Reader reader):
    if a.st.code == ST_IO and a.st.err == EAGAIN:
        return WOULD_BLOCK
    raise_read(state, &a.st, reader.tree.path)
    return None


cdef object short_value(Reader reader, ReadState state, const Lookup* q, Attempt* a):
    """The value that an entry points to."""
    cdef ValuePointer p
    cdef ValueLogC* log = find_value(&state.c, q.pointer, &p, &a.st)
    cdef object value = None
    if log != NULL:
        if p.raw > SHORT_VALUE:
            return WOULD_BLOCK
        value = PyBytes_FromStringAndSize(NULL, p.raw)
        reader.handle.inflight += 1
        read_value(log, &p, PyBytes_AS_STRING(value), &a.rc, &a.st)
        reader.handle.inflight -= 1
    return value if a.st.code == ST_OK else failed(state, a, reader)


cdef object from_tables(Reader reader, ReadState state, Lookup* q, bytes key, bint offer, object default, Attempt* a):
    cdef object value
    cdef RowCacheC* rows = &reader.tree.row_cache.c
    cdef uint32_t generation = reader.tree.generation
    reader.handle.inflight += 1
    probe_tables(&state.c, q, &a.rc, &a.lookups, &a.st)
    reader.handle.inflight -= 1
    if a.st.code != ST_OK:
        return failed(state, a, reader)
    if not q.found:
        return default
    if q.found == POINTED:
        table_unpin(q.owner, q.pinned)
        return short_value(reader, state, q, a)
    value = PyBytes_FromStringAndSize(q.value, q.vlen)
    table_unpin(q.owner, q.pinned)
    # The levels may be others by now, or the database closed. A row has no expiry.
    if offer and generation == reader.tree.generation and rows.sets != NULL and q.expiry == 0:
        row_cache_offer(rows, q.hash ^ reader.tree.row_salt, key, value, generation)
    return value


cdef object lookup_now(Reader reader, ReadState state, uint64_t snapshot, bytes key, object default, Attempt* a):
    cdef Lookup q
    cdef Moment moment
    cdef RowCacheC* rows = &reader.tree.row_cache.c
    cdef int answer
    cdef bint probed
    cdef void* row
    moment.clock = &reader.handle.clock
    moment.now = reader.held_now
    q.moment = &moment
    q.expiry = 0
    q.key = PyBytes_AS_STRING(key)
    q.klen = PyBytes_GET_SIZE(key)
    q.trace = NULL
    q.hash = xxh3(q.key, q.klen, state.c.seed)
    q.snapshot = snapshot
    q.skip_bottom_filter = False
    prefetch_lookup(&state.c, &q, True)
    answer = probe_memtables(&state.c, &q, &a.lookups)
    if answer == FOUND:
        return short_value(reader, state, &q, a) if q.found == POINTED else PyBytes_FromStringAndSize(q.value, q.vlen)
    if answer != ABSENT:
        return default
    probed = rows.sets != NULL and state is reader.tree.state and row_cache_worth_probing(rows)
    if probed:
        row = row_cache_find(rows, q.hash ^ reader.tree.row_salt, q.key, q.klen, reader.tree.generation)
        if row != NULL:
            lsm_count(&a.lookups.row_hits, 1)
            lsm_count(&a.lookups.gets_found, 1)
            return <object>row
    return from_tables(reader, state, &q, key, probed, default, a)


def try_get(Reader reader not None, bytes key not None, default=None):
    """As `Reader.get`; WOULD_BLOCK if it would wait. It reads one state, whatever other calls do meanwhile."""
    cdef Attempt a
    cdef uint64_t snapshot = 0
    cdef ReadState state = reader.open_state(&snapshot)
    cdef object value
    begin_attempt(&a, reader)
    value = lookup_now(reader, state, snapshot, key, default, &a)
    if value is not WOULD_BLOCK:
        end_attempt(&a, reader)
    return value


def reads_at_once(Reader reader not None, bytes key not None):
    """Whether a read of the key would not wait. It counts as no read."""
    cdef Attempt a
    cdef uint64_t snapshot = 0
    cdef ReadState state = reader.open_state(&snapshot)
    begin_attempt(&a, reader)
    return lookup_now(reader, state, snapshot, key, None, &a) is not WOULD_BLOCK


def try_multi_get(Reader reader not None, list keys not None, default=None):
    """As `Reader.multi_get`, of keys that are bytes; WOULD_BLOCK if one of them would wait."""
    cdef Attempt a
    cdef uint64_t snapshot = 0
    cdef Py_ssize_t i
    cdef list values = [default] * len(keys)
    cdef ReadState state = reader.open_state(&snapshot)
    begin_attempt(&a, reader)
    for i in range(len(keys)):
        values[i] = lookup_now(reader, state, snapshot, <bytes?>keys[i], default, &a)
        if values[i] is WOULD_BLOCK:
            return WOULD_BLOCK
    end_attempt(&a, reader)
    return values


# --- writes ----------------------------------------------------------------------------------------------------------------

cdef bint must_wait(Engine engine, size_t footprint, size_t logged, int sync) noexcept:
    """Whether a short write of so many bytes, `logged` in the log, could wait: `Engine.begin_write`, `log_reserve` and a sync."""
    if engine.held or engine.turn.drawn != engine.turn.served or engine.buffered >= engine.capacity:
        return True
    if footprint >= LARGE_BATCH or not engine.format_2 or wants_sync(engine, sync):
        return True
    return engine.log is not None and not log_has_room(engine.log.c, logged)


def try_put(Store store not None, bytes key not None, bytes value not None, *, sync=None, ttl=None, expire_at=None):
    """As `Store.put`. False: nothing was done, because it could wait."""
    cdef Py_ssize_t klen = PyBytes_GET_SIZE(key)
    cdef Py_ssize_t vlen = PyBytes_GET_SIZE(value)
    cdef int wish = sync_wish(sync)
    cdef uint64_t expiry = 0
    cdef Tree tree
    if ttl is not None or expire_at is not None:
        expiry = expiry_from(ttl, expire_at, &store.handle.clock)
    store.check_writable()
    tree = store.tree
    expiry = expiry or store.default_expiry()
    # A key that is too long is refused by the ordinary call.
    if klen > MAX_KEY or <size_t>vlen >= tree.large_value \
            or must_wait(store.engine, klen + vlen, op_size(OP_PUT, tree.keyspace, klen, vlen, expiry), wish):
        return False
    put_value(store.engine, tree, PyBytes_AS_STRING(key), klen, PyBytes_AS_STRING(value), vlen, expiry, wish)
    return True


def try_delete(Store store not None, bytes key not None, *, sync=None):
    """As `Store.delete`. False: nothing was done, because it could wait."""
    cdef Py_ssize_t klen = PyBytes_GET_SIZE(key)
    cdef int wish = sync_wish(sync)
    store.check_writable()
    if klen > MAX_KEY or must_wait(store.engine, klen, op_size(OP_DELETE, store.tree.keyspace, klen, 0, 0), wish):
        return False
    store.engine.write_one(store.tree, OP_DELETE, PyBytes_AS_STRING(key), klen, NULL, 0, 0, wish)
    return True


def try_write(Store store not None, WriteBatch batch not None, *, sync=None):
    """As `Store.write`. False: nothing was done, because it could wait."""
    cdef int wish = sync_wish(sync)
    store.check_writable()
    # The ordinary call refuses a batch of another keyspace or database.
    if (batch.b.keyspaces and batch.handle != store.handle) or (store.tree.keyspace and batch.keyspace != store.tree.keyspace):
        return False
    if batch.b.largest >= store.engine.large_value or store.engine.default_ttls \
            or must_wait(store.engine, batch.b.used, batch.b.used, wish):
        return False
    batch.b.writers += 1
    try:
        write_batch(store.engine, &batch.b, wish)
    finally:
        batch.b.writers -= 1
    return True

import contextlib
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from lsmkv_ext.batch cimport (
    OP_DELETE,
    OP_PUT,
    OpCursor,
    Operation,
    WriteBatch,
    op_encode,
    op_size,
    ops_begin,
    ops_next,
    refuse_key,
    refuse_sync,
    refuse_value,
)
from lsmkv_ext.block.block cimport BlockC, Entry
from lsmkv_ext.cache.row_cache cimport (
    row_cache_find,
    row_cache_free,
    row_cache_offer,
    row_cache_prefetch,
    row_cache_resize,
    row_cache_worth_probing,
)
from lsmkv_ext.filter.format cimport FILTER_ABSENT
from lsmkv_ext.filter.kernel cimport filter_probe
from lsmkv_ext.limits cimport MAX_KEY, MAX_LEVELS, MAX_SEQ, MAX_VALUE
from lsmkv_ext.memtable.apply cimport mem_apply
from lsmkv_ext.memtable.arena cimport MemEntry, entry_op
from lsmkv_ext.memtable.memtable cimport MemC, mem_covering_seq, mem_find, mem_insert, mem_prefetch, mem_reserve
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.finalization cimport lsm_finalizing, refuse_finalizing
from lsmkv_ext.port.handle cimport handle_check, handle_close, handle_new, handle_unref
from lsmkv_ext.port.pthread cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from lsmkv_ext.port.status cimport (
    ST_CORRUPT,
    ST_IO,
    ST_NOT_FOUND,
    ST_OK,
    Status,
    fail_corrupt,
    fail_memory,
    raise_status,
    status_clear,
)
from lsmkv_ext.read.iterator cimport Cursor, Iterator, new_cursor, new_iterator
from lsmkv_ext.read.read_state cimport (
    DELETED,
    FOUND,
    Lookup,
    ReadStateC,
    TableSlot,
    counters_add,
    counters_start,
    lsm_count,
    prefetch_lookup,
    probe_many,
    probe_memtables,
    probe_tables,
    read_state_drain,
    table_range_holds,
)
from lsmkv_ext.table.reader cimport ReadContext, TableC, table_find_block, table_get, table_peek_block, table_unpin
from lsmkv_ext.wal.format cimport LOG_RECORD_HEADER
from lsmkv_ext.wal.writer cimport LogC, log_commit, log_reserve, log_sync

from lsmkv_ext.errors import ClosedError, Error, ReadOnlyError

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef extern from *:
    """
    #define SEQ_RESERVE (1ULL << 48)    /* more than are used between an open and a close */
    """
    const uint64_t SEQ_RESERVE

cdef enum:
    LARGE_BATCH = 64 << 10      # from this size on a batch is written off the GIL
    SLEEP_NS = 1000000          # owed delay is slept from a millisecond on,
    LONGEST_SLEEP_NS = 10 * SLEEP_NS    # at most so much at a time
    EXPECT_NOTHING = 0
    EXPECT_HIT = 1
    EXPECT_MISS = 2

cdef object MISSING = object()


cdef int expectation(object expect) except -1:
    if expect is None:
        return EXPECT_NOTHING
    if expect == "hit":
        return EXPECT_HIT
    if expect == "miss":
        return EXPECT_MISS
    raise ValueError(f'expect is "hit", "miss" or None, not {expect!r}')


cdef bytes copy_key(object key):
    """Of a bytes-like object that others may change."""
    cdef Py_buffer kb
    PyObject_GetBuffer(key, &kb, PyBUF_SIMPLE)
    try:
        if kb.len > MAX_KEY:
            refuse_key(key, kb.len)
        return PyBytes_FromStringAndSize(<const char*>kb.buf, kb.len)
    finally:
        PyBuffer_Release(&kb)


# --- writing a batch into a memtable (nogil) ----------------------------------------------------------------------------

cdef int apply_payload(MemC* m, const char* payload, size_t n, uint32_t count, uint64_t seq, uint64_t seed,
                       Status* st) noexcept nogil:
    cdef OpCursor ops
    cdef Operation op
    cdef const char* problem = ops_begin(&ops, payload, n, count, seq)
    while problem == NULL and ops.left:
        problem = ops_next(&ops, &op)
        if problem == NULL and mem_apply(m, &op, seed) != 0:
            return fail_memory(st, b"memtable")
    return ST_OK if problem == NULL else fail_corrupt(st, problem, 0, 0)


cdef int write_record(LogC* log, MemC* m, const char* payload, size_t n, uint32_t count, uint64_t seq, uint64_t seed,
                      Status* st) noexcept nogil:
    cdef char* place
    if log != NULL:
        place = log_reserve(log, n, st)
        if place == NULL:
            return st.code
        memcpy(place, payload, n)
        if log_commit(log, n, seq, count, st) != ST_OK:
            return st.code
    return apply_payload(m, payload, n, count, seq, seed, st)


cdef uint64_t seek_limit(ReadState state) except? 0:
    """A seek that looks into one more table costs about what merging 16 KiB does."""
    cdef uint64_t total = sum([table.file_size for table in state.levels[0]]) if state.levels else 0
    return 1000 + total // 16384


cdef class Engine:
    """The part of a database that moves bytes. `lsmkv.open` returns its subclass, `lsmkv.DB`."""

    def __cinit__(self, *args, **kwargs):
        self.handle = handle_new()
        pthread_mutex_init(&self.turn.mutex, NULL)
        pthread_cond_init(&self.turn.freed, NULL)
        self.handle.closed = True
        self.old_logs = []

    def __dealloc__(self):
        handle_unref(self.handle)
        row_cache_free(&self.row_cache)
        pthread_mutex_destroy(&self.turn.mutex)
        pthread_cond_destroy(&self.turn.freed)

    # --- wiring, for the control plane ---------------------------------------------------------------------------------

    def _configure(self, path, uint64_t seed, *, bint readonly=False, bint sync_default=False):
        self.path = os.fspath(path)
        self.seed = seed
        self.readonly = readonly
        self.sync_default = sync_default

    def _start(self, levels, memtables, LogWriter log, uint64_t last_seq):
        """Opens for business. memtables: newest first, [0] is the active one; log: None for no log."""
        self.state_ = ReadState(memtables, levels, self.seed)
        self.active_ = memtables[0]
        self.log_ = log
        self.visible = last_seq
        self.seek_limit = seek_limit(self.state_)
        self.writable = not self.readonly
        self.handle.closed = False
        if self.writable and last_seq > MAX_SEQ - SEQ_RESERVE:
            # No table could hold what is written next, nor would a log of it be believed.
            self._poison(Error("its sequence numbers are used up"))

    def _prepare(self, levels, drop=(), uint64_t last_seq=0):
        """Makes what `_publish` shows: new levels, without the memtables in `drop` (now in a table) and their logs. last_seq: of
        ingested tables. A rotation in between keeps it current. The caller holds the lock that rotations take."""
        cdef ReadState base = None
        cdef ReadState state = None
        gone = {id(memtable) for memtable in drop}
        while base is not self.state_:       # an allocation may run a finalizer that rotates
            base = self.state_
            kept = [memtable for memtable in base.memtables if id(memtable) not in gone]
            oldest = min((memtable.number for memtable in kept if memtable.number), default=0)
            logs = [log for log in self.old_logs if oldest and log.number >= oldest]
            state = ReadState(kept, levels, self.seed)
            self.next_seek_limit = seek_limit(state)
        self.next_state = state
        self.next_logs = logs
        self.next_seq = last_seq

    def _publish(self):
        """Shows what `_prepare` made. The edit behind it is durable, so nothing in here may fail: no allocation."""
        cdef ReadState _read_state = self.state_        # freed on return, after the last assignment
        cdef list _logs = self.old_logs
        self.state_ = self.next_state
        self.old_logs = self.next_logs
        self.next_state = None
        self.next_logs = None
        self.generation += 1
        self.handle.seek_debt = 0
        self.seek_limit = self.next_seek_limit
        if self.next_seq > self.visible:
            self.visible = self.next_seq

    def _discard_prepared(self):
        """Drops what `_prepare` made."""
        self.next_state = None
        self.next_logs = None

    def _refresh(self, levels, memtables, uint64_t last_seq, uint64_t seed):
        """A read-only handle moves on to a newer state, or to another database in the same place."""
        state = ReadState(memtables, levels, seed)
        self.seed = seed
        self.state_ = state
        self.generation += 1
        self.active_ = memtables[0]
        self.visible = last_seq

    def _rotate(self, Memtable memtable not None, LogWriter log):
        """A new active memtable and log; the old memtable becomes the newest immutable one and is returned. Only with the writer
        slot taken (in _on_full, or inside _exclusive)."""
        cdef ReadState state, next_state = None
        cdef list logs, next_logs = None
        old = self.active_
        passed = [] if self.log_ is None else [self.log_]
        state = ReadState([memtable, *self.state_.memtables], self.state_.levels, self.seed)
        logs = self.old_logs + passed
        if self.next_state is not None:
            next_state = ReadState([memtable, *self.next_state.memtables], self.next_state.levels, self.seed)
            next_logs = self.next_logs + passed
        # Nothing fails from here on.
        self.state_ = state
        self.old_logs = logs
        self.next_state = next_state
        self.next_logs = next_logs
        self.active_ = memtable
        self.log_ = log
        return old

    def _on_full(self):
        """Hook: the active memtable is full. Called in the writer's thread with the writer's turn taken."""
        raise NotImplementedError

    def _on_seek_debt(self):
        """Hook: seeks have paid so much for the overlap of L0 that merging it is cheaper. Called in the reader's thread."""

    @contextlib.contextmanager
    def _exclusive(self):
        """No writer runs inside. Used for rotations that nobody's write asked for."""
        self.take_turn()
        self.handle.inflight += 1
        try:
            yield
        finally:
            self.handle.inflight -= 1
            self.end_turn()

    def _set_delay(self, uint64_t ns_per_kib):
        self.delay = ns_per_kib

    def _set_stopped(self, bint stopped):
        self.stopped = stopped

    def _set_sync_default(self, bint sync):
        self.sync_default = sync

    def _set_row_cache(self, size_t limit):
        """Bytes that the row cache may hold; 0 keeps none."""
        row_cache_resize(&self.row_cache, limit)

    def _set_shadow_period(self, uint64_t period):
        self.counters_.shadow_period = period

    def _poison(self, error):
        """Writes are refused from now on, naming `error`; reads go on."""
        if self.poison is None:
            self.poison = error
        self.writable = False

    @property
    def _poisoned(self):
        return self.poison

    def _close(self):
        """Refuses newcomers, waits for calls in flight, releases the dependents, drops memtables and tables. False where all stays
        because a thread has stopped in such a call."""
        if self.handle.closed:
            return True
        if not handle_close(self.handle):
            self.writable = False
            return False
        row_cache_free(&self.row_cache)
        self.writable = False
        self.state_ = None
        self.active_ = None
        self.log_ = None
        self.old_logs = []
        self._discard_prepared()
        return True

    @property
    def closed(self):
        return bool(self.handle.closed)

    def _check_open(self):
        handle_check(self.handle)

    @property
    def _read_state(self):
        return self.state_

    @property
    def _active(self):
        return self.active_

    @property
    def _log(self):
        return self.log_

    @property
    def _last_seq(self):
        return self.visible

    @property
    def _inflight(self):
        return self.handle.inflight

    # --- the writer's turn -------------------------------------------------------------------------------------------------

    cdef int take_turn(self) except -1:
        """In the order of asking: writers that rotate all the time would else keep a flush or a close waiting for ever."""
        cdef uint64_t ticket = self.turn.drawn
        if self.turn.served != ticket and lsm_finalizing():
            refuse_finalizing()
        self.turn.drawn += 1
        if self.turn.served != ticket:
            with nogil:
                pthread_mutex_lock(&self.turn.mutex)
                while self.turn.served != ticket:
                    pthread_cond_wait(&self.turn.freed, &self.turn.mutex)
                pthread_mutex_unlock(&self.turn.mutex)
        return 0

    cdef int end_turn(self) noexcept:
        pthread_mutex_lock(&self.turn.mutex)
        self.turn.served += 1
        if self.turn.served != self.turn.drawn:
            pthread_cond_broadcast(&self.turn.freed)
        pthread_mutex_unlock(&self.turn.mutex)
        return 0

    @property
    def _slot_queue(self):
        """How many hold the writer's turn or wait for it."""
        return self.turn.drawn - self.turn.served

    # --- writes ----------------------------------------------------------------------------------------------------------

    cdef int check_writable(self) except -1:
        handle_check(self.handle)
        if not self.writable:
            self.fail_write()
        return 0

    cdef int fail_write(self) except -1:
        if self.poison is not None:
            raise ReadOnlyError(f"the database is read-only since an error: {self.poison}") from self.poison
        raise ReadOnlyError("the database was opened read-only")

    cdef int hold_back(self, uint64_t footprint) except -1:
        """Back pressure: writers sleep in proportion to what they write, or wait while stopped."""
        cdef uint64_t began, now, ns
        if self.stopped:
            began = lsm_now_ns()
            self.writes.stops += 1
            while self.stopped and self.writable and not self.handle.closed:
                if lsm_finalizing():
                    refuse_finalizing()
                with nogil:
                    usleep(500)
                PyErr_CheckSignals()
            self.writes.stop_ns += lsm_now_ns() - began
        self.owed += footprint * self.delay // 1024
        if self.owed >= SLEEP_NS:
            ns = self.owed
            self.owed = 0
            began = now = lsm_now_ns()
            # For a large write that is seconds: a close or Ctrl-C ends them.
            while now - began < ns and self.writable and not self.handle.closed:
                with nogil:
                    usleep(<unsigned int>(min(began + ns - now, <uint64_t>LONGEST_SLEEP_NS) // 1000 + 1))
                PyErr_CheckSignals()
                now = lsm_now_ns()
            self.writes.slowdowns += 1
            self.writes.slowdown_ns += now - began
        return self.check_writable()

    cdef int make_room(self, bint keep_turn) except -1:
        """Waits for the slot and rotates if need be, through the hook, which may let the GIL go."""
        cdef bint ready = False
        self.take_turn()
        # In flight: a close waits for the rotation instead of taking the state from under it.
        self.handle.inflight += 1
        try:
            self.check_writable()
            if self.active_.c.used >= self.active_.capacity:
                self._on_full()
                self.check_writable()
            ready = True
        finally:
            self.handle.inflight -= 1
            if not (ready and keep_turn):
                self.end_turn()
        return 0

    cdef int prepare(self, uint64_t footprint, bint keep_turn) except -1:
        """Before a write: everything that may wait. On return the GIL has been held since the last check, which keeps the next
        holder of the slot out; who will let it go while writing keeps the slot."""
        if self.delay or self.stopped:
            self.hold_back(footprint)
        if self.turn.drawn != self.turn.served or self.active_.c.used >= self.active_.capacity:
            return self.make_room(keep_turn)
        if keep_turn:
            self.take_turn()
        return 0

    cdef int write_one(self, int op, const char* key, size_t klen, const char* value, size_t vlen, object sync) except -1:
        cdef Status st
        cdef LogC* log
        cdef MemC* m
        cdef char* place
        cdef size_t n
        cdef uint64_t hash, end = 0
        hash = xxh3(key, klen, self.seed)
        mem_prefetch(self.active_.c, hash)
        self.prepare(klen + vlen, False)
        m = self.active_.c
        if mem_reserve(m, klen, vlen) != 0:
            raise MemoryError("memtable")
        if self.log_ is not None:
            log = self.log_.c
            status_clear(&st)
            n = op_size(op, klen, vlen)
            place = log_reserve(log, n, &st)
            if place == NULL:
                raise_status(&st, self.log_.path)
            op_encode(place, op, key, klen, value, vlen)
            if log_commit(log, n, self.visible + 1, 1, &st) != ST_OK:
                raise_status(&st, self.log_.path)
            end = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        elif sync:
            refuse_sync()
        mem_insert(m, key, klen, value, vlen, self.visible + 1, op, hash)
        self.visible += 1
        self.writes.bytes_written += klen + vlen
        if op == OP_PUT:
            self.writes.puts += 1
        else:
            self.writes.deletes += 1
        if sync is None:
            if self.sync_default:
                self.sync_to(end)
        elif sync:
            self.sync_to(end)
        return 0

    cdef int write_payload(self, const BatchC* b, object sync) except -1:
        cdef Status st
        cdef LogC* log = NULL
        cdef MemC* m
        cdef uint64_t seq, end = 0
        cdef uint64_t seed = self.seed
        cdef size_t n = b.used
        cdef uint32_t count = b.count
        cdef const char* payload = b.data
        cdef LogWriter writer
        cdef Memtable memtable
        if sync and self.log_ is None:
            refuse_sync()
        if count == 0:
            # Nothing to write; whoever asks for a sync wants what came before it to be durable all the same.
            if self.sync_default if sync is None else sync:
                self.sync()
            return 0
        self.prepare(b.used, n >= LARGE_BATCH)
        status_clear(&st)
        writer = self.log_
        memtable = self.active_
        m = memtable.c
        if writer is not None:
            log = writer.c
        seq = self.visible + 1
        if n >= LARGE_BATCH:
            self.handle.inflight += 1
            with nogil:
                write_record(log, m, payload, n, count, seq, seed, &st)
            self.handle.inflight -= 1
            self.end_turn()
        else:
            write_record(log, m, payload, n, count, seq, seed, &st)
        if st.code != ST_OK:
            if st.code != ST_IO:
                # The record is in the log but not all of it in the memtable: what readers see would not be what a reopen finds.
                self._poison(MemoryError("a batch did not fit into memory"))
            raise_status(&st, self.path if writer is None else writer.path)
        self.visible = seq + count - 1
        self.writes.batches += 1
        self.writes.puts += count - b.deletes
        self.writes.deletes += b.deletes
        self.writes.bytes_written += n
        if log != NULL:
            end = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        if sync if sync is not None else self.sync_default:
            self.sync_to(end)
        return 0

    cdef int write_op(self, int op, object key, object value, object sync) except -1:
        """Any bytes-like key and value (None for a delete). The key as it is now: it is hashed before the write may wait."""
        cdef Py_buffer vb
        cdef bytes k
        if isinstance(key, str) or isinstance(value, str):
            raise TypeError("keys and values are bytes, not str: encode it first")
        k = key if PyBytes_CheckExact(key) else copy_key(key)
        if PyBytes_GET_SIZE(k) > MAX_KEY:
            refuse_key(key, PyBytes_GET_SIZE(k))
        if op == OP_DELETE:
            return self.write_one(op, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), NULL, 0, sync)
        PyObject_GetBuffer(value, &vb, PyBUF_SIMPLE)
        try:
            if vb.len > MAX_VALUE:
                refuse_value(vb.len)
            return self.write_one(op, PyBytes_AS_STRING(k), PyBytes_GET_SIZE(k), <const char*>vb.buf, vb.len, sync)
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
            self.write_one(OP_PUT, PyBytes_AS_STRING(key), klen, PyBytes_AS_STRING(value), vlen, sync)
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
        if bytes(memoryview(start)) >= bytes(memoryview(stop)):
            batch.clear()
        self.write_payload(&batch.b, sync)

    def write(self, WriteBatch batch not None, *, sync=None):
        """Writes a batch: all of it or nothing, for readers and after a crash."""
        self.check_writable()
        batch.b.writers += 1
        try:
            self.write_payload(&batch.b, sync)
        finally:
            batch.b.writers -= 1

    def sync(self):
        """Everything written so far survives a power cut once this returns."""
        self.check_writable()
        if self.log_ is not None:
            self.sync_to(lsm_load64(&self.log_.c.offset))

    cdef int sync_to(self, uint64_t offset) except -1:
        """Older logs first, so that what is synced is always a prefix of what was written."""
        cdef LogWriter log
        cdef LogC* c
        cdef Status st
        cdef uint64_t upto
        if self.log_ is None:
            return 0
        status_clear(&st)
        self.handle.inflight += 1
        try:
            for log in [*self.old_logs, self.log_]:
                c = log.c
                # The record may be in a log that was rotated out since then, and its offset beyond the end of this one.
                upto = lsm_load64(&c.offset)
                if log is self.log_ and offset < upto:
                    upto = offset
                with nogil:
                    log_sync(c, upto, &st)
                if st.code != ST_OK:
                    break
        finally:
            self.handle.inflight -= 1
        if st.code != ST_OK:
            try:
                raise_status(&st, log.path)
            except Exception as error:
                self._poison(error)
                raise
        return 0

    # --- reads -----------------------------------------------------------------------------------------------------------

    cdef object lookup_bytes(self, ReadState state, uint64_t snapshot, const char* key, size_t klen, bytes row_key, object default,
                             bint fill_cache, int expect):
        """row_key: the same key as an object that may be kept, or None."""
        cdef Lookup q
        cdef int says
        cdef void* row
        q.key = key
        q.klen = klen
        q.hash = xxh3(key, klen, state.c.seed)
        row_cache_prefetch(&self.row_cache, q.hash)
        prefetch_lookup(&state.c, &q, self.row_cache.sets == NULL or self.row_cache.bypassed)
        q.snapshot = snapshot
        q.skip_bottom_filter = expect == EXPECT_HIT
        says = probe_memtables(&state.c, &q, &self.counters_)
        if says == FOUND:
            return PyBytes_FromStringAndSize(q.value, q.vlen)
        if says == DELETED:
            return default
        if self.row_cache.sets == NULL or row_key is None or state is not self.state_ or not row_cache_worth_probing(&self.row_cache):
            return self.get_from_tables(state, &q, None, default, fill_cache)
        row = row_cache_find(&self.row_cache, q.hash, key, klen, self.generation)
        if row != NULL:
            lsm_count(&self.counters_.row_hits, 1)
            lsm_count(&self.counters_.gets_found, 1)
            return <object>row
        return self.get_from_tables(state, &q, row_key, default, fill_cache)

    cdef object get_from_tables(self, ReadState state, Lookup* q, bytes row_key, object default, bint fill_cache):
        cdef ReadContext rc
        cdef Status st
        cdef object value
        cdef uint32_t generation = self.generation
        memset(&rc, 0, sizeof(rc))
        rc.gil_held = True
        rc.fill_cache = fill_cache
        status_clear(&st)
        self.handle.inflight += 1
        probe_tables(&state.c, q, &rc, &self.counters_, &st)
        self.handle.inflight -= 1
        self.handle.reads.cache_hits += rc.cache_hits
        if rc.disk_reads:
            self.count_disk(&rc)
        if st.code != ST_OK:
            self.raise_read(state, &st)
        if not q.found:
            return default
        value = PyBytes_FromStringAndSize(q.value, q.vlen)
        if q.pinned != NULL:
            table_unpin(q.owner, q.pinned)
        # A read may have let the GIL go: then the levels may be others by now, or the database closed.
        if row_key is not None and fill_cache and generation == self.generation and self.row_cache.sets != NULL:
            row_cache_offer(&self.row_cache, q.hash, row_key, value, generation)
        return value

    cdef int count_disk(self, const ReadContext* rc) noexcept:
        self.handle.reads.disk_reads += rc.disk_reads
        self.handle.reads.disk_bytes += rc.disk_bytes
        self.handle.reads.disk_ns += rc.disk_ns
        self.handle.reads.decompressed += rc.decompressed
        return 0

    cdef int raise_read(self, ReadState state, const Status* st) except -1:
        path = self.path
        if st.code == ST_CORRUPT:
            for tables in state.levels:
                for table in tables:
                    if table.number == st.file_number:
                        path = table.path
        return raise_status(st, path)

    cdef object lookup(self, ReadState state, uint64_t snapshot, object key, object default, bint fill_cache, int expect):
        cdef Py_buffer kb
        if PyBytes_CheckExact(key):
            return self.lookup_bytes(state, snapshot, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), <bytes>key, default,
                                     fill_cache, expect)
        if isinstance(key, str):
            raise TypeError("keys are bytes, not str: encode it first")
        PyObject_GetBuffer(key, &kb, PyBUF_SIMPLE)
        try:
            return self.lookup_bytes(state, snapshot, <const char*>kb.buf, kb.len, None, default, fill_cache, expect)
        finally:
            PyBuffer_Release(&kb)

    def get(self, key, default=None, *, bint verify_checksums=True, bint fill_cache=True, expect=None):
        """The value under key, or default. expect="hit" skips the bottom filter, which could only agree.

        Checksums are verified whatever verify_checksums says.
        """
        handle_check(self.handle)
        return self.lookup(self.state_, self.visible, key, default, fill_cache, 0 if expect is None else expectation(expect))

    def __getitem__(self, key):
        cdef object value
        handle_check(self.handle)
        value = self.lookup(self.state_, self.visible, key, MISSING, True, EXPECT_NOTHING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        handle_check(self.handle)
        return self.lookup(self.state_, self.visible, key, MISSING, True, EXPECT_NOTHING) is not MISSING

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    cdef list lookup_many(self, ReadState state, uint64_t snapshot, object keys, object default):
        # A copy: the caller's list may change while the GIL is away, and this one keeps the keys alive.
        cdef list held = list(keys)
        cdef Py_ssize_t n = len(held)
        cdef Py_ssize_t i
        cdef Lookup* queries
        cdef Counters* local
        cdef ReadContext rc
        cdef Status st
        cdef ReadStateC* v = &state.c
        cdef list out = [None] * n
        cdef object key
        cdef list copies = None
        if n == 0:
            return out
        queries = <Lookup*>calloc(n, sizeof(Lookup))
        local = <Counters*>calloc(1, sizeof(Counters))
        if queries == NULL or local == NULL:
            free(queries)
            free(local)
            raise MemoryError("multi_get")
        memset(&rc, 0, sizeof(rc))
        rc.fill_cache = True
        status_clear(&st)
        counters_start(local, &self.counters_)
        try:
            for i in range(n):
                key = held[i]
                if not PyBytes_CheckExact(key):
                    if isinstance(key, str):
                        raise TypeError("keys are bytes, not str: encode it first")
                    key = bytes(memoryview(key))
                    if copies is None:
                        copies = []
                    copies.append(key)
                queries[i].key = PyBytes_AS_STRING(key)
                queries[i].klen = PyBytes_GET_SIZE(key)
                queries[i].snapshot = snapshot
            self.handle.inflight += 1
            with nogil:
                for i in range(n):
                    queries[i].hash = xxh3(queries[i].key, queries[i].klen, v.seed)
                probe_many(v, queries, n, &rc, local, &st)
            self.handle.inflight -= 1
            read_state_drain(v)
            counters_add(&self.counters_, local)
            self.handle.reads.cache_hits += rc.cache_hits
            self.count_disk(&rc)
            if st.code != ST_OK:
                self.raise_read(state, &st)
            for i in range(n):
                out[i] = PyBytes_FromStringAndSize(queries[i].value, queries[i].vlen) if queries[i].found else default
            return out
        finally:
            for i in range(n):
                if queries[i].pinned != NULL:
                    table_unpin(queries[i].owner, queries[i].pinned)
            free(queries)
            free(local)

    def multi_get(self, keys, default=None):
        """The values of many keys, in their order: one state, one release of the GIL, cache misses overlapped."""
        handle_check(self.handle)
        return self.lookup_many(self.state_, self.visible, keys, default)

    # --- walks -----------------------------------------------------------------------------------------------------------

    def _iterator(self, *, bint reverse=False, start=None, stop=None, bint include_start=True, bint include_stop=False,
                  prefix=None, bint include_key=True, bint include_value=True, bint fill_cache=True):
        cdef Iterator it
        handle_check(self.handle)
        if self.handle.seek_debt > self.seek_limit:
            self.handle.seek_debt = 0
            self._on_seek_debt()
        it = new_iterator(self.handle, self.state_, self.visible, start, stop, include_start, include_stop, prefix, reverse,
                          include_key, include_value, fill_cache)
        it.owner = self
        return it

    def _cursor(self, *, start=None, stop=None, prefix=None, bint fill_cache=True):
        cdef Cursor cursor
        handle_check(self.handle)
        cursor = new_cursor(self.handle, self.state_, self.visible, start, stop, prefix, fill_cache)
        cursor.owner = self
        return cursor

    # --- counters --------------------------------------------------------------------------------------------------------

    def counters(self):
        """The raw counters as a dict; `lsmkv.stats.metrics` makes sense of them."""
        cdef int i
        cdef dict out, level
        levels = []
        for i in range(MAX_LEVELS):
            level = self.counters_.levels[i]
            del level["phase"]
            level["positives"] = level["true_positives"] + level["false_positives"]
            level["checks"] = level["positives"] + level["negatives"]
            level["lookups"] = level["checks"] + level["unfiltered"] + level["fail_open"]
            levels.append(level)
        out = {
            "levels": levels,
            "gets": self.counters_.gets,
            "gets_found": self.counters_.gets_found,
            "memtable_hits": self.counters_.memtable_hits,
            "row_hits": self.counters_.row_hits,
            "row_bytes": self.row_cache.used,
            "shadow_checks": self.counters_.shadow_checks,
            "shadow_wrong": self.counters_.shadow_wrong,
            "cache_timed": self.counters_.cache_timed,
            "cache_timed_ns": self.counters_.cache_timed_ns,
        }
        out.update(self.writes)
        out.update(self.handle.reads)
        logs = [log for log in [*self.old_logs, self.log_] if log is not None]
        out["log_syncs"] = sum(log.syncs for log in logs)
        out["log_sync_ns"] = sum(log.sync_ns for log in logs)
        return out

    def reset_counters(self):
        cdef uint64_t period = self.counters_.shadow_period
        memset(&self.counters_, 0, sizeof(self.counters_))
        memset(&self.writes, 0, sizeof(self.writes))
        memset(&self.handle.reads, 0, sizeof(self.handle.reads))
        self.counters_.shadow_period = period

    # --- one lookup, told ------------------------------------------------------------------------------------------------

    def explain_raw(self, key):
        """The steps of one lookup as dicts: every source, what its filter said, where the block came from, bytes, ns."""
        handle_check(self.handle)
        cdef bytes k = bytes(memoryview(key))
        steps = []
        self.handle.inflight += 1
        try:
            outcome = self._explain(self.state_, k, steps)
        finally:
            self.handle.inflight -= 1
        return {"key": k, "found": outcome is not None and outcome is not MISSING, "sequence": self.visible, "steps": steps}

    def _explain(self, ReadState state, bytes key, list steps):
        cdef ReadStateC* v = &state.c
        cdef int i, level
        cdef MemEntry* e
        cdef uint64_t covered, began
        cdef uint64_t hash = xxh3(<const char*>key, len(key), v.seed)
        for i in range(v.n_memtables):
            began = lsm_now_ns()
            e = mem_find(v.memtables[i], key, len(key), hash, self.visible)
            covered = mem_covering_seq(v.memtables[i], key, len(key), self.visible)
            step = {"source": "memtable", "index": i, "log": state.memtables[i].number, "ns": lsm_now_ns() - began,
                    "result": "absent"}
            steps.append(step)
            if e != NULL:
                step["sequence"] = e.seq
                step["result"] = "deleted" if entry_op(e) == OP_DELETE or e.seq < covered else "found"
                return MISSING if step["result"] == "deleted" else step
            if covered:
                step["result"] = "range-deleted"
                step["sequence"] = covered
                return MISSING
        for level in range(v.n_levels):
            for i in range(v.levels[level].n):
                if table_range_holds(v.levels[level].slots[i].t, key, len(key)):
                    step = self._explain_table(state, level, i, key, hash)
                    steps.append(step)
                    if step["result"] == "found":
                        return step
                    if step["result"] != "absent":
                        return MISSING
        return None

    def _explain_table(self, ReadState state, int level, int i, bytes key, uint64_t hash):
        cdef TableSlot* slot = &state.c.levels[level].slots[i]
        cdef TableC* t = slot.t
        cdef ReadContext rc
        cdef Status st
        cdef Entry entry
        cdef BlockC* pinned = NULL
        cdef uint32_t block
        cdef uint64_t began = lsm_now_ns()
        cdef int code
        if slot.foreign:
            hash = xxh3(<const char*>key, len(key), t.seed)
        step = {"source": "table", "level": level, "file": t.number, "result": "absent", "block": None, "from": None, "bytes": 0}
        if t.filter.usable:
            step["filter"] = "maybe" if filter_probe(&t.filter, hash) else "no"
            step["designed_fpr"] = slot.designed_fpr
        else:
            step["filter"] = "none" if t.filter.problem == FILTER_ABSENT else "damaged"
        if step["filter"] != "no":
            block = table_find_block(t, key, len(key))
            if block < t.n_blocks:
                step["block"] = block
                step["from"] = "disk" if table_peek_block(t, block) == NULL else "cache"
                step["bytes"] = t.offsets[block + 1] - t.offsets[block]
            memset(&rc, 0, sizeof(rc))
            rc.gil_held = True
            rc.fill_cache = True
            status_clear(&st)
            code = table_get(t, key, len(key), hash, &rc, &entry, &pinned, &st)
            if code == ST_OK:
                step["result"] = "deleted" if entry.is_delete else "found"
                step["sequence"] = entry.seq
                table_unpin(t, pinned)
            elif code != ST_NOT_FOUND:
                self.raise_read(state, &st)
            elif step["filter"] == "maybe":
                step["false_positive"] = True
        if step["result"] == "absent":
            for start, stop, seq in state.levels[level][i].range_tombstones:
                if start <= key < stop:
                    step["result"] = "range-deleted"
                    step["sequence"] = seq
        step["ns"] = lsm_now_ns() - began
        return step


cdef class SnapshotBase(Dependent):
    """One state of a database, for as long as it is held."""

    def __init__(self, Engine engine not None):
        handle_check(engine.handle)
        self.engine = engine
        self.state = engine.state_
        self.sequence = engine.visible
        self.open_ = True
        self.join(engine.handle)

    def __dealloc__(self):
        # Off the list before `engine` goes: it may be the database's last reference, and its close walks that list.
        self.leave()

    cdef int check(self) except -1:
        if self.engine is None:
            raise ClosedError("the snapshot was never opened")
        handle_check(self.engine.handle)
        if not self.open_:
            raise ClosedError("the snapshot is closed")
        return 0

    cdef void release(self) noexcept:
        self.open_ = False
        self.state = None

    def close(self):
        """Lets go of the files it holds."""
        self.release()

    @property
    def closed(self):
        return not self.open_ or self.engine is None or bool(self.engine.handle.closed)

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        self.close()

    def get(self, key, default=None, *, bint verify_checksums=True, bint fill_cache=True, expect=None):
        self.check()
        return self.engine.lookup(self.state, self.sequence, key, default, fill_cache,
                                  0 if expect is None else expectation(expect))

    def __getitem__(self, key):
        self.check()
        value = self.engine.lookup(self.state, self.sequence, key, MISSING, True, EXPECT_NOTHING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        self.check()
        return self.engine.lookup(self.state, self.sequence, key, MISSING, True, EXPECT_NOTHING) is not MISSING

    def multi_get(self, keys, default=None):
        self.check()
        return self.engine.lookup_many(self.state, self.sequence, keys, default)

    def _iterator(self, *, bint reverse=False, start=None, stop=None, bint include_start=True, bint include_stop=False,
                  prefix=None, bint include_key=True, bint include_value=True, bint fill_cache=True):
        cdef Iterator it
        self.check()
        it = new_iterator(self.handle, self.state, self.sequence, start, stop, include_start, include_stop, prefix, reverse,
                          include_key, include_value, fill_cache)
        it.owner = self
        return it

    def _cursor(self, *, start=None, stop=None, prefix=None, bint fill_cache=True):
        cdef Cursor cursor
        self.check()
        cursor = new_cursor(self.handle, self.state, self.sequence, start, stop, prefix, fill_cache)
        cursor.owner = self
        return cursor

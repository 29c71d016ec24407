import contextlib
import logging

from cpython.exc cimport PyErr_CheckSignals
from libc.string cimport memcpy, memset

from lsmkv_ext.batch cimport OP_PUT, OpCursor, Operation, op_encode, op_size, ops_begin, ops_next, refuse_sync
from lsmkv_ext.cache.row_cache cimport row_cache_resize
from lsmkv_ext.limits cimport MAX_SEQ
from lsmkv_ext.memtable.apply cimport mem_apply
from lsmkv_ext.memtable.memtable cimport MemC, Memtable, mem_insert, mem_prefetch, mem_reserve
from lsmkv_ext.port.atomics cimport lsm_load64
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.finalization cimport lsm_finalizing, refuse_finalizing
from lsmkv_ext.port.handle cimport handle_check, handle_close, handle_new, handle_unref
from lsmkv_ext.port.section cimport section_enter, section_leave, section_refuse
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
from lsmkv_ext.port.status cimport ST_IO, ST_OK, Status, fail_corrupt, fail_memory, raise_status, status_clear
from lsmkv_ext.read.counters cimport counters_reset
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.wal.format cimport LOG_RECORD_HEADER
from lsmkv_ext.wal.writer cimport LogC, log_commit, log_reserve, log_sync

from lsmkv_ext.errors import ClosedError, Error, ReadOnlyError

cdef object logger = logging.getLogger("lsmkv")

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


cdef inline bint wants_sync(Engine self, int sync) noexcept:
    return self.sync_default if sync == SYNC_AS_DEFAULT else sync


cdef int sync_log(LogC* log, uint64_t offset, Status* st) noexcept:
    with nogil:
        log_sync(log, offset, st)
    return st.code


cdef class Engine:
    """The live side of a database: what is in memory and in the logs, and whether it takes writes."""

    def __cinit__(self, str path, uint64_t seed):
        self.handle = handle_new()
        pthread_mutex_init(&self.turn.mutex, NULL)
        pthread_cond_init(&self.turn.freed, NULL)
        self.handle.closed = True
        self.tree = Tree(path, seed)
        self.old_logs = []
        self.served = []

    def __dealloc__(self):
        handle_unref(self.handle)
        pthread_mutex_destroy(&self.turn.mutex)
        pthread_cond_destroy(&self.turn.freed)

    def start(self, levels, memtables, LogWriter log, uint64_t last_seq, *, bint readonly=False, bint sync_default=False,
              SyncWatermark watermark=None):
        """Opens for business. memtables: newest first, [0] is the active one; log: None for no log."""
        self.tree.show(ReadState(memtables, levels, self.tree.seed))
        self.log = log
        self.watermark = watermark
        if log is not None and watermark is not None:
            log.attach_watermark(watermark, None)
        self.handle.visible = last_seq
        self.readonly = readonly
        self.sync_default = sync_default
        self.writable = not readonly
        self.handle.closed = False
        if self.writable and last_seq > MAX_SEQ - SEQ_RESERVE:
            # No table could hold what is written next, and no open would believe its log.
            self.refuse(Error("its sequence numbers are used up"))

    def adopt(self, Engine other not None):
        """A read-only engine moves on to a newer state, or to another database in the same place."""
        cdef ReadState _state = self.tree.state
        self.tree.show(other.tree.state)
        self.handle.visible = other.handle.visible

    # --- a new tree ------------------------------------------------------------------------------------------------------

    def prepare(self, levels, drop=(), uint64_t last_seq=0):
        """Makes what `publish` shows: new levels, without the memtables in `drop` (now in a table) and their logs. last_seq: of
        ingested tables. A rotation in between keeps it current. The caller holds the lock that rotations take."""
        cdef Tree tree = self.tree
        cdef ReadState base = None
        cdef list logs = None
        cdef list served = None
        while base is not tree.state:       # an allocation may run a finalizer that rotates
            base = tree.state
            tree.prepare(levels, drop)
            oldest = min((memtable.number for memtable in tree.next_state.memtables if memtable.number), default=0)
            logs = [log for log in self.old_logs if oldest and log.number >= oldest]
            served = self.served + [log.number for log in self.old_logs if log not in logs]
        self.next_logs = logs
        self.next_served = served
        self.next_seq = last_seq

    def publish(self):
        """Shows what `prepare` made. The edit behind it is durable, so nothing in here may fail: no allocation."""
        cdef ReadState _state = self.tree.state         # freed on return, after the last assignment
        cdef list _logs = self.old_logs
        self.tree.publish()
        self.old_logs = self.next_logs
        self.served = self.next_served
        self.next_logs = None
        if self.next_seq > self.handle.visible:
            self.handle.visible = self.next_seq

    def discard(self):
        """Drops what `prepare` made."""
        self.tree.discard()
        self.next_logs = None

    def rotate(self, Memtable memtable not None, LogWriter log):
        """A new active memtable and log; the old memtable becomes the newest immutable one. When this raises, nothing has
        changed. The caller holds the writer's turn and the lock that `prepare` and `publish` hold."""
        cdef list logs, next_logs
        cdef LogWriter previous = self.log
        handle_check(self.handle)
        if memtable.number <= self.tree.active.number:
            raise Error(f"log {memtable.number} cannot follow log {self.tree.active.number}")
        passed = [] if previous is None else [previous]
        logs = self.old_logs + passed
        next_logs = None if self.next_logs is None else self.next_logs + passed
        self.tree.rotate(memtable)
        # Nothing fails from here on.
        self.old_logs = logs
        self.next_logs = next_logs
        self.log = log
        if log is not None and self.watermark is not None:
            log.attach_watermark(self.watermark, previous)

    def take_served(self):
        """The numbers of logs that no memtable needs any more, each once: their files may go."""
        served, self.served = self.served, []
        return served

    # --- settings --------------------------------------------------------------------------------------------------------

    def set_delay(self, uint64_t ns_per_kib):
        self.delay = ns_per_kib

    def set_stopped(self, bint stopped):
        self.stopped = stopped

    def set_row_cache(self, size_t limit):
        """Bytes that the row cache may hold; 0 keeps none."""
        row_cache_resize(&self.tree.row_cache, limit)

    def set_shadow_period(self, uint64_t period):
        self.tree.counters.shadow_period = period

    # --- whether writes are refused --------------------------------------------------------------------------------------

    def refuse(self, error):
        """What reached the disk is unknown: writes are refused from now on, naming `error`; reads go on."""
        if self.refusal is not None:
            return
        # In one step: once one call was refused, no later write is acknowledged.
        self.refusal = error
        self.writable = False
        if self.on_refused is not None:
            self.on_refused()
        logger.error("%s: read-only from now on: %s", self.tree.path, error)

    def require_writable(self):
        """Raises ClosedError or ReadOnlyError where a write would, but lets the last flush through."""
        handle_check(self.handle)
        if not self.writable and not (self.sealed and self.refusal is None):
            self.fail_write()

    def seal(self):
        """Refuses writes from now on: the database closes. The caller holds the writer's turn."""
        self.sealed = True
        self.writable = False

    cdef int fail_write(self) except -1:
        if self.refusal is not None:
            raise ReadOnlyError(f"the database is read-only since an error: {self.refusal}") from self.refusal
        if self.sealed:
            raise ClosedError("the database is being closed")
        raise ReadOnlyError("the database was opened read-only")

    cdef int check_writable(self) except -1:
        handle_check(self.handle)
        if not self.writable:
            self.fail_write()
        return 0

    # --- closing ---------------------------------------------------------------------------------------------------------

    def close(self):
        """Refuses newcomers, waits for calls in flight, releases the dependents, drops memtables and tables. False: a thread has
        stopped inside such a call, so all stays."""
        cdef LogWriter log
        if self.handle.closed:
            return True
        self.writable = False
        if not handle_close(self.handle):
            return False
        for log in self.logs:
            log.detach_watermark()
        if self.watermark is not None:
            self.watermark.close()
            self.watermark = None
        self.tree.close()
        self.log = None
        self.old_logs = []
        self.next_logs = None
        self.on_full = None
        self.on_refused = None
        return True

    # --- what there is ---------------------------------------------------------------------------------------------------

    @property
    def closed(self):
        return bool(self.handle.closed)

    @property
    def state(self):
        """What readers see; None when closed."""
        return self.tree.state

    @property
    def active(self):
        """The memtable that takes the writes; None before the start and when closed."""
        return self.tree.active

    @property
    def memtables(self):
        """Newest first; the active one leads."""
        cdef ReadState state = self.tree.state
        return [] if state is None else list(state.memtables)

    @property
    def immutables(self):
        """The memtables that wait for their flush, newest first."""
        return self.memtables[1:]

    @property
    def logs(self):
        """Oldest first; the last one is in use."""
        return self.old_logs if self.log is None else [*self.old_logs, self.log]

    @property
    def last_seq(self):
        return self.handle.visible

    @property
    def inflight(self):
        """Calls that may have released the GIL."""
        return self.handle.inflight

    def counters(self):
        """The raw counters as a dict; `lsmkv.stats.metrics` makes sense of them."""
        cdef dict out = self.tree.counted()
        out.update(self.writes)
        out.update(self.handle.reads)
        logs = self.logs
        out["log_syncs"] = sum(log.syncs for log in logs)
        out["log_sync_ns"] = sum(log.sync_ns for log in logs)
        return out

    def reset_counters(self):
        counters_reset(&self.tree.counters)
        memset(&self.writes, 0, sizeof(self.writes))
        memset(&self.handle.reads, 0, sizeof(self.handle.reads))

    # --- the writer's turn -------------------------------------------------------------------------------------------------

    cdef int take_turn(self) except -1:
        """In the order of asking, or writers that rotate all the time would starve a flush or a close."""
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
    def turn_queue(self):
        """How many hold the writer's turn or wait for it."""
        return self.turn.drawn - self.turn.served

    @contextlib.contextmanager
    def exclusive(self):
        """No writer runs inside. For rotations that no write asks for."""
        self.take_turn()
        self.handle.inflight += 1
        try:
            yield
        finally:
            self.handle.inflight -= 1
            self.end_turn()

    # --- writes ----------------------------------------------------------------------------------------------------------

    cdef int hold_back(self, uint64_t footprint) except -1:
        """Back pressure: writers sleep in proportion to what they write, or wait while stopped."""
        cdef uint64_t began, now, ns
        if self.stopped:
            section_refuse()
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
        """Waits for the turn and rotates a full memtable, through the hook, which may release the GIL."""
        cdef bint ready = False
        section_refuse()
        self.take_turn()
        # In flight: a close waits for the rotation instead of taking the state from under it.
        self.handle.inflight += 1
        section_enter()
        try:
            self.check_writable()
            if self.tree.active.c.used >= self.tree.active.capacity:
                self.on_full()
                self.check_writable()
            ready = True
        finally:
            section_leave()
            self.handle.inflight -= 1
            if not (ready and keep_turn):
                self.end_turn()
        return 0

    cdef int begin_write(self, uint64_t footprint, bint keep_turn) except -1:
        """Before a write: everything that may wait. On return the GIL has been held since the last check, which keeps other
        writers out; a writer that will release it keeps its turn."""
        if self.delay or self.stopped:
            self.hold_back(footprint)
        if self.turn.drawn != self.turn.served or self.tree.active.c.used >= self.tree.active.capacity:
            return self.make_room(keep_turn)
        if keep_turn:
            self.turn.drawn += 1        # it is free, as was just seen
        return 0

    cdef int write_one(self, int op, const char* key, size_t klen, const char* value, size_t vlen, int sync) except -1:
        cdef Status st
        cdef LogC* log
        cdef MemC* m
        cdef char* place
        cdef size_t n
        cdef uint64_t hash, end = 0
        hash = xxh3(key, klen, self.tree.seed)
        mem_prefetch(self.tree.active.c, hash)
        self.begin_write(klen + vlen, False)
        m = self.tree.active.c
        if mem_reserve(m, klen, vlen) != 0:
            raise MemoryError("memtable")
        if self.log is not None:
            log = self.log.c
            status_clear(&st)
            n = op_size(op, klen, vlen)
            place = log_reserve(log, n, &st)
            if place == NULL:
                raise_status(&st, self.log.path)
            op_encode(place, op, key, klen, value, vlen)
            if log_commit(log, n, self.handle.visible + 1, 1, &st) != ST_OK:
                raise_status(&st, self.log.path)
            end = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        elif sync == SYNC_YES:
            refuse_sync()
        mem_insert(m, key, klen, value, vlen, self.handle.visible + 1, op, hash)
        self.handle.visible += 1
        self.writes.bytes_written += klen + vlen
        if op == OP_PUT:
            self.writes.puts += 1
        else:
            self.writes.deletes += 1
        if wants_sync(self, sync):
            self.sync_to(end)
        return 0

    cdef int write_payload(self, const BatchC* b, int sync) except -1:
        cdef Status st
        cdef LogC* log = NULL
        cdef MemC* m
        cdef uint64_t seq, end = 0
        cdef uint64_t seed = self.tree.seed
        cdef size_t n = b.used
        cdef uint32_t count = b.count
        cdef const char* payload = b.data
        cdef LogWriter writer
        cdef Memtable memtable
        if sync == SYNC_YES and self.log is None:
            refuse_sync()
        if count == 0:
            # Nothing to write, but a sync also covers what was written before.
            if wants_sync(self, sync):
                self.sync()
            return 0
        self.begin_write(b.used, n >= LARGE_BATCH)
        status_clear(&st)
        writer = self.log
        memtable = self.tree.active
        m = memtable.c
        if writer is not None:
            log = writer.c
        seq = self.handle.visible + 1
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
                self.refuse(MemoryError("a batch did not fit into memory"))
            raise_status(&st, self.tree.path if writer is None else writer.path)
        self.handle.visible = seq + count - 1
        self.writes.batches += 1
        self.writes.puts += count - b.deletes
        self.writes.deletes += b.deletes
        self.writes.bytes_written += n
        if log != NULL:
            end = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        if wants_sync(self, sync):
            self.sync_to(end)
        return 0

    def sync(self):
        """Everything written so far survives a power cut once this returns."""
        self.check_writable()
        if self.log is not None:
            self.sync_to(lsm_load64(&self.log.c.offset))

    cdef int sync_to(self, uint64_t offset) except -1:
        """Older logs first, so that what is synced is always a prefix of what was written."""
        cdef list old_logs = self.old_logs
        cdef LogWriter current = self.log
        cdef LogWriter log
        cdef Status st
        if current is None:
            return 0
        status_clear(&st)
        self.handle.inflight += 1
        for log in old_logs:
            if sync_log(log.c, lsm_load64(&log.c.offset), &st) != ST_OK:
                break
        else:
            log = current
            sync_log(current.c, offset, &st)
        self.handle.inflight -= 1
        if st.code != ST_OK:
            try:
                raise_status(&st, log.path)
            except Exception as error:
                self.refuse(error)
                raise
        return 0

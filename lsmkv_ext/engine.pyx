import errno
import logging
import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EDQUOT, ENOSPC
from libc.string cimport memcpy, memset

from lsmkv_ext.batch cimport (
    ANY_OPERATION, OP_PUT, OpCursor, Operation, WriteBatch, batch_add, op_encode, op_size, ops_begin, ops_next, refuse_sync,
)
from lsmkv_ext.cache.row_cache cimport row_cache_free, row_cache_resize
from lsmkv_ext.limits cimport MAX_SEQ
from lsmkv_ext.memtable.apply cimport mem_apply
from lsmkv_ext.memtable.arena cimport MemEntry
from lsmkv_ext.memtable.memtable cimport (
    MemC, Memtable, mem_covering_seq, mem_find, mem_insert, mem_prefetch, mem_reserve,
)
from lsmkv_ext.memtable.slots cimport MemSlot, MemSlots, slots_find
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
from lsmkv_ext.port.wall_clock cimport ManualClock, clock_advance, clock_attach, clock_now, clock_set_manual
from lsmkv_ext.read.counters cimport counters_reset
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.tree cimport refuse_dropped
from lsmkv_ext.wal.format cimport LOG_RECORD_HEADER
from lsmkv_ext.wal.writer cimport LogC, log_commit, log_reserve, log_sync

from lsmkv_ext.errors import ClosedError, Error, ReadOnlyError
from lsmkv_ext.errors import IOError as LsmIOError

cdef object logger = logging.getLogger("lsmkv")

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef extern from *:
    """
    #define SEQ_RESERVE (1ULL << 48)    /* more than are used between an open and a close */
    """
    const uint64_t SEQ_RESERVE

cdef enum:
    SLEEP_NS = 1000000          # owed delay is slept from a millisecond on,
    LONGEST_SLEEP_NS = 10 * SLEEP_NS    # at most so much at a time
    GROUP = 16                  # inserts of a batch whose cache misses overlap


# --- batches (nogil) ----------------------------------------------------------------------------------------------------

ctypedef struct Insert:
    Operation op
    MemC* memtable              # borrowed
    uint64_t hash


cdef const char* next_inserts(OpCursor* ops, const MemSlots* slots, MemSlot** slot, uint64_t seed, Insert* group,
                              int* n) noexcept nogil:
    """Decodes up to GROUP operations and prefetches where they go. Returns NULL or what is wrong with the payload."""
    cdef Insert* each
    cdef const char* problem
    n[0] = 0
    while n[0] < GROUP and ops.left:
        each = &group[n[0]]
        problem = ops_next(ops, &each.op)
        if problem != NULL:
            return problem
        if each.op.keyspace != slot[0].keyspace:
            slot[0] = slots_find(slots, each.op.keyspace)
        each.memtable = slot[0].memtable
        each.hash = xxh3(each.op.key, each.op.klen, seed)
        mem_prefetch(each.memtable, each.hash)
        n[0] += 1
    return NULL


cdef int insert_operations(const MemSlots* slots, const char* payload, size_t n, uint32_t count, uint64_t seq,
                           uint64_t seed, uint64_t* grown, Status* st) noexcept nogil:
    """Inserts into the memtables. Every keyspace in the payload exists. `grown` gets the bytes that they grew by."""
    cdef OpCursor ops
    cdef Insert group[GROUP]
    cdef MemC* m
    cdef MemSlot* slot = slots.items
    cdef uint64_t before
    cdef int i, taken
    cdef const char* problem = ops_begin(&ops, payload, n, count, seq, ANY_OPERATION)
    while problem == NULL and ops.left:
        problem = next_inserts(&ops, slots, &slot, seed, group, &taken)
        for i in range(taken):
            m = group[i].memtable
            before = m.used
            if mem_apply(m, &group[i].op, group[i].hash) != 0:
                return fail_memory(st, b"memtable")
            grown[0] += m.used - before
    return ST_OK if problem == NULL else fail_corrupt(st, problem, 0, 0)


cdef int write_record(LogC* log, const MemSlots* slots, const char* payload, size_t n, uint32_t count, uint64_t seq,
                      uint64_t seed, uint64_t* grown, Status* st) noexcept nogil:
    cdef char* place
    if log != NULL:
        place = log_reserve(log, n, st)
        if place == NULL:
            return st.code
        memcpy(place, payload, n)
        if log_commit(log, n, seq, count, st) != ST_OK:
            return st.code
    return insert_operations(slots, payload, n, count, seq, seed, grown, st)


cdef bint key_unchanged(Tree tree, const char* key, size_t klen, uint64_t hash, Seen seen) noexcept:
    cdef MemEntry* e
    if tree.state is not seen.state:
        return False
    e = mem_find(tree.active.c, key, klen, hash, MAX_SEQ)
    if e != NULL and e.seq > seen.snapshot:
        return False
    return mem_covering_seq(tree.active.c, key, klen, MAX_SEQ) <= seen.snapshot


cdef int sync_log(LogC* log, uint64_t offset, Status* st) noexcept:
    with nogil:
        log_sync(log, offset, st)
    return st.code


cdef int add_syncs(SyncCounters* sum, const LogC* log) noexcept:
    cdef int i
    sum.syncs += lsm_load64(&log.n_syncs)
    sum.ns += lsm_load64(&log.sync_ns)
    for i in range(LATENCY_BUCKETS):
        sum.buckets[i] += lsm_load64(&log.sync_buckets[i])
    return 0


cdef int subtract_syncs(SyncCounters* sum, const SyncCounters* less) noexcept:
    """Wraps around below zero."""
    cdef int i
    sum.syncs -= less.syncs
    sum.ns -= less.ns
    for i in range(LATENCY_BUCKETS):
        sum.buckets[i] -= less.buckets[i]
    return 0


cdef class Engine:
    """The live side of a database: memtables, logs and sequence numbers."""

    def __cinit__(self, str path, uint64_t seed):
        self.handle = handle_new()
        pthread_mutex_init(&self.turn.mutex, NULL)
        pthread_cond_init(&self.turn.freed, NULL)
        self.handle.closed = True
        self.path = path
        self.seed = seed
        self.tree = Tree(path, seed)
        self.forest = Forest(self.tree)
        self.capacity = <uint64_t>-1
        self.value_capacity = <uint64_t>-1
        self.large_value = <uint64_t>-1
        self.old_logs = []
        self.obsolete_logs = []

    def __dealloc__(self):
        handle_unref(self.handle)
        pthread_mutex_destroy(&self.turn.mutex)
        pthread_cond_destroy(&self.turn.freed)

    def new_tree(self, uint32_t keyspace, Memtable memtable=None):
        """A tree for a keyspace that is being created or opened. It joins the forest when its edit is published."""
        cdef Tree tree = Tree(self.path, self.seed, keyspace, self.tree.row_cache)
        if memtable is not None:
            tree.install(ReadState([memtable], [], self.seed))
        return tree

    def start(self, trees, states, LogWriter log, uint64_t last_seq, *, bint readonly=False, bint sync_default=False,
              SyncWatermark watermark=None, old_logs=()):
        """Opens the engine with `trees`, the default one first, and a ReadState for each. `log` is None without logging;
        `old_logs` are the logs of immutable memtables, oldest first."""
        self.forest.replace(list(trees), states)
        self.buffered = self.forest.buffered()
        self.log = log
        self.old_logs = list(old_logs)
        self.watermark = watermark
        if watermark is not None:
            if log is not None:
                log.attach_watermark(watermark, None)
            clock_attach(&self.handle.clock, watermark.c.page)
        self.handle.visible = last_seq
        self.readonly = readonly
        self.sync_default = sync_default
        self.writable = not readonly
        self.handle.closed = False
        if self.writable and last_seq > MAX_SEQ - SEQ_RESERVE:
            # Tables cannot store larger numbers, and an open would refuse a log with them as corrupt.
            self.refuse(Error("the sequence numbers are used up"))

    def adopt(self, Engine other not None):
        """Takes over the state of `other`, of a later moment or of another database at the same path. Read-only engines only."""
        cdef Tree tree, known
        cdef list old = self.forest.trees
        cdef list trees = []
        mine = {tree.keyspace: tree for tree in old if tree is self.tree or self.seed == other.seed}
        for tree in other.forest.trees:
            known = mine.get(tree.keyspace)
            trees.append(Tree(self.path, other.seed, tree.keyspace, self.tree.row_cache) if known is None else known)
        self.forest.replace(trees, [tree.state for tree in other.forest.trees])
        self.seed = other.seed
        for tree in old:
            if tree not in trees:
                tree.close()        # dropped meanwhile
        self.handle.visible = other.handle.visible
        clock_advance(&self.handle.clock, other.clock)

    # --- new states of the trees -----------------------------------------------------------------------------------------

    def prepare(self, list trees, dict levels, drop=(), uint64_t last_seq=0):
        """Makes the states that `publish` installs. trees: all trees after the edit. levels: the new levels by keyspace. drop:
        flushed memtables. last_seq: of ingested tables, or 0. A rotation before `publish` also updates these states. The caller
        holds VersionSet.lock, and the writer's turn if it creates or drops a keyspace."""
        cdef uint64_t seen = self.forest.changes + 1
        cdef uint64_t oldest
        cdef list logs = None
        cdef list obsolete = None
        while seen != self.forest.changes:        # an allocation may run a finalizer that rotates
            seen = self.forest.changes
            self.forest.prepare(trees, levels, drop, last_seq)
            oldest = self.forest.oldest_number()
            logs = [log for log in self.old_logs if oldest and log.number >= oldest]
            obsolete = self.obsolete_logs + [log.number for log in self.old_logs if log not in logs]
        self.next_old_logs = logs
        self.next_obsolete_logs = obsolete
        self.next_seq = last_seq

    def publish(self):
        """Installs what `prepare` made. The edit is durable by now, so nothing here may fail or allocate."""
        cdef list _logs = self.old_logs         # freed on return, after the last assignment
        cdef LogWriter log
        self.forest.publish()
        for log in self.old_logs:
            if log not in self.next_old_logs:
                add_syncs(&self.past_syncs, log.c)
        self.old_logs = self.next_old_logs
        self.obsolete_logs = self.next_obsolete_logs
        self.next_old_logs = None
        self.next_obsolete_logs = None
        if self.next_seq > self.handle.visible:
            self.handle.visible = self.next_seq

    def discard(self):
        """Drops what `prepare` made."""
        self.forest.discard()
        self.next_old_logs = None
        self.next_obsolete_logs = None

    def rotate(self, dict memtables, uint64_t number, LogWriter log):
        """Installs new active memtables, by keyspace, and their log `number`; the old ones become immutable. A keyspace without
        a new one has an empty memtable, which stays. If this raises, nothing has changed. The caller holds the writer's turn
        and VersionSet.lock."""
        cdef list logs, next_old_logs
        cdef LogWriter previous = self.log
        handle_check(self.handle)
        if number <= self.tree.active.number:
            raise Error(f"log {number} cannot follow log {self.tree.active.number}")
        replaced = [] if previous is None else [previous]
        logs = self.old_logs + replaced
        next_old_logs = None if self.next_old_logs is None else self.next_old_logs + replaced
        self.forest.rotate(memtables, number)
        # Nothing fails from here on.
        self.buffered = self.forest.buffered()
        self.old_logs = logs
        self.next_old_logs = next_old_logs
        self.log = log
        self.values = None          # sealed
        if log is not None and self.watermark is not None:
            log.attach_watermark(self.watermark, previous)

    def take_obsolete_logs(self):
        """The numbers of logs that no memtable needs any more, each returned once. The caller removes the files."""
        numbers, self.obsolete_logs = self.obsolete_logs, []
        if self.next_obsolete_logs is not None:
            # The edit being committed started from these.
            del self.next_obsolete_logs[:len(numbers)]
        return numbers

    # --- settings --------------------------------------------------------------------------------------------------------

    def set_delay(self, uint64_t ns_per_kib):
        self.delay = ns_per_kib
        self.update_held()

    def set_stopped(self, bint stopped):
        self.stopped = stopped
        self.update_held()

    def set_reserve_used(self, bint used):
        """While the reserve is in use, only writes that free space are taken: others would eat it up."""
        self.reserve_used = used
        self.update_held()

    cdef int update_held(self) noexcept:
        self.held = self.delay or self.stopped or self.reserve_used
        return 0

    def set_row_cache(self, size_t limit):
        """Bytes that the row cache may hold; 0 keeps none."""
        row_cache_resize(&self.tree.row_cache.c, limit)

    def set_default_ttl(self, Tree tree not None, uint64_t ms):
        """The TTL of puts to `tree` that ask for none; 0: they never expire."""
        tree.default_ttl = ms
        self.default_ttls |= ms != 0

    def set_large_value(self, Tree tree not None, uint64_t threshold, int compression):
        """Values of `threshold` bytes and more go to a value log, with that compression."""
        tree.large_value = threshold
        tree.value_compression = compression
        # Its own counts too: it may not have joined the forest yet.
        self.large_value = min([threshold] + [(<Tree>each).large_value for each in self.forest.trees])

    # --- the clock that judges expiries ------------------------------------------------------------------------------------

    def now(self):
        """The time, in milliseconds since 1970."""
        return clock_now(&self.handle.clock)

    def start_clock(self, uint64_t latest, ManualClock manual=None):
        """Sets the clock to `latest` if it is behind. `manual` replaces the clock of the system."""
        clock_set_manual(&self.handle.clock, NULL if manual is None else manual.time)
        clock_advance(&self.handle.clock, latest)

    @property
    def clock(self):
        """The latest time that was used, in milliseconds since 1970; 0: none was."""
        return lsm_load64(&self.handle.clock.latest)

    # --- whether writes are refused --------------------------------------------------------------------------------------

    def refuse(self, error):
        """Makes the database read-only because of `error`: what reached the disk is unknown. Later errors do not replace it."""
        if self.refusal is not None:
            return
        # Both before the hook: once a call was refused, no later write may be acknowledged.
        self.refusal = error
        self.writable = False
        if self.on_refused is not None:
            self.on_refused()
        logger.error("%s: read-only from now on: %s", self.path, error)

    def require_writable(self):
        """Raises ClosedError or ReadOnlyError if writes are refused, except to the last flush of a close."""
        handle_check(self.handle)
        if not self.writable and not (self.sealed and self.refusal is None):
            self.fail_write()

    def seal(self):
        """Refuses writes from now on: the database closes. The caller holds the writer's turn."""
        self.sealed = True
        self.writable = False

    cdef int fail_write(self) except -1:
        if self.refusal is not None:
            raise ReadOnlyError(f"the database is read-only after an error: {self.refusal}") from self.refusal
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
        """Refuses new calls, waits for those in flight, releases the dependents, then drops memtables and tables. Returns False
        if a thread has stopped for good inside a call (finalization): then everything stays."""
        cdef LogWriter log
        if self.handle.closed:
            return True
        self.writable = False
        if not handle_close(self.handle):
            return False
        for log in self.logs:
            log.detach_watermark()
        clock_attach(&self.handle.clock, NULL)
        if self.watermark is not None:
            self.watermark.close()
            self.watermark = None
        self.forest.close()
        row_cache_free(&self.tree.row_cache.c)
        self.log = None
        self.values = None
        self.old_logs = []
        self.next_old_logs = None
        self.on_full = None
        self.on_large_value = None
        self.on_streamed_value = None
        self.on_refused = None
        self.release_reserve = None
        self.refill_reserve = None
        self.on_upgrade = None
        return True

    # --- properties ------------------------------------------------------------------------------------------------------

    @property
    def closed(self):
        return bool(self.handle.closed)

    @property
    def state(self):
        """The current ReadState; None when closed."""
        return self.tree.state

    @property
    def active(self):
        """The memtable of the default keyspace that takes the writes; None before the start and when closed."""
        return self.tree.active

    @property
    def log_number(self):
        """The number of the log that takes the writes, or would if there was one."""
        handle_check(self.handle)
        return self.tree.active.number

    @property
    def empty(self):
        """Whether nothing was written since the last rotation."""
        cdef Tree tree
        handle_check(self.handle)
        for tree in self.forest.trees:
            if not tree.active.empty:
                return False
        return True

    @property
    def memtables(self):
        """Of all trees; those of a tree newest first, the active one leads."""
        cdef Tree tree
        return [memtable for tree in self.forest.trees if tree.state is not None for memtable in tree.state.memtables]

    @property
    def immutables(self):
        """The memtables that wait for their flush."""
        cdef Tree tree
        return [memtable for tree in self.forest.trees if tree.state is not None for memtable in tree.state.memtables[1:]]

    @property
    def unflushed(self):
        """The numbers of the logs, newest first, whose memtables wait for their flush."""
        return sorted({memtable.number for memtable in self.immutables}, reverse=True)

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

    def counters(self, Tree tree not None):
        """The raw counters of a tree by name, with those of the whole database; `lsmkv.stats.metrics` interprets them."""
        cdef LogWriter log
        cdef dict out = tree.counters()
        out.update(self.writes)
        out.update(self.handle.reads)
        cdef SyncCounters syncs = self.past_syncs
        for log in self.logs:
            add_syncs(&syncs, log.c)
        out["log_syncs"] = syncs.syncs
        out["log_sync_ns"] = syncs.ns
        out["log_sync_buckets"] = [syncs.buckets[i] for i in range(LATENCY_BUCKETS)]
        return out

    def reset_counters(self):
        cdef Tree tree
        cdef LogWriter log
        cdef SyncCounters syncs
        memset(&syncs, 0, sizeof(syncs))
        for log in self.logs:
            add_syncs(&syncs, log.c)
        # The present logs keep their counts: past_syncs becomes their negative, so the sum is 0.
        memset(&self.past_syncs, 0, sizeof(self.past_syncs))
        subtract_syncs(&self.past_syncs, &syncs)
        for tree in self.forest.trees:
            counters_reset(&tree.lookups)
        memset(&self.writes, 0, sizeof(self.writes))
        memset(&self.handle.reads, 0, sizeof(self.handle.reads))

    # --- the writer's turn -------------------------------------------------------------------------------------------------

    cdef int take_turn(self) except -1:
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
        """The number of threads that hold the writer's turn or wait for it."""
        return self.turn.drawn - self.turn.served

    def exclusive(self):
        """Holds the writer's turn: no other writer runs inside the `with` block, except through `write_exclusive`."""
        return Exclusive(self)

    # --- writes ----------------------------------------------------------------------------------------------------------

    cdef int throttle(self, uint64_t footprint, bint frees) except -1:
        cdef uint64_t began, now, ns
        if self.reserve_used and not frees:
            if self.refill_reserve is not None:
                self.refill_reserve()
            if self.reserve_used:
                raise LsmIOError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; deletes are still accepted", self.path)
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
            # A large write may sleep for seconds; a close or Ctrl-C ends that.
            while now - began < ns and self.writable and not self.handle.closed:
                with nogil:
                    usleep(<unsigned int>(min(began + ns - now, <uint64_t>LONGEST_SLEEP_NS) // 1000 + 1))
                PyErr_CheckSignals()
                now = lsm_now_ns()
            self.writes.slowdowns += 1
            self.writes.slowdown_ns += now - began
        return self.check_writable()

    cdef int make_room(self, bint keep_turn, bint frees) except -1:
        cdef bint ready = False
        section_refuse()
        self.take_turn()
        # In flight: a close waits for the rotation.
        self.handle.inflight += 1
        section_enter()
        try:
            self.check_writable()
            if self.buffered >= self.capacity:
                self.on_full(frees)
                self.check_writable()
            ready = True
        finally:
            section_leave()
            self.handle.inflight -= 1
            if not (ready and keep_turn):
                self.end_turn()
        return 0

    cdef int begin_write(self, uint64_t footprint, bint keep_turn, bint frees) except -1:
        if self.held:
            self.throttle(footprint, frees)
        if self.turn.drawn != self.turn.served or self.buffered >= self.capacity:
            return self.make_room(keep_turn, frees)
        if keep_turn:
            self.turn.drawn += 1        # the turn is free, as checked above
        return 0

    cdef bint has_reserve(self, bint frees, const Status* st) except -1:
        if not frees or st.code != ST_IO or (st.err != ENOSPC and st.err != EDQUOT) or self.release_reserve is None:
            return False
        return self.release_reserve()

    cdef int write_one(self, Tree tree, int op, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                       int sync, Seen seen=None) except -1:
        cdef Status st
        cdef LogC* log
        cdef MemC* m
        cdef char* place
        cdef size_t n
        cdef uint64_t hash, before, end = 0
        if tree.state is None:
            refuse_dropped()
        hash = xxh3(key, klen, self.seed)
        mem_prefetch(tree.active.c, hash)
        if expiry and not self.format_2:
            self.upgrade()
        self.begin_write(klen + vlen, False, op != OP_PUT)
        if tree.state is None:
            refuse_dropped()
        if seen is not None and not key_unchanged(tree, key, klen, hash, seen):
            return 0
        m = tree.active.c
        before = m.used
        if mem_reserve(m, klen, vlen, expiry) != 0:
            raise MemoryError("memtable")
        if self.log is not None:
            log = self.log.c
            status_clear(&st)
            n = op_size(op, tree.keyspace, klen, vlen, expiry)
            place = log_reserve(log, n, &st)
            if place != NULL:
                op_encode(place, op, tree.keyspace, key, klen, value, vlen, expiry)
                log_commit(log, n, self.handle.visible + 1, 1, &st)
            if st.code != ST_OK:
                if self.has_reserve(op != OP_PUT, &st):
                    self.check_writable()
                    return self.write_one(tree, op, key, klen, value, vlen, expiry, sync, seen)
                raise_status(&st, self.log.path)
            end = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        elif sync == SYNC_YES:
            refuse_sync()
        mem_insert(m, key, klen, value, vlen, expiry, self.handle.visible + 1, op, hash)
        self.handle.visible += 1
        self.buffered += m.used - before
        self.writes.bytes_written += klen + vlen
        if op == OP_PUT:
            self.writes.puts += 1
            if tree.spans.known != NULL:
                tree.spans.cut(key, klen)
        else:
            self.writes.deletes += 1
        if wants_sync(self, sync):
            self.sync_to(end)
        return 1

    cdef int write_payload(self, const BatchC* b, int sync, WriteCondition condition=None) except -1:
        cdef WriteBatch expiring
        cdef uint64_t end = 0
        cdef bint large
        if sync == SYNC_YES and self.log is None:
            refuse_sync()
        if b.count == 0:
            # Nothing to write, but a sync also covers what was written before.
            if wants_sync(self, sync):
                self.sync()
            return 1
        if self.default_ttls:
            expiring = self.with_default_expiries(b)
            b = &expiring.b
        if b.expiries and not self.format_2:
            self.upgrade()
        large = b.used >= LARGE_BATCH
        while True:
            self.begin_write(b.used, large, b.deletes == b.count)
            if condition is not None and not condition.holds():
                if large:
                    self.end_turn()
                return 0
            if not self.apply_payload(b, large, &end):
                break
            self.check_writable()
        self.count_batch(b)
        if wants_sync(self, sync):
            self.sync_to(end)
        return 1

    cdef int count_batch(self, const BatchC* b) noexcept:
        self.writes.batches += 1
        self.writes.puts += b.count - b.deletes
        self.writes.deletes += b.deletes
        self.writes.bytes_written += b.used
        return 0

    cdef int upgrade(self) except -1:
        section_refuse()
        self.on_upgrade()
        return self.check_writable()

    cdef WriteBatch with_default_expiries(self, const BatchC* b):
        cdef WriteBatch out = WriteBatch()
        cdef OpCursor ops
        cdef Operation op
        cdef uint64_t expiry
        cdef uint64_t now = clock_now(&self.handle.clock)
        ops_begin(&ops, b.data, b.used, b.count, 0, ANY_OPERATION)
        while ops.left:
            if ops_next(&ops, &op) != NULL:
                break       # never: a batch encodes its own operations
            expiry = op.expiry
            if op.op == OP_PUT and expiry == 0:
                expiry = self.forest.default_ttl(op.keyspace)
                if expiry:
                    expiry += now
            batch_add(&out.b, op.keyspace, op.op, op.key, op.klen, op.value, op.vlen, expiry)
        self.check_writable()
        return out

    cdef int check_keyspaces(self, const BatchC* b) except -1:
        cdef OpCursor ops
        cdef Operation op
        ops_begin(&ops, b.data, b.used, b.count, 0, ANY_OPERATION)
        while ops.left:
            ops_next(&ops, &op)
            if slots_find(&self.forest.slots, op.keyspace) == NULL:
                refuse_dropped()
        return 0

    cdef int apply_payload(self, const BatchC* b, bint large, uint64_t* end) except -1:
        cdef Status st
        cdef LogC* log = NULL
        cdef MemSlots slots = self.forest.slots
        cdef uint64_t seq
        cdef uint64_t seed = self.seed
        cdef uint64_t grown = 0
        cdef size_t n = b.used
        cdef uint32_t count = b.count
        cdef const char* payload = b.data
        cdef LogWriter writer
        status_clear(&st)
        writer = self.log
        if writer is not None:
            log = writer.c
        seq = self.handle.visible + 1
        try:
            if b.keyspaces:
                self.check_keyspaces(b)
            self.handle.inflight += large
            if large:
                with nogil:
                    write_record(log, &slots, payload, n, count, seq, seed, &grown, &st)
            else:
                write_record(log, &slots, payload, n, count, seq, seed, &grown, &st)
            self.handle.inflight -= large
        finally:
            if large:
                self.end_turn()
        self.buffered += grown
        if st.code != ST_OK:
            if self.has_reserve(b.deletes == count, &st):
                return 1
            if st.code != ST_IO:
                # The record is in the log, but only partly in the memtable: a reopen would find more than readers see.
                self.refuse(MemoryError("out of memory while a batch was inserted into the memtable"))
            raise_status(&st, self.path if writer is None else writer.path)
        self.forest.cut_spans(b)
        self.handle.visible = seq + count - 1
        if log != NULL:
            end[0] = log.offset
            self.writes.log_bytes += LOG_RECORD_HEADER + n
        return 0

    def write_exclusive(self, WriteBatch batch not None):
        """Writes inside `exclusive()`, so that nothing comes between a read and this write. Does not sync."""
        cdef uint64_t end = 0
        self.check_writable()
        if self.buffered >= self.capacity:
            self.on_full(batch.b.deletes == batch.b.count)
            self.check_writable()
        while self.apply_payload(&batch.b, False, &end):
            self.check_writable()
        self.count_batch(&batch.b)

    def sync(self):
        """Returns once everything written so far survives a power cut."""
        self.check_writable()
        if self.log is not None:
            self.sync_to(lsm_load64(&self.log.c.offset))

    cdef int sync_to(self, uint64_t offset) except -1:
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
            # A rotation may have moved the record to an older log; its offset can then be beyond the end of this one.
            sync_log(current.c, min(offset, lsm_load64(&current.c.offset)), &st)
        self.handle.inflight -= 1
        if st.code != ST_OK:
            try:
                raise_status(&st, log.path)
            except Exception as error:
                self.refuse(error)
                raise
        return 0


cdef class Seen:
    """What a write found when it read its key."""


cdef class WriteCondition:
    """What must hold for a batch to be written."""

    cdef bint holds(self) noexcept:
        return True


cdef class Exclusive:
    """The writer's turn for a `with` block. Leaving it allocates nothing: if that failed, the turn would never end."""

    def __cinit__(self, Engine engine not None):
        self.engine = engine

    def __enter__(self):
        self.engine.take_turn()
        self.engine.handle.inflight += 1

    def __exit__(self, kind, error, trace):
        self.engine.handle.inflight -= 1
        self.engine.end_turn()

# The engine: the active memtable, the log, the published state, and the calls users make. Python (lsmkv.db.DB) derives from Engine
# and adds the control plane; get and put run without a Python frame.
#
# Writers: one at a time. A short write keeps the GIL from its log record to its memtable entry, and that alone keeps others out.
# Who lets the GIL go in between (a large batch, a rotation, flush()) takes the writer's turn first; others wait for it off the GIL.
# Readers: pin self.state by holding a reference, look up to self.visible.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.batch cimport BatchC
from lsmkv_ext.cache.row_cache cimport RowCacheC
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.port.handle cimport Dependent, HandleC
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.read.read_state cimport Counters, Lookup, ReadState
from lsmkv_ext.table.reader cimport ReadContext
from lsmkv_ext.wal.writer cimport LogWriter

ctypedef struct WriteCounters:
    uint64_t puts
    uint64_t deletes
    uint64_t batches
    uint64_t bytes_written      # keys and values
    uint64_t log_bytes
    uint64_t slowdowns
    uint64_t slowdown_ns
    uint64_t stops
    uint64_t stop_ns

ctypedef struct WriterTurn:     # tickets, so that nobody is overtaken for ever; under the GIL, but waiters sleep on `freed`
    uint64_t drawn              # taken: drawn != served
    uint64_t served             # the holder has this ticket
    pthread_mutex_t mutex
    pthread_cond_t freed


cdef class Engine:
    cdef HandleC* handle
    cdef ReadState state_
    cdef Memtable active_
    cdef LogWriter log_
    cdef list old_logs          # logs of immutable memtables, oldest first: a sync covers them before the current one
    cdef readonly uint64_t seed  # of the database in state_; a state that is held may be of another (_refresh)
    cdef ReadState next_state         # made by _prepare, shown by _publish; None: nothing is prepared
    cdef list next_logs
    cdef uint64_t next_seek_limit
    cdef uint64_t next_seq
    cdef uint64_t visible       # sequence number up to which everybody may look
    cdef bint sync_default
    cdef readonly bint readonly
    cdef bint writable
    cdef object poison          # the exception that made the database read-only
    cdef readonly str path
    cdef Counters counters_
    cdef RowCacheC row_cache
    cdef uint32_t generation    # of the levels in state_: what row_cache say holds for one
    cdef WriteCounters writes
    cdef uint64_t seek_limit    # seek debt from which on merging L0 pays
    cdef WriterTurn turn
    cdef uint64_t delay         # ns per KiB written
    cdef uint64_t owed          # ns of delay not yet slept
    cdef bint stopped
    cdef object __weakref__

    cdef object lookup(self, ReadState state, uint64_t snapshot, object key, object default, bint fill_cache, int expect)
    cdef object lookup_bytes(self, ReadState state, uint64_t snapshot, const char* key, size_t klen, bytes row_key, object default,
                             bint fill_cache, int expect)
    cdef object get_from_tables(self, ReadState state, Lookup* q, bytes row_key, object default, bint fill_cache)
    cdef list lookup_many(self, ReadState state, uint64_t snapshot, object keys, object default)
    cdef int check_writable(self) except -1
    cdef int write_op(self, int op, object key, object value, object sync) except -1
    cdef int write_one(self, int op, const char* key, size_t klen, const char* value, size_t vlen, object sync) except -1
    cdef int write_payload(self, const BatchC* b, object sync) except -1
    cdef int prepare(self, uint64_t footprint, bint keep_turn) except -1
    cdef int make_room(self, bint keep_turn) except -1
    cdef int hold_back(self, uint64_t footprint) except -1
    cdef int take_turn(self) except -1
    cdef int end_turn(self) noexcept
    cdef int sync_to(self, uint64_t offset) except -1
    cdef int fail_write(self) except -1
    cdef int count_disk(self, const ReadContext* rc) noexcept
    cdef int raise_read(self, ReadState state, const Status* st) except -1


cdef class SnapshotBase(Dependent):
    cdef Engine engine
    cdef ReadState state
    cdef readonly uint64_t sequence
    cdef bint open_
    cdef int check(self) except -1

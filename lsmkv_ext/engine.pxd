# The engine, the live side of a database: sequence numbers, the writer's turn, logs and group commit, back pressure, whether
# writes are refused and why, and the tree. The durable side (version, manifest, file numbers) is the VersionSet's, which
# publishes new levels here. Users call the engine through a Store (lsmkv.DB); the background holds the engine itself.
#
# Writers: one at a time. A short write keeps the GIL from its log record to its memtable entry, and that alone keeps others out.
# A writer that will release the GIL in between (a large batch, a rotation, flush()) takes its turn first; others wait for it off
# the GIL.
#
# put is a hot chain: it stays in one module down to the log and the memtable.
#
# GIL-protected: every field, and the order of log record and memtable entry of short writes

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.batch cimport BatchC
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.tree cimport Tree
from lsmkv_ext.wal.sync_watermark cimport SyncWatermark
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

cdef enum SyncWish:             # of one write
    SYNC_AS_DEFAULT = -1
    SYNC_NO = 0
    SYNC_YES = 1


cdef inline int sync_wish(object sync) except -2:
    """May run Python code: call it before the check that the database is open."""
    return SYNC_AS_DEFAULT if sync is None else bool(sync)


ctypedef struct WriterTurn:     # tickets, so that no writer starves; changed under the GIL, but waiters sleep on `freed`
    uint64_t drawn              # taken: drawn != served
    uint64_t served             # the holder has this ticket
    pthread_mutex_t mutex
    pthread_cond_t freed


cdef class Engine:
    cdef HandleC* handle        # owned by reference
    cdef readonly Tree tree
    cdef readonly LogWriter log         # in use; None: no log
    cdef list old_logs          # logs of immutable memtables, oldest first: a sync covers them first. Replaced, never changed
    cdef SyncWatermark watermark        # how much of the log in use is known synced; None: its head tells
    cdef list served            # numbers of logs that no memtable needs any more
    cdef list next_logs         # old_logs and served after publish; None: nothing is prepared
    cdef list next_served
    cdef uint64_t next_seq      # handle.visible after publish, if it is larger
    cdef readonly bint readonly
    cdef bint sync_default
    cdef bint writable
    cdef bint sealed            # the last flush has begun: nothing would flush another write
    cdef readonly object refusal        # the exception since which writes are refused, or None
    # Hooks of the control plane, called without arguments; None: nobody listens.
    cdef public object on_full          # rotates; called in the writer's thread with the turn taken
    cdef public object on_refused
    cdef WriteCounters writes
    cdef WriterTurn turn
    cdef uint64_t delay         # ns per KiB written
    cdef uint64_t owed          # ns of delay not yet slept
    cdef bint stopped

    cdef int check_writable(self) except -1
    cdef int fail_write(self) except -1
    cdef int take_turn(self) except -1
    cdef int end_turn(self) noexcept
    cdef int hold_back(self, uint64_t footprint) except -1
    cdef int make_room(self, bint keep_turn) except -1
    cdef int begin_write(self, uint64_t footprint, bint keep_turn) except -1
    # The caller has checked that it is writable, and nothing has run since that could close it. `sync` is a SyncWish.
    cdef int write_one(self, int op, const char* key, size_t klen, const char* value, size_t vlen, int sync) except -1
    cdef int write_payload(self, const BatchC* b, int sync) except -1
    cdef int sync_to(self, uint64_t offset) except -1

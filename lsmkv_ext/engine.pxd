# The engine: sequence numbers, the writer's turn, logs and group commit, back pressure, and whether writes are refused and why.
# Python (lsmkv.db.DB) derives from Engine and adds the control plane; put runs without a Python frame.
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
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.reader cimport Reader
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

ctypedef struct WriterTurn:     # tickets, so that no writer starves; changed under the GIL, but waiters sleep on `freed`
    uint64_t drawn              # taken: drawn != served
    uint64_t served             # the holder has this ticket
    pthread_mutex_t mutex
    pthread_cond_t freed


cdef class Engine(Reader):
    cdef LogWriter log_         # None: no log
    cdef list old_logs          # logs of immutable memtables, oldest first: a sync covers them before the current one
    cdef list next_logs         # old_logs after _publish; None: nothing is prepared
    cdef uint64_t next_seq      # handle.visible after _publish, if it is larger
    cdef bint sync_default
    cdef readonly bint readonly
    cdef bint writable
    cdef object poison          # the exception that made the database read-only
    cdef WriteCounters writes
    cdef WriterTurn turn
    cdef uint64_t delay         # ns per KiB written
    cdef uint64_t owed          # ns of delay not yet slept
    cdef bint stopped
    cdef object __weakref__

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

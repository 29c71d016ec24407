# The engine, the live side of a database. It owns the sequence numbers, the writer's turn, the logs and group commit, back
# pressure, the reason why writes are refused, and the trees. The VersionSet owns the durable side (version, manifest, file
# numbers) and publishes new levels to the engine. Users call the engine through a Store (lsmkv.DB); background threads call it
# directly.
#
# There is one writer at a time. A short write keeps the GIL from its log record to its memtable entry, which excludes all
# others. A writer that will release the GIL in between (large batch, rotation, flush) takes the turn first; others wait for it
# without the GIL.
#
# One long module: a call into another one goes through a pointer, so put and batch writes stay together from the turn to the log
# and the memtable.
#
# GIL-protected: every field, and the order of log record and memtable entry of short writes

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.batch cimport BatchC, WriteBatch
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.port.latency cimport LATENCY_BUCKETS
from lsmkv_ext.port.pthread cimport pthread_cond_t, pthread_mutex_t
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.forest cimport Forest
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.tree cimport Tree
from lsmkv_ext.values.writer cimport ValueWriter
from lsmkv_ext.wal.sync_watermark cimport SyncWatermark
from lsmkv_ext.wal.writer cimport LogWriter

ctypedef struct WriteCounters:
    uint64_t puts
    uint64_t deletes
    uint64_t batches
    uint64_t bytes_written      # keys and values
    uint64_t value_log_bytes    # written to value logs by puts and batches
    uint64_t log_bytes
    uint64_t slowdowns
    uint64_t slowdown_ns
    uint64_t stops
    uint64_t stop_ns

ctypedef struct SyncCounters:   # of the logs
    uint64_t syncs
    uint64_t ns
    uint64_t buckets[LATENCY_BUCKETS]

cdef enum:
    LARGE_BATCH = 64 << 10      # bytes; a write of so many is made off the GIL

cdef enum SyncWish:             # of one write
    SYNC_AS_DEFAULT = -1
    SYNC_NO = 0
    SYNC_YES = 1


cdef inline int sync_wish(object sync) except -2:
    """May run Python code: call it before the check that the database is open."""
    return SYNC_AS_DEFAULT if sync is None else bool(sync)


ctypedef struct WriterTurn:     # tickets, in the order of asking. Changed with the GIL held; waiters sleep on `freed`
    uint64_t drawn              # the next ticket; the turn is free if drawn == served
    uint64_t served             # the ticket of the holder
    pthread_mutex_t mutex
    pthread_cond_t freed


cdef class Seen:                # the version of a key that an update read
    cdef ReadState state
    cdef uint64_t snapshot
    cdef uint64_t expiry        # of the value; 0: none


cdef class WriteCondition:      # of a batch; checked in one step with the write
    cdef bint holds(self) noexcept      # allocates nothing and keeps the GIL


cdef class Engine:
    cdef HandleC* handle        # owned by reference
    cdef readonly Forest forest
    cdef readonly Tree tree     # of the default keyspace
    cdef readonly str path
    cdef uint64_t seed
    cdef uint64_t buffered      # bytes in the active memtables
    cdef public uint64_t capacity       # the active memtables are rotated at this size
    cdef readonly LogWriter log         # in use; None: no log
    cdef readonly ValueWriter values    # takes the large values; None: none was written since the last rotation
    cdef public uint64_t value_capacity     # a rotation is due once the value log has this size
    cdef uint64_t large_value           # the smallest threshold of all trees; UINT64_MAX: none has one
    cdef list old_logs          # logs of immutable memtables, oldest first; synced before the one in use. Replaced, never changed
    cdef SyncWatermark watermark        # the file SYNCED, for the log in use; None: the log's head has the offset
    cdef list obsolete_logs     # numbers of logs whose memtables are flushed
    # From prepare to publish: the values of these fields after it; next_old_logs None: nothing is prepared.
    cdef list next_old_logs
    cdef list next_obsolete_logs
    cdef uint64_t next_seq      # the next handle.visible, if larger
    cdef readonly bint readonly
    cdef bint sync_default
    cdef bint writable
    cdef public bint format_2   # the database has it, and with it expiries and large values
    cdef bint default_ttls      # a tree has or had one
    cdef bint sealed            # closing: the last flush has begun, so no write is taken
    cdef readonly object refusal        # the error that made the database read-only, or None
    # Hooks of the control plane, or None.
    cdef public object on_full          # (frees): rotates a full memtable, in the writer's thread, which holds the turn
    cdef public object on_refused       # (): called once, when `refusal` is set
    cdef public object release_reserve  # (): frees the disk space set aside; returns whether there was any
    cdef public object refill_reserve   # (): sets space aside again if there is any, and calls set_reserve_used
    cdef public object on_large_value   # (): returns a new ValueWriter, whose name is durable; the caller holds the turn
    cdef public object on_streamed_value    # (): the same for one value of its own; the caller holds no turn
    cdef public object on_upgrade       # (): gives the database the latest format and sets `format_2`
    cdef WriteCounters writes
    cdef SyncCounters past_syncs        # of logs that are removed, less those of present ones before the last reset
    cdef WriterTurn turn
    cdef uint64_t delay         # ns per KiB written
    cdef uint64_t owed          # ns of delay not yet slept
    cdef bint stopped
    cdef bint reserve_used      # the disk is full: only writes that free space are taken
    cdef bint held              # delay, stopped or reserve_used is set: the one test that every write makes

    # Raises ClosedError or ReadOnlyError if writes are refused. fail_write: the caller has found that they are.
    cdef int check_writable(self) except -1
    cdef int fail_write(self) except -1
    # Waits for the writer's turn without the GIL. Turns are in the order of asking: otherwise writers that rotate all the time
    # could starve a flush or a close.
    cdef int take_turn(self) except -1
    cdef int end_turn(self) noexcept
    # Does everything of a write that may wait: back pressure, the turn, a rotation. On return the GIL has been held since the
    # last check, which excludes other writers. keep_turn: the caller will release the GIL, so it also holds the turn on return.
    # frees: the write has only deletes, which free more space than they take. It calls the two below if it must wait.
    cdef int begin_write(self, uint64_t footprint, bint keep_turn, bint frees) except -1
    # Back pressure: waits while writers are stopped, and sleeps in proportion to the bytes written.
    cdef int throttle(self, uint64_t footprint, bint frees) except -1
    # Waits for the turn and, through the hook, rotates a full memtable. Both may release the GIL.
    cdef int make_room(self, bint keep_turn, bint frees) except -1
    # Whether to retry the write that failed with *st: it frees space, and the reserve was released for it.
    cdef bint has_reserve(self, bint frees, const Status* st) except -1
    # The caller has checked that the engine is writable, and nothing has run since that could close it. `sync` is a SyncWish.
    # With `seen` it writes only if the key has not changed since. An expiry of 0 is none. Returns whether it wrote.
    cdef int write_one(self, Tree tree, int op, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                       int sync, Seen seen=*) except -1
    # Returns whether it wrote: always, but for a condition that does not hold.
    cdef int write_payload(self, const BatchC* b, int sync, WriteCondition condition=*) except -1
    cdef int count_batch(self, const BatchC* b) noexcept
    # Raises KeyspaceError if an operation names a keyspace that was dropped.
    cdef int check_keyspaces(self, const BatchC* b) except -1
    # Gives a database of format 1 format 2.
    cdef int upgrade(self) except -1
    cdef int update_held(self) noexcept
    # A copy of the batch in which puts without an expiry have the default one of their keyspace.
    cdef WriteBatch with_default_expiries(self, const BatchC* b)
    # Writes the log record and the memtable entries. `large`: off the GIL, and ends the turn. `end` gets the end of the record.
    # Returns 1 if the disk was full and the reserve has been released: begin again.
    cdef int apply_payload(self, const BatchC* b, bint large, uint64_t* end) except -1
    # Returns once the log in use up to `offset`, and all older logs, survive a power cut. The older ones are synced first: the
    # synced writes are always a prefix of all writes.
    cdef int sync_to(self, uint64_t offset) except -1


cdef inline bint wants_sync(Engine engine, int sync) noexcept:
    return engine.sync_default if sync == SYNC_AS_DEFAULT else sync


# Whether nothing was written to the key since. A rotation, flush or ingest in between counts as a change: then the newer entries
# may be anywhere.
cdef bint key_unchanged(Tree tree, const char* key, size_t klen, uint64_t hash, Seen seen) noexcept


cdef class Exclusive:           # the writer's turn for a `with` block
    cdef Engine engine

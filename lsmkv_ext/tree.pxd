# The memtables and levels of one keyspace: the active memtable, the current ReadState, the row cache and the counters of lookups.
#
# Its Forest changes it: see there for the order of prepare, publish and rotate.
#
# GIL-protected: every field. A reader takes `state` by reference and works on that.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.cache.row_cache cimport RowCache
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.dead_spans cimport DeadSpans
from lsmkv_ext.read.read_state cimport ReadState


cdef int refuse_dropped() except -1         # raises KeyspaceError


cdef class Tree:
    cdef readonly uint32_t keyspace  # its id; 0: the default one
    cdef readonly Memtable active   # takes the writes; state.memtables[0]
    # None: closed, or the keyspace was dropped. Hold the old one while replacing it: freeing it may run Python code.
    cdef readonly ReadState state
    cdef readonly DeadSpans spans   # those of `state`. Every put cuts them
    cdef readonly uint64_t seed     # of the database in `state`; after a refresh, snapshots may hold states of another one
    cdef readonly str path          # of the database, for errors
    cdef ReadState next_state       # from prepare to publish; None: nothing is prepared
    # For the check of transactions: flushed memtables that they may need, newest first, and the largest sequence number that is
    # in no memtable any more.
    cdef list kept
    cdef uint64_t forgotten
    cdef list next_kept             # from prepare to publish
    cdef uint64_t next_forgotten
    # From stage_rotation to rotate: the values of the fields after it.
    cdef Memtable rotated           # None: nothing is staged
    cdef ReadState rotated_state
    cdef ReadState rotated_next_state
    cdef RowCache row_cache
    cdef uint64_t row_salt          # so that a key of two keyspaces has two places in the row cache
    cdef uint32_t generation        # changes with the levels in `state`; a cached row is valid for one generation
    cdef Counters lookups
    cdef uint64_t default_ttl       # of puts without an expiry, in ms; 0: none
    cdef uint64_t large_value       # values of so many bytes go to a value log; UINT64_MAX: none does
    cdef int value_compression      # of these: VALUE_*

    cdef int next_generation(self) noexcept     # invalidates the cached rows
    # After a new state: puts to the active memtable cut its spans from now on, not those of the old state.
    cdef int take_spans(self) noexcept
    # Replaces the state at open and refresh. After a refresh it may be the state of another database at the same path.
    cdef int install(self, ReadState state) except -1
    # Makes the state that `publish` installs: `levels`, and the memtables without those in `drop`.
    cdef int prepare(self, object levels, object drop) except -1
    # After `prepare`: chooses the flushed memtables to keep. Transactions read at `oldest` or later; UINT64_MAX: there are none.
    cdef int keep_flushed(self, object drop, uint64_t oldest) except -1
    # After `keep_flushed`: to transactions, all keys in the ranges of the tables ingested at `seq` have changed. Keeps a memtable
    # with a range tombstone for each table, which tells them.
    cdef int keep_ingested(self, object levels, uint64_t seq) except -1
    cdef int forget_kept(self) noexcept     # the last transaction has ended
    # Leaves the old state in `next_state` for `discard`: freeing it may run Python code, which must find all trees published.
    cdef int publish(self) noexcept
    cdef int discard(self) noexcept
    # Makes the states that `rotate` installs.
    cdef int stage_rotation(self, Memtable memtable) except -1
    cdef int unstage_rotation(self) noexcept
    cdef int rotate(self) noexcept
    cdef int close(self) noexcept
    cpdef dict counters(self)       # those of lookups, by name

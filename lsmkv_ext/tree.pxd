# One keyspace: its active memtable, and the ReadState of its memtables and levels that readers use, with the row cache and the
# counters of lookups in it.
#
# A new state is prepared, then published. Publishing follows a durable manifest edit, so it only assigns and cannot fail.
# Rotations in between keep the prepared state current. Preparing, publishing and discarding hold the lock that rotations take
# (VersionSet.lock); a rotation also holds the writer's turn.
#
# GIL-protected: every field. A reader takes `state` by reference and works on that.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.cache.row_cache cimport RowCacheC
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.read_state cimport ReadState


cdef class Tree:
    cdef readonly Memtable active   # takes the writes; state.memtables[0]
    cdef readonly ReadState state   # None: closed. Whoever replaces it holds the old one until all of the change is made
    cdef readonly uint64_t seed     # of the database in `state`; a state that is held may be of another (refresh)
    cdef readonly str path          # of the database, for errors
    cdef ReadState next_state       # from prepare to publish; None: nothing is prepared
    cdef RowCacheC row_cache
    cdef uint32_t generation        # of the levels in `state`: a cached row holds for one
    cdef Counters counters

    cdef int show(self, ReadState state) except -1
    cdef int prepare(self, object levels, object drop) except -1
    cdef int publish(self) noexcept
    cdef int discard(self) noexcept
    cdef int rotate(self, Memtable memtable) except -1      # when it raises, nothing has changed
    cdef int close(self) noexcept
    cdef dict counted(self)                                 # the counters of lookups

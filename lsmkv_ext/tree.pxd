# The memtables and levels of one keyspace: the active memtable, the current ReadState, the row cache and the counters of lookups.
#
# A new state is prepared before a manifest edit and published after it. The edit is durable by then, so publishing only assigns
# and cannot fail. A rotation in between adds its memtable to both states. All of this runs under VersionSet.lock; a rotation also
# holds the writer's turn.
#
# GIL-protected: every field. A reader takes `state` by reference and works on that.

from libc.stdint cimport uint32_t, uint64_t
from lsmkv_ext.cache.row_cache cimport RowCacheC
from lsmkv_ext.memtable.memtable cimport Memtable
from lsmkv_ext.read.counters cimport Counters
from lsmkv_ext.read.read_state cimport ReadState


cdef class Tree:
    cdef readonly Memtable active   # takes the writes; state.memtables[0]
    cdef readonly ReadState state   # None: closed. Hold the old one while replacing it: freeing it may run Python code
    cdef readonly uint64_t seed     # of the database in `state`; after a refresh, snapshots may hold states of another one
    cdef readonly str path          # of the database, for errors
    cdef ReadState next_state       # from prepare to publish; None: nothing is prepared
    cdef RowCacheC row_cache
    cdef uint32_t generation        # changes with the levels in `state`; a cached row is valid for one generation
    cdef Counters counters

    cdef int install(self, ReadState state) except -1
    cdef int prepare(self, object levels, object drop) except -1
    cdef int publish(self) noexcept
    cdef int discard(self) noexcept
    cdef int rotate(self, Memtable memtable) except -1      # when it raises, nothing has changed
    cdef int close(self) noexcept
    cdef dict counters_by_name(self)

# Optimistic transactions. A transaction reads a snapshot and collects its writes in a batch. The commit checks, in one step with
# the write, that nothing it read has changed since the snapshot; otherwise it raises ConflictError.
#
# The check reads memory alone: newer entries of a key are in the memtables written since the snapshot. While transactions live,
# the trees keep flushed memtables for it, up to a limit (`Tree.kept`); what they no longer have counts as changed
# (`Tree.forgotten`). Tables could not prove that a range is unchanged: a key that was deleted and compacted away leaves no trace.
#
# GIL-protected: every field, and the check together with the write

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from lsmkv_ext.batch cimport WriteBatch
from lsmkv_ext.engine cimport Engine, WriteCondition
from lsmkv_ext.memtable.arena cimport ArenaChunk
from lsmkv_ext.memtable.memtable cimport MemC
from lsmkv_ext.memtable.tombstones cimport Span
from lsmkv_ext.reader cimport SnapshotBase
from lsmkv_ext.tree cimport Tree

ctypedef struct Position:       # where the next entry of a tree went when the transaction began
    MemC* memtable
    ArenaChunk* chunk
    size_t used


cdef class TransactionBase(SnapshotBase):
    cdef Engine engine
    cdef WriteBatch batch       # None: nothing was written
    cdef dict own               # (keyspace, key): value, or None if deleted or expired
    cdef dict own_expiries      # (keyspace, key): expiry of its last put, 0 if that asked for none
    cdef list own_ranges        # [(keyspace, start, stop)] deleted
    cdef list reads             # [(tree, key)]
    cdef list ranges            # [ReadRange]
    cdef Position* positions    # of the trees in `states`, in their order; owned
    # The forest in which it is counted as live, or NULL. An owned reference, which the collector does not see: it would clear a
    # field before __dealloc__.
    cdef PyObject* counted_in
    cdef uint64_t last_written  # the last sequence number of its writes; 0 before the commit

    cdef int check_live(self) except -1
    cdef int uncount(self) noexcept
    cdef int end(self) noexcept
    cdef int record(self, Tree tree, int op, bytes key, bytes value, uint64_t expiry) except -1
    cdef object lookup(self, object key, object default, object keyspace, uint64_t* expiry)
    cdef uint64_t default_expiry(self, Tree tree) noexcept
    cdef bint pin_positions(self) except -1
    cdef bint write(self, int wish) except -1
    cdef bint unchanged(self) noexcept
    cdef bint range_changed(self, ReadRange span, list memtables) noexcept


cdef class ReadRange:           # keys that an iteration has passed
    cdef Tree tree
    cdef readonly bytes low     # inclusive; None: from the first key
    cdef readonly bytes high    # None: to the last key
    cdef readonly bint high_included
    cdef bint holds(self, const char* key, size_t klen) noexcept
    cdef bint meets(self, const Span* other) noexcept


cdef class Unchanged(WriteCondition):
    cdef TransactionBase transaction

# The trees of a database, one for each keyspace. A rotation and a manifest edit may concern several of them: everything that can
# fail comes first, then all change at once.
#
# A manifest edit is prepared, made durable, then published. A rotation in between adds its memtables to the current and to the
# prepared states. All of this runs under VersionSet.lock; a rotation, and an edit that creates or drops a keyspace, also hold the
# writer's turn.
#
# GIL-protected: every field. `slots` is also read by a large batch without the GIL, which holds the writer's turn.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.batch cimport BatchC
from lsmkv_ext.memtable.slots cimport MemSlots
from lsmkv_ext.tree cimport Tree


cdef class Forest:
    cdef readonly list trees        # in ascending order of keyspaces. Replaced, never changed
    cdef MemSlots slots             # their active memtables
    cdef uint64_t changes           # of the states and the trees: rotations and edits
    cdef uint64_t transactions      # that live
    cdef uint64_t oldest_read       # no transaction reads at a smaller sequence number
    # From prepare to publish.
    cdef list next_trees            # None: nothing is prepared
    cdef MemSlots next_slots       # only if the edit creates or drops a keyspace

    # Replaces the trees and their states at open and refresh; `states` has one for each tree.
    cdef int replace(self, list trees, object states) except -1
    # Makes the states that `publish` installs. trees: all trees after the edit. levels: the new levels by keyspace. drop: flushed
    # memtables. ingested_seq: of ingested tables, or 0.
    cdef int prepare(self, list trees, dict levels, object drop, uint64_t ingested_seq) except -1
    cdef int publish(self) noexcept
    cdef int discard(self) noexcept     # drops what `prepare` made
    # Installs new active memtables, by keyspace. The other active ones are empty: they stay, and belong to the log `number` from
    # now on. If it raises, nothing has changed.
    cdef int rotate(self, dict memtables, uint64_t number) except -1
    # The last transaction that ends lets the trees drop the memtables that they kept for it.
    cdef int begin_transaction(self, uint64_t snapshot) noexcept
    cdef int end_transaction(self) noexcept
    cdef int cut_spans(self, const BatchC* b) noexcept          # the puts of a batch that becomes visible
    cdef bint has_spans(self, bint default_only) noexcept
    cdef int close(self) noexcept
    cdef uint64_t oldest_number(self)       # of the logs that memtables belong to after the prepared edit; 0: none
    cdef uint64_t buffered(self) noexcept   # bytes in the active memtables
    cdef uint64_t default_ttl(self, uint32_t keyspace) noexcept     # 0: none, or there is no such keyspace
    cdef Tree tree_of(self, uint32_t keyspace)                      # None: there is no such keyspace

# Who may still come in: shared by a database and everything made from it (snapshots, iterators, cursors, batches).
#
# Every field changes only with the GIL held. A call that may let the GIL go counts itself in `inflight`, so that close can wait
# for it. Children are a linked list, so that close can make them let go of tables.

from libc.stdint cimport uint64_t

ctypedef struct ReadCounters:
    uint64_t cache_hits
    uint64_t disk_reads
    uint64_t disk_bytes
    uint64_t disk_ns
    uint64_t decompressed
    uint64_t seeks
    uint64_t nexts

ctypedef struct GateC:
    int refs
    bint closed
    int born                    # fork_count when the database was opened
    int inflight
    void* first_child           # borrowed Child objects
    ReadCounters reads          # of the database and of everything made from it
    uint64_t seek_debt          # tables of L0 that seeks had to look into besides the first

cdef int fork_count             # forks this process is the child of, since import

cdef GateC* gate_new() except NULL
cdef void gate_unref(GateC* gate) noexcept
cdef int gate_refuse(const GateC* gate) except -1         # raises ForkError or ClosedError


cdef inline int gate_check(const GateC* gate) except -1:
    if gate.closed or gate.born != fork_count:
        return gate_refuse(gate)
    return 0


cdef class Child:
    cdef GateC* gate
    cdef void* next_child
    cdef void* prev_child
    cdef int join(self, GateC* gate) except -1
    cdef void leave(self) noexcept        # off the list; idempotent
    cdef void let_go(self) noexcept       # frees what it pins; called once, GIL held, nothing in flight

cdef int gate_close(GateC* gate) except -1                # refuse newcomers, wait for those inside, release the children

# Who may still come in: shared by a database and everything made from it (snapshots, iterators, cursors, batches).
#
# Every field changes only with the GIL held. A call that may let the GIL go counts itself in `inflight`, so that close can wait
# for it. Dependents are a linked list, so that close can make them let go of tables.

from libc.stdint cimport uint64_t

ctypedef struct ReadCounters:
    uint64_t cache_hits
    uint64_t disk_reads
    uint64_t disk_bytes
    uint64_t disk_ns
    uint64_t decompressed
    uint64_t seeks
    uint64_t nexts

ctypedef struct HandleC:
    int refs
    bint closed
    int born                    # fork_count when the database was opened
    int inflight
    void* first_dependent           # borrowed Dependent objects
    ReadCounters reads          # of the database and of everything made from it
    uint64_t visible            # the sequence number up to which reads of the newest state look

cdef int fork_count             # forks this process is the dependent of, since import

cdef HandleC* handle_new() except NULL
cdef void handle_unref(HandleC* handle) noexcept
cdef int handle_refuse(const HandleC* handle) except -1         # raises ForkError or ClosedError


cdef inline int handle_check(const HandleC* handle) except -1:
    if handle.closed or handle.born != fork_count:
        return handle_refuse(handle)
    return 0


cdef class Dependent:
    cdef HandleC* handle
    cdef void* next_dependent
    cdef void* prev_dependent
    cdef int join(self, HandleC* handle) except -1
    cdef void leave(self) noexcept        # off the list; idempotent
    cdef void release(self) noexcept       # frees what it pins; called once, GIL held, nothing in flight

# Refuses newcomers, waits for those inside, releases the dependents. False while the interpreter finalizes and a thread has stopped
# inside: what it uses stays.
cdef int handle_close(HandleC* handle) except -1

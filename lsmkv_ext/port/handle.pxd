# A handle: one open database, shared by the engine and by everything made from it.
#
# It knows whether calls are allowed (the database is open, and this process opened it), the number of calls in flight, and the
# dependents: snapshots, iterators and cursors. Each dependent holds a reference, so a handle outlives its database; a dependent
# that is used after close raises instead of touching freed memory.
#
# A call takes its arguments first, which may run Python code: a buffer, a `__bool__`, a finalizer of a collection. Then it checks
# the handle, and uses what the handle guards while nothing runs that could close the database. After anything that may run
# Python code or release the GIL it checks again, or works on what it holds a reference to. `.ci/check_reentrancy.py` checks this.
#
# A call that may release the GIL counts itself in `inflight` meanwhile; close waits for it. No Python code runs while a call is
# counted: a finalizer that closes the database would wait for its own caller.
#
# GIL-protected: every field of HandleC, and the list of dependents

from libc.stdint cimport uint64_t

from lsmkv_ext.port.wall_clock cimport ClockC

ctypedef struct ReadCounters:
    uint64_t cache_hits
    uint64_t disk_reads
    uint64_t disk_bytes
    uint64_t disk_ns
    uint64_t decompressed
    uint64_t seeks
    uint64_t nexts
    uint64_t dead_passed        # deleted entries that scans passed one by one
    uint64_t spans_jumped       # dead spans that scans jumped over

ctypedef struct HandleC:
    int refs
    bint closed
    int born                    # fork_count when the database was opened
    int inflight
    void* first_dependent       # borrowed Dependent objects
    ReadCounters reads          # of the database and of its dependents
    uint64_t visible            # the newest visible sequence number
    ClockC clock                # judges expiries

cdef int fork_count             # forks between the process that imported this module and this one

cdef HandleC* handle_new() except NULL
cdef void handle_unref(HandleC* handle) noexcept
cdef int handle_refuse(const HandleC* handle) except -1         # raises ForkError or ClosedError


cdef inline int handle_check(const HandleC* handle) except -1:
    if handle.closed or handle.born != fork_count:
        return handle_refuse(handle)
    return 0


# An object made from a database that ends with it. Before `join` it has a closed handle.
cdef class Dependent:
    cdef HandleC* handle                  # owns a reference
    cdef void* next_dependent
    cdef void* prev_dependent
    cdef int join(self, HandleC* handle) except -1
    cdef void leave(self) noexcept        # removes it from the list; idempotent
    # Frees what it pins; runs no Python code; idempotent. close calls it with the GIL held and no call in flight.
    cdef void release(self) noexcept

# Refuses new calls, waits for those in flight, releases the dependents. Returns False where the interpreter finalizes while a
# stopped thread is still in a call: what that thread uses must stay.
cdef int handle_close(HandleC* handle) except -1

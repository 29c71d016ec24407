"""Latency measured next to the call: a log-bucketed histogram and the C loops that fill it.

A timestamp and a bucket increment per operation cost tens of nanoseconds here; the same in Python
would cost more than the operation. Every engine is driven by the same loop, so whatever the
loop adds, it adds to all of them alike.
"""

cimport cython
from libc.stdint cimport uint64_t

cdef enum:
    SUB_BITS = 5                        # 32 buckets per power of two: a bucket is at most 3.2 % wide
    SUB_COUNT = 32
    BUCKETS = 1920                      # enough for every uint64 value


@cython.final
cdef class Histogram:
    """Counts of nanoseconds. Not locked: one thread records, others merge afterwards."""
    cdef uint64_t counts[BUCKETS]
    cdef readonly uint64_t count
    cdef uint64_t least
    cdef uint64_t most
    cdef double total                   # sum and sum of squares in ns, kept apart from the buckets
    cdef double squares
    cdef void add(self, uint64_t ns) noexcept nogil


@cython.final
cdef class Driver:
    """Calls one engine's operations for a chunk of keys and times each call.

    Owns references to the callables. `hist` None: only the chunk as a whole is timed.
    """
    cdef object get, put, delete, scan
    cdef readonly Histogram hist
    cdef uint64_t check_every           # keep each n-th result for the caller to verify; 0 keeps none
    cdef uint64_t turn_ticks            # let other threads run this often; 0 never
    cdef uint64_t turn_due
    cdef readonly uint64_t ops          # operations done since construction
    cdef readonly uint64_t found        # reads that returned something
    cdef readonly uint64_t bytes_read
    cdef readonly uint64_t ns           # time inside the loops
    cdef readonly uint64_t cpu_ns       # of it, on a processor: neither waiting nor preempted
    cdef int pause(self, uint64_t now) except -1
    cdef object one(self, int code, object key, object value, uint64_t length, bint keep)
    cdef object walk(self, object key, uint64_t length, bint keep)
    cdef void account(self, object result) noexcept

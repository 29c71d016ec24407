"""Work that Ctrl-C must not cut in two.

Python raises KeyboardInterrupt in the main thread between any two steps of Python code: also between taking a lock and the `with`
that would give it back (3.14), in a loop inside of that `with` without leaving it properly (3.13 and 3.14), or between the two
halves of a commit. So such work, and all that takes a lock, runs in a thread of its own, where no signal handler ever runs, and
the main thread only waits. Compiled code, because what is written here must not be cut in two either.
"""
from cpython.exc cimport PyErr_CheckSignals

from lsmkv_ext.port.finalization cimport lsm_finalizing

import threading
from _thread import allocate_lock, get_ident, start_new_thread

# The main thread does the work itself: what that asks for may need a lock it holds, so no other thread is tried again.
cdef bint _alone = False


def uninterruptible(work, bint defer_interrupt=False):
    """What `work()` returns or raises. An interrupt ends the wait for it, never the work, which goes on; with `defer_interrupt` it
    is raised when the work has ended, for callers that hold something meanwhile."""
    global _alone
    if lsm_finalizing():
        # No other thread would get to run it, and no signal handler runs any more.
        return work()
    if threading.current_thread() is not threading.main_thread() or _alone:
        return work()
    outcome = _Outcome(work)
    # Interrupts that came before: nothing has begun yet.
    PyErr_CheckSignals()
    try:
        start_new_thread(outcome.run, ())
    except RuntimeError:
        # No thread to be had: Python 3.12 runs its exit hooks, or a limit was reached.
        _alone = True
        try:
            return work()
        finally:
            _alone = False
    return outcome.wait(defer_interrupt)


cdef object _forget_this_thread():
    """Whoever asks for `current_thread()` (a join, a log message) enters this thread among the living; before Python 3.13 nothing
    takes it out of there again."""
    with threading._active_limbo_lock:
        threading._active.pop(get_ident(), None)


cdef class _Outcome:
    """Work and what came of it. The thread may live a moment longer than the wait for it, so it holds neither by then: what the
    caller lets go of is gone when the caller thinks it is."""
    cdef object work
    cdef object result
    cdef object error
    cdef object ended           # a lock that is free once the work has ended

    def __cinit__(self, work):
        self.work = work
        self.ended = allocate_lock()
        self.ended.acquire()

    def run(self):
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        finally:
            self.work = None
            _forget_this_thread()
            self.ended.release()

    cdef object wait(self, bint defer_interrupt):
        cdef object interrupt = None
        while True:
            try:
                self.ended.acquire()
                break
            except BaseException as error:
                if not defer_interrupt:
                    raise
                interrupt = error
        if interrupt is not None:
            raise interrupt
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None
        result, self.result = self.result, None
        return result

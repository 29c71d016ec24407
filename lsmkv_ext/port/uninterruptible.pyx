"""Work that Ctrl-C must not interrupt.

Python raises KeyboardInterrupt in the main thread between any two steps of Python code: between the halves of a commit,
between taking a lock and entering the `with` that releases it (3.14), or in a loop inside that `with`, which then does not
release it (3.13 and 3.14). So work that commits or takes a lock runs in a thread of its own, where no signal handler runs, and
the main thread waits. This module is compiled: its own steps cannot be interrupted.
"""
from cpython.exc cimport PyErr_CheckSignals

from lsmkv_ext.port.finalization cimport lsm_finalizing

import threading
from _thread import allocate_lock, get_ident, start_new_thread

# GIL-protected: set while the main thread runs work itself. Nested work may need a lock that it holds, so it stays in this
# thread.
cdef bint _alone = False


def uninterruptible(work, bint defer_interrupt=False):
    """Return what `work()` returns, or raise what it raises.

    An interrupt ends the wait; the work goes on. With `defer_interrupt` the interrupt is raised when the work has ended, for
    callers that hold a lock meanwhile.
    """
    global _alone
    if lsm_finalizing():
        # No other thread could run it, and no signal handler runs any more.
        return work()
    if threading.current_thread() is not threading.main_thread() or _alone:
        return work()
    outcome = _Outcome(work)
    # A pending interrupt is raised now, before the work starts.
    PyErr_CheckSignals()
    try:
        start_new_thread(outcome.run, ())
    except RuntimeError:
        # No thread can be started: Python 3.12 runs its exit hooks, or a limit was reached.
        _alone = True
        try:
            return work()
        finally:
            _alone = False
    return outcome.wait(defer_interrupt)


cdef object _forget_this_thread():
    """Removes this thread from `threading._active`. `current_thread()` (a join, a log message) enters it there, and before Python
    3.13 nothing removes it."""
    with threading._active_limbo_lock:
        threading._active.pop(get_ident(), None)


cdef class _Outcome:
    """Work and its result or error. The thread may outlive the wait by a moment, so it drops its references first: an object that
    the caller drops is gone at once."""
    cdef object work
    cdef object result
    cdef object error
    cdef object ended           # a lock, released when the work has ended

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
            try:
                _forget_this_thread()
            finally:
                # Whatever failed, memory included: nobody else ends the wait.
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

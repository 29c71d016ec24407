"""Work that Ctrl-C must not interrupt.

Python raises KeyboardInterrupt in the main thread between any two steps of Python code: between the halves of a commit,
between taking a lock and entering the `with` that releases it (3.14), or in a loop inside that `with`, which then does not
release it (3.13 and 3.14). So work that commits or takes a lock runs in a thread of its own, where no signal handler runs, and
the main thread waits. This module is compiled: its own steps cannot be interrupted.
"""
from cpython.exc cimport PyErr_CheckSignals

from lsmkv_ext.port.finalization cimport lsm_finalizing
from lsmkv_ext.port.section cimport section_enter, section_leave

import threading
from _thread import get_ident, start_new_thread

cdef extern from "pythread.h" nogil:
    ctypedef void* PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    enum:
        WAIT_LOCK
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait)
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int interruptible)
    void PyThread_release_lock(PyThread_type_lock lock)

# GIL-protected: set while the main thread runs work itself. Nested work may need a lock that it holds, so it stays in this
# thread.
cdef bint _alone = False


cdef object run_section(object work):
    section_enter()
    try:
        return work()
    finally:
        section_leave()


def uninterruptible(work, bint defer_interrupt=False):
    """Return what `work()` returns, or raise what it raises. The work is a section (port/section).

    A signal handler may run while the main thread waits, and what it raises ends the wait; the work goes on. With
    `defer_interrupt` no handler runs before this returns, for callers that hold a lock meanwhile.
    """
    global _alone
    if lsm_finalizing():
        # No other thread could run it, and no signal handler runs any more.
        return run_section(work)
    if threading.current_thread() is not threading.main_thread() or _alone:
        return run_section(work)
    outcome = _Outcome(work)
    if not defer_interrupt:
        # A pending interrupt is raised now, before the work starts.
        PyErr_CheckSignals()
    try:
        start_new_thread(outcome.run, ())
    except RuntimeError:
        # No thread can be started: Python 3.12 runs its exit hooks, or a limit was reached.
        _alone = True
        try:
            return run_section(work)
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
    cdef PyThread_type_lock ended       # owned; released when the work has ended

    def __cinit__(self, work):
        self.work = work
        self.ended = PyThread_allocate_lock()
        if self.ended == NULL:
            raise MemoryError("lock")
        PyThread_acquire_lock(self.ended, WAIT_LOCK)

    def __dealloc__(self):
        if self.ended != NULL:
            PyThread_free_lock(self.ended)

    def run(self):
        try:
            self.result = run_section(self.work)
        except BaseException as error:
            self.error = error
        finally:
            self.work = None
            try:
                _forget_this_thread()
            finally:
                # Whatever failed, memory included: nobody else ends the wait.
                PyThread_release_lock(self.ended)

    cdef object wait(self, bint defer_interrupt):
        cdef PyLockStatus status = PY_LOCK_INTR
        while status != PY_LOCK_ACQUIRED:
            with nogil:
                status = PyThread_acquire_lock_timed(self.ended, -1, not defer_interrupt)
            if status == PY_LOCK_INTR:
                PyErr_CheckSignals()
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None
        result, self.result = self.result, None
        return result

"""Work that Ctrl-C must not interrupt.

Python raises KeyboardInterrupt in the main thread between any two bytecodes: between the halves of a commit, between taking a
lock and entering the `with` block that releases it (3.14), or in a loop inside the block, which then does not release it (3.13
and 3.14). Work that commits or takes a lock therefore runs in a thread of its own, where no signal handler runs, and the main
thread waits. This module is compiled, so no interrupt comes between its own steps.
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

# GIL-protected: set while the main thread runs work itself. Nested work may need a lock that this work holds, so it runs in the
# same thread.
cdef bint _alone = False


cdef object run_section(object work):
    section_enter()
    try:
        return work()
    finally:
        section_leave()


def uninterruptible(work, bint defer_interrupt=False):
    """Run `work()` as a section (port/section). Return what it returns, or raise what it raises.

    A signal handler may run while the main thread waits. If it raises, the wait ends and the work goes on. With `defer_interrupt`
    no handler runs before this returns; this is for callers that hold a lock meanwhile.
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
        # No thread can be started: Python 3.12 is running its exit hooks, or a limit was reached.
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
    """Work and its result or error. The thread may outlive the wait by a moment, so it drops its references before: they must not
    keep an object alive that the caller drops."""
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
                # Even if there was no memory: nothing else ends the wait.
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

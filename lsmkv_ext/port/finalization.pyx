"""Locks, conditions and threads that are safe while the interpreter finalizes.

A call that would then block forever raises ClosedError instead.
"""

import _thread
import threading

from lsmkv_ext.errors import ClosedError


cdef int refuse_finalizing() except -1:
    raise ClosedError("the interpreter is shutting down")


def is_finalizing():
    """Return whether the interpreter finalizes."""
    return lsm_finalizing()


def require_running():
    """Raise ClosedError if the interpreter finalizes."""
    if lsm_finalizing():
        refuse_finalizing()


START_SECONDS = 2.0     # a new thread that has not begun by then never will


class ThreadStillborn(RuntimeError):
    """A thread was created but did not begin in time: it had no memory for its first frame."""


class _Started(threading.Event):
    """Limits the wait of `Thread.start`: a thread that is out of memory never sets the event."""

    def wait(self, timeout=None):
        if not threading.Event.wait(self, START_SECONDS if timeout is None else timeout):
            raise ThreadStillborn("can't start new thread: it does not begin")
        return True


def start_thread(thread):
    """Start a thread, or raise ClosedError or RuntimeError if it will not run."""
    require_running()
    thread._started = _Started()
    try:
        thread.start()
    except ThreadStillborn:
        # If it begins after all, it ends at once, because it is not listed any more.
        threading._limbo.pop(thread, None)
        raise


class RLock(_thread.RLock):
    """An RLock that, during finalization, ignores other holders: their threads have stopped."""

    def __enter__(self):
        return self.acquire(not lsm_finalizing())

    def __exit__(self, kind, error, trace):
        # Allocates nothing: if that failed, the lock would stay taken. A wait that ran out of memory may have released it.
        if self._is_owned() or (kind is None and not lsm_finalizing()):
            self.release()


class CommitLock(RLock):
    """An RLock that, during finalization, raises ClosedError if another thread holds it: that one stopped inside a change."""

    def __enter__(self):
        if not self.acquire(not lsm_finalizing()):
            refuse_finalizing()
        return True


class Condition(threading.Condition):
    """A condition whose `wait` raises ClosedError while the interpreter finalizes."""

    def wait(self, timeout=None):
        require_running()
        return threading.Condition.wait(self, timeout)

    def notify(self, n=1):
        if not lsm_finalizing():
            threading.Condition.notify(self, n)

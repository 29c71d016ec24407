"""Locks, conditions and threads while the interpreter finalizes: what would block for ever raises ClosedError instead."""

import _thread
import threading

from lsmkv_ext.errors import ClosedError


cdef int refuse_finalizing() except -1:
    raise ClosedError("the interpreter is shutting down")


def is_finalizing():
    return lsm_finalizing()


def require_running():
    if lsm_finalizing():
        refuse_finalizing()


def start_thread(thread):
    require_running()
    thread.start()


class RLock(_thread.RLock):
    """Passes a holder that has stopped: it changes nothing any more."""

    def __enter__(self):
        return self.acquire(not lsm_finalizing())

    def __exit__(self, *exc):
        if not lsm_finalizing() or self._is_owned():
            self.release()


class CommitLock(RLock):
    """Refuses instead: a holder that has stopped left a change half made."""

    def __enter__(self):
        if not self.acquire(not lsm_finalizing()):
            refuse_finalizing()
        return True


class Condition(threading.Condition):
    def wait(self, timeout=None):
        require_running()
        return threading.Condition.wait(self, timeout)

    def notify(self, n=1):
        if not lsm_finalizing():
            threading.Condition.notify(self, n)

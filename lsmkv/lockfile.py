"""One writer per database: LOCK by flock across processes, and a registry by real path within one."""

from __future__ import annotations

import errno
import fcntl
import os

from lsmkv import filenames
from lsmkv.errors import LockError
from lsmkv.version.manifest import open_above_stdio
from lsmkv_ext.finalization import RLock
from lsmkv_ext.port.uninterruptible import uninterruptible

_guard = RLock()
_held: dict[str, DatabaseLock] = {}


class DatabaseLock:
    """Held from construction to `release`. In a forked child it is nobody's: the parent keeps it."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        self._fd = -1
        try:
            uninterruptible(lambda: self._take(directory), defer_interrupt=True)
        except BaseException:
            self.release()  # an interrupt that came while it was taken
            raise

    def _take(self, directory: str) -> None:
        with _guard:
            if self.directory in _held:
                raise LockError(errno.EWOULDBLOCK, "this process has the database open already", directory)
            self._fd = self._acquire()
            _held[self.directory] = self

    def _acquire(self) -> int:
        path = os.path.join(self.directory, filenames.LOCK)
        fd = open_above_stdio(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise LockError(error.errno, "another process has the database open", path) from None
            raise
        return fd

    def release(self) -> None:
        uninterruptible(self._give_back, defer_interrupt=True)

    def _give_back(self) -> None:
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held.pop(self.directory, None)

    def _abandon(self) -> None:
        # Closing the child's copy leaves the parent's lock in place; keeping it would outlive the parent's
        # close.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(directory: str) -> bool:
    """Whether a writer has the database open, here or elsewhere. Changes nothing."""
    path = os.path.join(directory, filenames.LOCK)
    try:
        fd = open_above_stdio(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _after_fork_in_child() -> None:
    global _guard
    _guard = RLock()
    for lock in _held.values():
        lock._abandon()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

"""One writer per database: a flock on LOCK across processes, a registry by real path within one.

Testing a flock means taking it, which would keep a writer out. So the writer also holds a record lock of the open file
(F_OFD_SETLK) on LOCK, which F_OFD_GETLK tests without taking it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from lsmkv import filenames
from lsmkv.errors import CorruptionError, LockError
from lsmkv.files import is_named, open_own
from lsmkv_ext.port.file import Descriptor
from lsmkv_ext.port.finalization import RLock
from lsmkv_ext.port.uninterruptible import uninterruptible

_RECORD = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length (0: to the end), process
_WHOLE_FILE = _RECORD.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

_guard = RLock()
_held: dict[str, Descriptor] = {}  # of LOCK, by real path; a closed one holds nothing


class DatabaseLock:
    """Held from construction to `release`. After a fork the parent keeps it and the child does not have it."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.realpath(directory)
        self._file = Descriptor(-1)
        try:
            uninterruptible(lambda: self._take(directory), defer_interrupt=True)
        except BaseException:
            self.release()  # an interrupt that came while it was taken
            raise

    def _take(self, directory: str) -> None:
        with _guard:
            if self.directory in _held and _held[self.directory].fd >= 0:
                raise LockError(errno.EWOULDBLOCK, "this process has the database open already", directory)
            self._file = _held[self.directory] = self._acquire()

    def _acquire(self) -> Descriptor:
        path = os.path.join(self.directory, filenames.LOCK)
        while True:
            file = Descriptor(open_own(path, os.O_RDWR | os.O_CREAT))
            try:
                fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.fcntl(file.fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
                if is_named(file.fd, path):
                    return file
            except BaseException as error:
                file.close()
                if isinstance(error, OSError) and error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise LockError(error.errno, "another process has the database open", path) from None
                raise
            # `destroy` removed the file before this process had its lock.
            file.close()

    def release(self) -> None:
        """Needs no memory and no lock, so it cannot fail and leave the database locked."""
        self._file.close()


def is_locked(directory: str) -> bool:
    """Whether a writer has the database open, here or elsewhere. Changes nothing and blocks no writer."""
    path = os.path.join(directory, filenames.LOCK)
    try:
        fd = open_own(path, os.O_RDONLY)
    except (FileNotFoundError, CorruptionError):  # a writer refuses what is not a regular file
        return False
    try:
        held = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(fd)
    return bool(_RECORD.unpack(held)[0] != fcntl.F_UNLCK)


def _after_fork_in_child() -> None:
    global _guard
    _guard = RLock()
    for file in _held.values():
        file.close()  # leaves the parent's lock in place; an open copy would outlive the parent's close
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)

"""File primitives of the control plane: opening above the standard streams, whole writes, fsync, atomic replacement.

Opening never waits, and only regular files are read: a FIFO would wait for its other end, a device might never end.

Every error of the operating system leaves as an `IOError`, a failed fsync as a `SyncError`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from lsmkv.errors import CorruptionError, Error, IOError, SyncError
from lsmkv_ext.port.file import occupy_standard_streams

# Errors of a full disk.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# Errors of open(2) for what is not a regular file: a directory, a socket, a symbolic link with O_NOFOLLOW.
NOT_REGULAR = frozenset({errno.EISDIR, errno.ENXIO, errno.ENODEV, errno.ELOOP})


def is_no_room(error: BaseException) -> bool:
    """Whether an error means that the disk is full. A failed fsync never does: it is final, whatever its errno."""
    return isinstance(error, OSError) and error.errno in NO_ROOM and not isinstance(error, SyncError)


def free_space(directory: str) -> int:
    """Bytes that the disk of a directory has left for this process."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def open_above_stdio(path: str, flags: int, mode: int = 0o600) -> int:
    """`os.open` that never waits and never returns 0, 1 or 2, the standard streams."""
    occupy_standard_streams()
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    low = []
    while fd <= 2:
        low.append(fd)
        fd = os.dup(fd)
    for other in low:
        os.close(other)
    return fd


def open_regular(path: str, flags: int) -> int:
    """Raises IOError if `path` is not a regular file."""
    try:
        fd = open_above_stdio(path, flags)
    except OSError as error:
        if error.errno not in NOT_REGULAR:
            raise
        raise IOError(errno.EINVAL, "not a regular file", path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise IOError(errno.EINVAL, "not a regular file", path)
    return fd


def open_own(path: str, flags: int) -> int:
    """Opens a file of a database. Raises CorruptionError if it is a link or not a regular file."""
    try:
        return open_regular(path, flags | os.O_NOFOLLOW)
    except IOError:
        raise CorruptionError("not a regular file", path) from None


def is_named(fd: int, path: str) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def size_of(path: str) -> int:
    """0 for a missing file."""
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def write_all(fd: int, data: bytes, path: str) -> None:
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if written == 0:
            raise IOError(errno.EIO, "write took no bytes", path)
        view = view[written:]


def sync_file(fd: int, path: str) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncError(error.errno, f"fsync: {error.strerror}", path) from error


@contextmanager
def io_errors(what: str, path: str) -> Iterator[None]:
    """Turns an OSError of the block into an IOError of ours."""
    try:
        yield
    except Error:
        raise
    except OSError as error:
        raise IOError(error.errno, f"{what}: {error.strerror}", path) from error


def open_directory(directory: str) -> int:
    with io_errors("open", directory):
        return open_above_stdio(directory, os.O_RDONLY | os.O_DIRECTORY)


def sync_directory(directory: str) -> None:
    fd = open_directory(directory)
    try:
        sync_file(fd, directory)
    finally:
        os.close(fd)


class Replacement:
    """New contents of a file, in a temporary file beside it. Ends with `commit`, which renames it, or `abandon`. At any
    moment the name holds the old or the new contents.
    """

    def __init__(self, directory: str, name: str, data: bytes, *, durable: bool = True) -> None:
        self._directory = directory
        self._path = os.path.join(directory, name)
        self._temporary = self._path + ".tmp"
        self._durable = durable
        # Opened first: after the rename only the fsync may fail.
        self._directory_fd = open_directory(directory)
        try:
            with io_errors(f"replacing {name}", self._path):
                self._write(data)
        except BaseException:
            self.abandon()
            raise

    def _write(self, data: bytes) -> None:
        fd = open_above_stdio(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, data, self._temporary)
            if self._durable:
                sync_file(fd, self._temporary)
        finally:
            os.close(fd)

    def commit(self) -> None:
        """When this raises, a later open may find either contents."""
        try:
            try:
                os.rename(self._temporary, self._path)
            except OSError as error:
                raise IOError(error.errno, f"rename: {error.strerror}", self._path) from error
            if self._durable:
                sync_file(self._directory_fd, self._directory)
        finally:
            os.close(self._directory_fd)

    def abandon(self) -> None:
        os.close(self._directory_fd)
        with suppress(OSError):
            os.unlink(self._temporary)


def replace_file(directory: str, name: str, data: bytes, *, durable: bool = True) -> None:
    """Replaces a file atomically: temporary file, fsync, rename, fsync of the directory."""
    Replacement(directory, name, data, durable=durable).commit()


def open_to_read(path: str) -> BinaryIO:
    """Opens a file of a database; see `open_own`."""
    return os.fdopen(open_own(path, os.O_RDONLY), "rb")


def read_bounded(path: str, limit: int) -> bytes:
    """Reads a small file; raises CorruptionError if it is longer than `limit`."""
    with open_to_read(path) as file:
        return read_at_most(file, limit, path)


def read_at_most(file: BinaryIO, limit: int, path: str) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise CorruptionError(f"file is larger than {limit} bytes", path, limit)
    return data

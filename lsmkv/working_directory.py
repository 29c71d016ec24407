"""A directory in which a database is built before it gets its name.

It lies inside a directory of its own, which is locked. No database has this layout, so it marks the remains of a killed
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lsmkv import filenames
from lsmkv.errors import IOError
from lsmkv.files import io_errors, is_named, open_above_stdio
from lsmkv_ext.port.file import Descriptor

PARTIAL = "partial"


@contextmanager
def working_directory(around: str, *, resume: bool = False) -> Iterator[str]:
    """A directory inside `around` for the block, which may rename it.

    Nobody else works in `around` meanwhile. With `resume` the directory keeps what a failed or killed block left in it;
    otherwise it is empty, and a failed block leaves nothing.
    """
    working = os.path.join(around, PARTIAL)
    lock = _lock_directory(around)
    try:
        _refuse_foreign(around, working)
        if not resume and os.path.lexists(working):
            shutil.rmtree(working)
        os.makedirs(working, 0o700, exist_ok=True)
        try:
            yield working
        except BaseException:
            if not resume:
                shutil.rmtree(working, ignore_errors=True)
            raise
    finally:
        try:
            with suppress(OSError):  # not empty: a block to resume, or the files of others
                os.rmdir(around)
        finally:
            lock.close()


def _refuse_foreign(around: str, working: str) -> None:
    """Raises IOError if there is anything that no block left behind."""
    inside = os.listdir(working) if os.path.lexists(working) else []
    if os.path.islink(working):
        raise IOError(errno.EEXIST, "a symbolic link, which is not from lsmkv", working)
    foreign = {*os.listdir(around)} - {PARTIAL} or {name for name in inside if filenames.parse(name) is None}
    if foreign:
        raise IOError(errno.EEXIST, f"contains {min(foreign)}, which is not from lsmkv", around)


def _lock_directory(path: str) -> Descriptor:
    while True:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with io_errors("open", path):
            lock = Descriptor(open_above_stdio(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        try:
            fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_named(lock.fd, path):
                return lock
        except BaseException as error:
            lock.close()
            if isinstance(error, BlockingIOError):
                raise IOError(errno.EBUSY, "another process builds a database here", path) from None
            raise
        # Another block ended and removed the directory.
        lock.close()

"""The reserve: the file RESERVE sets disk space aside, for a database that fills its own disk.

On a full disk the file is removed. Its space serves deletes, and the flushes and compactions that turn them into free
space. Until the reserve is back, the engine refuses all other writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from lsmkv import filenames
from lsmkv.files import is_no_room, open_own, write_all
from lsmkv_ext.engine import Engine
from lsmkv_ext.port.finalization import RLock

log = logging.getLogger("lsmkv")

T = TypeVar("T")

HEAD = b"lsmkv reserve\n"  # `destroy` recognizes the file by it; zeros follow
# The reserve is 1 / SHARE of what the database stores, at most MOST. Below LEAST there is none.
SHARE = 8
LEAST = 64 << 10
MOST = 64 << 20


def wanted_size(stored: int) -> int:
    """The size of the reserve of a database that stores `stored` bytes."""
    size = min(stored // SHARE, MOST)
    return size if size >= LEAST else 0


class Reserve:
    """The reserve of one database. Any thread may call it; its lock is innermost."""

    def __init__(self, directory: str, engine: Engine) -> None:
        self._path = os.path.join(directory, filenames.RESERVE)
        self._engine = engine
        self._wanted = 0
        self._lock = RLock()

    @property
    def size(self) -> int:
        """Bytes set aside. The holes of a sparse file, perhaps a copied one, do not count."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return 0
        return min(status.st_size, status.st_blocks * 512)

    def keep(self, stored: int) -> None:
        """Sets aside the reserve of a database that stores `stored` bytes. Keeps the current size if it is right within
        a factor of two.
        """
        with self._lock:
            self._wanted = wanted_size(stored)
            size = self.size
            if self._wanted > 2 * size or self._wanted < size // 2:
                self._resize()
            self._engine.set_reserve_used(self._wanted > 0 and self.size == 0)

    def refill(self) -> None:
        """Sets the space aside again if the disk has it."""
        with self._lock:
            if self.size < self._wanted:
                self._resize()
            self._engine.set_reserve_used(self._wanted > 0 and self.size == 0)

    def release(self) -> bool:
        """Frees the space. Returns whether there was any."""
        with self._lock:
            size = self.size
            self._remove()
            if size:
                log.info("%s: the disk is full; %d bytes of reserve are freed for deletes", self._path, size)
                self._engine.set_reserve_used(True)
            return size > 0

    def spend(self, work: Callable[[], T], smaller: Callable[[], T] | None = None) -> T:
        """Runs `work`. If the disk is full, frees the reserve and runs `smaller`, which needs less space; without
        `smaller`, runs `work` again.
        """
        try:
            return work()
        except OSError as error:
            if not is_no_room(error) or not (self.release() or smaller):
                raise
        result = (smaller or work)()
        self.refill()
        return result

    def _resize(self) -> None:
        """A failure leaves the old size or no file, and is only logged: the database works without a reserve."""
        if not self._wanted:
            self._remove()
            return
        try:
            fd = open_own(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            log.warning("cannot open the reserve: %s", error)
            return
        size = os.fstat(fd).st_size
        try:
            if not size:
                write_all(fd, HEAD, self._path)
            if size > self._wanted:
                os.ftruncate(fd, self._wanted)
            else:
                os.posix_fallocate(fd, 0, self._wanted)
        except OSError as error:
            log.debug("%s: cannot set %d bytes aside: %s", self._path, self._wanted, error)
            with suppress(OSError):
                os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def _remove(self) -> None:
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("cannot remove the reserve: %s", error)

"""Locks in a repository: any number of backups at once, or one prune.

Stores have no locks, but they show an object to all as soon as it is written. So a process writes its own lock first
and looks for others afterwards: of two that exclude each other at least one sees the other, and gives up.

A lock is alive as long as its process refreshes it. One of a process of this machine that has ended, and one that was
not refreshed for `STALE` seconds, is removed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import socket
import time
from contextlib import suppress
from types import TracebackType

from lsmkv.errors import IOError, LockError
from lsmkv.repository.store import Store, Stored

LOCKS = "locks/"
NAME = re.compile(r"locks/(backup|prune)-[0-9a-f]{16}\Z", re.ASCII)
STALE = 3600.0
REFRESH = 300.0

BACKUP = "backup"
PRUNE = "prune"


_held: set[str] = set()  # names of the locks of this process


class RepositoryLock:
    """Held for a `with` block. Raises LockError if another process is in the way."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._name = f"{LOCKS}{kind}-{secrets.token_hex(8)}"
        self._written = 0.0

    def __enter__(self) -> RepositoryLock:
        _held.add(self._name)
        try:
            self._write()
            self._refuse_others()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        _held.discard(self._name)
        with suppress(IOError):  # the next call removes it
            self._store.delete(self._name)

    def refresh(self) -> None:
        """Keeps the lock alive. Call it at least every few minutes. Raises LockError if another process has removed it
        because this one was stopped for too long.
        """
        if time.time() - self._written > REFRESH:
            if not self.is_held():
                raise LockError(errno.EBUSY, "stopped for too long; repeat the call", f"{self._store.url}/{self._name}")
            self._write()

    def is_held(self) -> bool:
        """Whether no other process has removed the lock as stale."""
        return self._name in self._store.list(LOCKS)

    def _write(self) -> None:
        owner = {"kind": self._kind, "host": socket.gethostname(), "pid": os.getpid()}
        self._store.write(self._name, json.dumps(owner).encode())
        self._written = time.time()

    def _refuse_others(self) -> None:
        found = self._store.list(LOCKS)
        mine = found.get(self._name)
        if mine is None:
            raise IOError(errno.EIO, "the lock that was just written is not there", self._name)
        for name, stored in found.items():
            match = NAME.match(name)
            if match is None or name == self._name or PRUNE not in (self._kind, match[1]):
                continue
            if not self._is_alive(name, stored, mine):
                self._store.delete(name)
                continue
            message = f"a {match[1]} is running; if its process is gone, remove this object"
            raise LockError(errno.EBUSY, message, f"{self._store.url}/{name}")

    def _is_alive(self, name: str, stored: Stored, mine: Stored) -> bool:
        if mine.modified - stored.modified > STALE:
            return False
        try:
            owner = json.loads(self._store.read(name))
            return owner["host"] != socket.gethostname() or not _has_ended(int(owner["pid"]), name)
        except IOError as error:
            if error.errno == errno.ENOENT:  # it has just ended
                return False
            raise
        except (ValueError, TypeError, KeyError):
            return True  # being written, or not ours to judge


def _has_ended(pid: int, name: str) -> bool:
    """Whether the process with a lock, or its call, has ended."""
    if pid == os.getpid():
        return name not in _held
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False

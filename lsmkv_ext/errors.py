"""Every exception lsmkv raises. They live here because the data plane raises them; `lsmkv.errors` re-exports."""

from __future__ import annotations

import builtins


class Error(Exception):
    """Base of all lsmkv errors."""


class IOError(Error, OSError):
    """The operating system said no: carries `errno`, `strerror` and `filename` like any OSError."""


class SyncError(IOError):
    """An fsync failed: what reached the disk is unknown, so nothing may be written after it."""


class CorruptionError(Error):
    """Bytes that were stored are not the bytes that came back; names the file and the offset."""

    def __init__(self, message: str, file: str | None = None, offset: int | None = None) -> None:
        self.file = file
        self.offset = offset
        where = "" if file is None else f" ({file}" + ("" if offset is None else f", offset {offset}") + ")"
        super().__init__(message + where)


class ClosedError(Error, RuntimeError):
    """The database, or the handle this came from, is closed."""


class LockError(IOError):
    """Another handle, here or in another process, has the database open for writing."""


class ReadOnlyError(Error):
    """Writing through a read-only handle, or after an I/O error made the database read-only."""


class ForkError(Error, RuntimeError):
    """This handle was opened before a fork; open the database again in the child."""


class IteratorInvalidError(Error):
    """The iterator is on no entry."""


class OptionError(Error, builtins.ValueError):
    """An option is unknown or its value is out of range."""

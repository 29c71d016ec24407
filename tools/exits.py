"""Exit codes, and the mapping from exceptions to them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

FINE, FINDING, USAGE, CANNOT_OPEN, IO, INTERRUPTED = 0, 1, 2, 3, 4, 130


class ToolError(Exception):
    """An error with an exit code, and the file and offset it concerns."""

    code = FINDING
    kind = "finding"

    def __init__(self, message: str, file: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class Finding(ToolError):
    """A check failed, or the requested item does not exist."""


class Usage(ToolError):
    code, kind = USAGE, "usage"


class CannotOpen(ToolError):
    code, kind = CANNOT_OPEN, "cannot-open"


@dataclass
class Failure:
    code: int
    kind: str
    message: str
    file: str | None = None
    offset: int | None = None

    def as_json(self) -> dict[str, object]:
        return {"kind": self.kind, "message": self.message, "file": self.file, "offset": self.offset}


def classify(error: BaseException) -> Failure | None:
    """Map an exception to a failure. Return None for a bug, which keeps its traceback."""
    if isinstance(error, ToolError):
        return Failure(error.code, error.kind, str(error), error.file, error.offset)
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, "interrupted", "interrupted")
    from lsmkv_ext import errors

    if isinstance(error, errors.CorruptionError):
        return Failure(FINDING, "corruption", str(error), error.file, error.offset)
    if isinstance(error, errors.FormatError):
        return Failure(CANNOT_OPEN, "format", str(error), error.file)
    if isinstance(error, errors.LockError):
        return Failure(CANNOT_OPEN, "locked", str(error))
    if isinstance(error, errors.OptionError):
        return Failure(USAGE, "usage", str(error))
    if isinstance(error, errors.ReadOnlyError):
        return Failure(CANNOT_OPEN, "read-only", str(error))
    if isinstance(error, OSError):
        return Failure(IO, "io", str(error), os.fsdecode(error.filename) if error.filename else None)
    if isinstance(error, errors.Error):
        return Failure(FINDING, "error", str(error))
    return None


CANNOT_OPEN_ERRNO = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.EROFS,
    errno.EEXIST,
}


@contextlib.contextmanager
def open_errors(path: str) -> Iterator[None]:
    """Raise CannotOpen, not an I/O error, if `path` is missing or forbidden."""
    from lsmkv_ext import errors

    try:
        yield
    except errors.LockError:
        raise
    except OSError as error:
        if error.errno in CANNOT_OPEN_ERRNO or error.errno is None:
            reason = error.strerror or str(error)
            named = os.fsdecode(error.filename) if error.filename else path
            raise CannotOpen(f"cannot open {named}: {reason}", file=named) from error
        raise

"""The exceptions of lsmkv. The data plane raises them too, so they are defined there."""

from lsmkv_ext.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    Error,
    ForkError,
    FormatError,
    IOError,
    IteratorInvalidError,
    KeyspaceError,
    LockError,
    OptionError,
    ReadOnlyError,
    SyncError,
)

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "Error",
    "ForkError",
    "FormatError",
    "IOError",
    "IteratorInvalidError",
    "KeyspaceError",
    "LockError",
    "OptionError",
    "ReadOnlyError",
    "SyncError",
]

"""The exceptions of lsmkv. The data plane raises them too, so they are defined there."""

from lsmkv_ext.errors import (
    ClosedError,
    CorruptionError,
    Error,
    ForkError,
    IOError,
    IteratorInvalidError,
    LockError,
    OptionError,
    ReadOnlyError,
    SyncError,
)

__all__ = [
    "ClosedError",
    "CorruptionError",
    "Error",
    "ForkError",
    "IOError",
    "IteratorInvalidError",
    "LockError",
    "OptionError",
    "ReadOnlyError",
    "SyncError",
]

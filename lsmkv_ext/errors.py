"""Every exception lsmkv raises. They live here because the data plane raises them; `lsmkv.errors` re-exports."""

from __future__ import annotations

import builtins


class Error(Exception):
    """Base of all lsmkv errors.

    >>> try:
    ...     lsmkv.open("people.db", block_sise=8192)
    ... except lsmkv.Error as error:
    ...     type(error).__name__
    'OptionError'
    """

    # Gives the exceptions a signature; those of C have none.
    def __init__(self, *args: object) -> None:
        super().__init__(*args)


class IOError(Error, OSError):
    """The operating system reported an error. Carries `errno`, `strerror` and `filename` as any `OSError` does.

    >>> lsmkv.open("missing.db", "r")
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.IOError: ...
    """


class SyncError(IOError):
    """An fsync failed: what reached the disk is unknown, so nothing may be written after it."""


class CorruptionError(Error):
    """Stored bytes are damaged. Carries the `file` and the `offset`, None if unknown.

    >>> lsmkv.BlockedBloom.from_bytes(b"damaged")
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.CorruptionError: not a filter: 7 bytes are too few
    """

    def __init__(self, message: str, file: str | None = None, offset: int | None = None) -> None:
        self.file = file
        self.offset = offset
        where = "" if file is None else f" ({file}" + ("" if offset is None else f", offset {offset}") + ")"
        super().__init__(message + where)


class FormatError(Error):
    """A newer release of lsmkv wrote the file, or it needs a codec that is not installed. Carries the `file`.

    >>> issubclass(lsmkv.FormatError, lsmkv.CorruptionError)
    False
    """

    def __init__(self, message: str, file: str | None = None) -> None:
        self.file = file
        super().__init__(message if file is None else f"{message} ({file})")


class ClosedError(Error, RuntimeError):
    """The database, snapshot or iterator is closed.

    >>> db.close()
    >>> db.get(b"ada")
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.ClosedError: the database is closed
    """


class LockError(IOError):
    """Another handle, in this process or another, has the database open for writing.

    >>> try:
    ...     lsmkv.open(db.path)
    ... except lsmkv.LockError:
    ...     print("locked")
    locked
    """


class ReadOnlyError(Error):
    """A write to a database that was opened read-only, or that an I/O error has made read-only.

    >>> lsmkv.open(db.path, "r").put(b"ada", b"1815")
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.ReadOnlyError: the database was opened read-only
    """


class ForkError(Error, RuntimeError):
    """The handle was opened before a fork. Open the database again in the child.

    >>> issubclass(lsmkv.ForkError, lsmkv.Error)
    True
    """


class IteratorInvalidError(Error):
    """The cursor is on no key.

    >>> db.cursor().key()
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.IteratorInvalidError: the cursor is on no entry
    """


class KeyspaceError(Error):
    """There is no such keyspace, or it was dropped.

    >>> db.keyspace("users", create=False)
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.KeyspaceError: there is no keyspace 'users'
    """


class ConflictError(Error):
    """Something that a transaction read has changed since it began. Nothing was written; run the transaction again.

    >>> with db.transaction() as tx:
    ...     tx.put(b"ada", b"%d" % tx.get(b"n", default=0))
    ...     db.put(b"n", b"1")
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.ConflictError: something that the transaction read has changed since it began
    """


class OptionError(Error, builtins.ValueError):
    """An option is unknown, or its value is wrong.

    >>> lsmkv.Options(block_sise=8192)
    Traceback (most recent call last):
    ...
    lsmkv_ext.errors.OptionError: unknown option 'block_sise'; did you mean 'block_size'?
    """

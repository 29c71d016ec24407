"""A database in the form of the standard library's `dbm`, for `shelve` and other programs that take such a module.

>>> import shelve
>>> import lsmkv.dbm
>>> with shelve.Shelf(lsmkv.dbm.open("people.db", "c")) as shelf:
...     shelf["ada"] = {"born": 1815}
...     shelf["ada"]["born"]
1815
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from typing import Any

from lsmkv.db import DB
from lsmkv.errors import Error
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.recovery import stored_state

__all__ = ["error", "library", "open", "whichdb"]

library = "lsmkv"
# As in the standard library: what `open` and the calls raise. Their missing keys and wrong types are Python's own.
error = Error

Data = bytes | str


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data


class _Database(MutableMapping[bytes, bytes]):
    """Keys and values are bytes, or str, which is stored as UTF-8. Reads return bytes."""

    def __init__(self, db: DB) -> None:
        self._db = db

    def __getitem__(self, key: Data) -> bytes:
        return self._db[_bytes(key)]

    def __setitem__(self, key: Data, value: Data) -> None:
        self._db[_bytes(key)] = _bytes(value)

    def __delitem__(self, key: Data) -> None:
        del self._db[_bytes(key)]

    def __contains__(self, key: object) -> bool:
        return _bytes(key) in self._db

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._db)

    def __len__(self) -> int:
        return len(self._db)

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Return the keys as a list, in their order. `firstkey` and `nextkey` need no list."""
        return list(self._db)

    def get(self, key: Data, default: Any = None) -> Any:
        return self._db.get(_bytes(key), default)

    def setdefault(self, key: Data, default: Data = b"") -> bytes:
        return self._db.setdefault(_bytes(key), _bytes(default))

    def firstkey(self) -> bytes | None:
        """Return the first key, or None."""
        return next(iter(self._db), None)

    def nextkey(self, key: Data) -> bytes | None:
        """Return the key after `key`, or None."""
        after = self._db.iterator(start=_bytes(key), include_start=False, include_value=False)
        return next(after, None)

    def clear(self) -> None:
        self._db.clear()

    def reorganize(self) -> None:
        """Compact the database."""
        self._db.compact_range()

    def sync(self) -> None:
        """Make the writes so far survive a power cut. A read-only database has none."""
        if not self._db.readonly:
            self._db.sync()

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open(file: str | os.PathLike[str], flag: str = "r", mode: int = 0o666) -> _Database:
    """Open the database in the directory `file`, and return it as a mapping that takes str and bytes.

    `flag` is "r", "w", "c" or "n". `mode` is that of a directory that is created, with the bits to enter it added.
    Raises `error`.

    >>> import lsmkv.dbm
    >>> with lsmkv.dbm.open("people.db", "c") as db:
    ...     db["ada"] = "1815"
    ...     db["ada"], db.firstkey()
    (b'1815', b'ada')
    """
    path = os.fspath(file)
    if flag in ("c", "n") and not os.path.exists(path):
        os.makedirs(path, mode | (mode & 0o444) >> 2)
    return _Database(open_database(path, flag, Options()))


def whichdb(file: str | os.PathLike[str]) -> str | None:
    """Return "lsmkv.dbm" if `file` is the directory of a database, "" if it is something else, None if it is missing.

    >>> import lsmkv.dbm
    >>> lsmkv.dbm.whichdb(db.path)
    'lsmkv.dbm'
    """
    path = os.fspath(file)
    if stored_state.exists(path):
        return __name__
    return "" if os.path.exists(path) else None

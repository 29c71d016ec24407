"""Snapshot: one state of a database, with the reads of a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsmkv.columns import ColumnReads
from lsmkv.mapping import Key, OrderedMapping
from lsmkv.prefixed import PrefixedDB
from lsmkv_ext.reader import Reader, SnapshotBase


def place(store: Any) -> str:
    """The path of a database, with the name of a keyspace, for a repr."""
    name = getattr(store, "name", None)
    return repr(store.path) if name is None else f"{name!r} of {store.path!r}"


class Snapshot(SnapshotBase, ColumnReads, OrderedMapping, Mapping[bytes, bytes]):
    """The database at one moment, as a read-only mapping. `db.snapshot()` returns it.

    It keeps the files it reads on disk until it is closed or collected.

    >>> with db.snapshot() as before:
    ...     db.put(b"ada", b"1815")
    ...     before.get(b"ada"), db.get(b"ada")
    (None, b'1815')
    """

    def __init__(self, db: Reader, moment: SnapshotBase | None = None) -> None:
        super().__init__(db, moment)
        self._of = place(db)

    get = SnapshotBase.get
    iterator = SnapshotBase.iterator
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        """Return a read-only mapping of the keys that begin with `prefix`, without the prefix.

        >>> db.put(b"user:ada", b"1815")
        >>> db.snapshot().prefixed_db(b"user:")[b"ada"]
        b'1815'
        """
        return PrefixedDB(self, prefix)

    def keyspace(self, keyspace: Reader) -> Snapshot:
        """Return another keyspace of the database at the same moment.

        Raises `KeyspaceError` if it was created after the snapshot.

        >>> users = db.keyspace("users")
        >>> with db.snapshot() as before:
        ...     users.put(b"ada", b"1815")
        ...     before.keyspace(users).get(b"ada")
        """
        return Snapshot(keyspace, self)

    def __repr__(self) -> str:
        if self.closed:
            return f"<lsmkv.Snapshot at {self.sequence} (closed)>"
        return f"<lsmkv.Snapshot of {self._of} at {self.sequence}>"

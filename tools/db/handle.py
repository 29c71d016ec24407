"""Opening a database for a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsmkv_tool.db.stored_options import read_options
from lsmkv_tool.directory import Directory
from lsmkv_tool.exits import open_errors

if TYPE_CHECKING:
    from lsmkv.db import DB
    from lsmkv.keyspace import KeyspaceCalls


def open_reader(path: str) -> DB:
    """Open read-only. Takes no lock, writes nothing and works while another process has the database open."""
    import lsmkv
    from lsmkv.errors import CorruptionError
    from lsmkv.options import Options

    directory = Directory(path)
    try:
        options = read_options(directory)
    except CorruptionError:
        options = Options()  # a reader needs none of them, and `verify` reports the damage
    with open_errors(path):
        return lsmkv.open(path, "r", options=options)


def open_writer(path: str, **options: Any) -> DB:
    """Open for writing. Raises LockError while another process has the database open."""
    import lsmkv

    directory = Directory(path)
    with open_errors(path):
        # Keep the stored options, or this visit would change how the database is maintained.
        return lsmkv.open(path, "w", options=read_options(directory), **options)


def in_keyspace(db: DB, name: str) -> KeyspaceCalls:
    """Return the keyspace of this name, the default one for "". Raises KeyspaceError if there is none."""
    return db.keyspace(name, create=False) if name else db

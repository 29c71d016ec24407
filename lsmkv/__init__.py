"""lsmkv: an embedded, ordered, crash-safe key-value store.

>>> import lsmkv
>>> with lsmkv.open("people.db") as db:
...     db[b"ada"] = b"1815"
...     db.get(b"ada")
b'1815'
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from lsmkv.db import DB
from lsmkv.errors import (
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
)
from lsmkv.events import Event
from lsmkv.keyspace import Keyspace
from lsmkv.open_database import open_database, upgrade_database
from lsmkv.options import Options
from lsmkv.snapshot import Snapshot
from lsmkv.transaction import Transaction
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.port.wall_clock import ManualClock
from lsmkv_ext.read.cursor import Cursor
from lsmkv_ext.read.iterator import Iterator

if TYPE_CHECKING:
    from lsmkv.bulk import BuiltPartition, BulkWriter
    from lsmkv.cache import Cache, CacheItem, CacheStats, Codec
    from lsmkv.filters.planner import plan
    from lsmkv.option_types import OpenOptions
    from lsmkv.recovery.destroy import destroy
    from lsmkv.recovery.repair import RepairReport, repair
    from lsmkv.recovery.verify import Report, verify
    from lsmkv.repository.create import backup
    from lsmkv.repository.prune import backups, prune_backups
    from lsmkv.repository.restore import restore
    from lsmkv.repository.version import Backup
    from lsmkv.stats.introspect import Explain
    from lsmkv.stats.metrics import Stats
    from lsmkv.stats.tables import TableInfo
    from lsmkv_ext.arrow.array import ArrowColumn
    from lsmkv_ext.columns.scan import ArrowScan
    from lsmkv_ext.filter.bloom import BlockedBloom
    from lsmkv_ext.filter.counting import CountingBloom
    from lsmkv_ext.filter.fuse_filter import FuseFilter
    from lsmkv_ext.filter.rotating import RotatingBloom
    from lsmkv_ext.filter.scalable import ScalableBloom
    from lsmkv_ext.table.sst_reader import SSTReader
    from lsmkv_ext.table.sst_writer import SSTWriter

__version__ = "0.1.0"

__all__ = [
    "DB",
    "ArrowColumn",
    "ArrowScan",
    "Backup",
    "BlockedBloom",
    "BuiltPartition",
    "BulkWriter",
    "Cache",
    "CacheItem",
    "CacheStats",
    "ClosedError",
    "Codec",
    "ConflictError",
    "CorruptionError",
    "CountingBloom",
    "Cursor",
    "Error",
    "Event",
    "Explain",
    "ForkError",
    "FormatError",
    "FuseFilter",
    "IOError",
    "Iterator",
    "IteratorInvalidError",
    "Keyspace",
    "KeyspaceError",
    "LockError",
    "ManualClock",
    "OptionError",
    "Options",
    "ReadOnlyError",
    "RepairReport",
    "Report",
    "RotatingBloom",
    "SSTReader",
    "SSTWriter",
    "ScalableBloom",
    "Snapshot",
    "Stats",
    "TableInfo",
    "Transaction",
    "WriteBatch",
    "backup",
    "backups",
    "destroy",
    "open",
    "plan",
    "prune_backups",
    "repair",
    "restore",
    "upgrade",
    "verify",
]

# Imported at their first use: opening a database needs none of them, and they take longer to import than it does.
_LAZY = {
    "ArrowColumn": "lsmkv_ext.arrow.array",
    "ArrowScan": "lsmkv_ext.columns.scan",
    "Backup": "lsmkv.repository.version",
    "BlockedBloom": "lsmkv_ext.filter.bloom",
    "BuiltPartition": "lsmkv.bulk",
    "BulkWriter": "lsmkv.bulk",
    "Cache": "lsmkv.cache",
    "CacheItem": "lsmkv.cache",
    "CacheStats": "lsmkv.cache",
    "Codec": "lsmkv.cache",
    "CountingBloom": "lsmkv_ext.filter.counting",
    "Explain": "lsmkv.stats.introspect",
    "FuseFilter": "lsmkv_ext.filter.fuse_filter",
    "RepairReport": "lsmkv.recovery.repair",
    "Report": "lsmkv.recovery.verify",
    "RotatingBloom": "lsmkv_ext.filter.rotating",
    "SSTReader": "lsmkv_ext.table.sst_reader",
    "SSTWriter": "lsmkv_ext.table.sst_writer",
    "ScalableBloom": "lsmkv_ext.filter.scalable",
    "Stats": "lsmkv.stats.metrics",
    "TableInfo": "lsmkv.stats.tables",
    "backup": "lsmkv.repository.create",
    "backups": "lsmkv.repository.prune",
    "destroy": "lsmkv.recovery.destroy",
    "plan": "lsmkv.filters.planner",
    "prune_backups": "lsmkv.repository.prune",
    "repair": "lsmkv.recovery.repair",
    "restore": "lsmkv.repository.restore",
    "verify": "lsmkv.recovery.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'lsmkv' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return found


def open(
    path: str | os.PathLike[str],
    flag: str = "c",
    *,
    options: Options | Mapping[str, Any] | None = None,
    clock: ManualClock | None = None,
    **opts: Unpack[OpenOptions],
) -> DB:
    """Open the database in the directory `path` and return it as a `DB`.

    `flag` is as in `dbm`: "r" reads, also beside a writer; "w" writes; "c" creates a missing database; "n" always
    starts an empty one. Options come as an `Options` or a mapping, as keywords, or both; keywords win. `clock` replaces
    the clock of the system that judges expiries, for tests.

    Raises `LockError` if another handle writes to it, `CorruptionError` if its files are damaged, `IOError` if it is
    missing or the disk fails, and `OptionError` for a wrong option.

    >>> with lsmkv.open("people.db", write_buffer_size=1 << 20) as db:
    ...     db[b"ada"] = b"1815"
    """
    return open_database(os.fspath(path), flag, Options.of(options, opts), clock)


def upgrade(path: str | os.PathLike[str]) -> None:
    """Give the database in the directory `path` the latest format. One that has it already stays as it is.

    Releases that do not know the format cannot open the database from then on. Raises `LockError` if another handle
    writes to it, `IOError` if it is missing, and what `open` raises.

    >>> lsmkv.open("people.db").close()
    >>> lsmkv.upgrade("people.db")
    """
    upgrade_database(os.fspath(path))

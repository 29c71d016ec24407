"""lsmkv: an embedded, ordered, crash-safe key-value store.

>>> import lsmkv                                   # doctest: +SKIP
>>> with lsmkv.open("people.db") as db:            # doctest: +SKIP
...     db[b"ada"] = b"1815"
...     db.get(b"ada")
b'1815'
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lsmkv.db import DB, Snapshot
from lsmkv.errors import (
    ClosedError,
    CorruptionError,
    Error,
    ForkError,
    IOError,
    IteratorInvalidError,
    LockError,
    OptionError,
    ReadOnlyError,
)
from lsmkv.filters.planner import plan
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.recovery.maintenance import Report, destroy, verify
from lsmkv.recovery.repair import RepairReport, repair
from lsmkv.stats.introspect import Explain
from lsmkv.stats.metrics import Stats
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.read.iterator import Cursor, Iterator
from lsmkv_ext.table.sst import SSTReader, SSTWriter

__version__ = "0.1.0"

__all__ = [
    "DB",
    "BlockedBloom",
    "ClosedError",
    "CorruptionError",
    "Cursor",
    "Error",
    "Explain",
    "ForkError",
    "IOError",
    "Iterator",
    "IteratorInvalidError",
    "LockError",
    "OptionError",
    "Options",
    "ReadOnlyError",
    "RepairReport",
    "Report",
    "SSTReader",
    "SSTWriter",
    "Snapshot",
    "Stats",
    "WriteBatch",
    "destroy",
    "open",
    "plan",
    "repair",
    "verify",
]


def open(
    path: str | os.PathLike[str],
    flag: str = "c",
    *,
    options: Options | Mapping[str, Any] | None = None,
    **opts: Any,
) -> DB:
    """Opens the database in the folder `path`.

    `flag` is dbm's: "r" reads only (also beside a writer), "w" writes, "c" creates it where it is missing,
    "n" always
    starts an empty one. Options come as an `Options` (or a mapping), as keywords, or both; keywords win.
    """
    return open_database(os.fspath(path), flag, Options.of(options, opts))

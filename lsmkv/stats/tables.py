"""The tables of a keyspace, for programs that read it in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from lsmkv import filenames
from lsmkv.compaction.subcompaction import cuts
from lsmkv.version.stored_tree import StoredTree


@dataclass(frozen=True)
class TableInfo:
    """A table of a keyspace.

    >>> db.put(b"ada", b"1815")
    >>> db.flush()
    >>> [(table.level, table.smallest, table.entries) for table in db.tables()]
    [(0, b'ada', 1)]
    """

    path: str
    level: int
    number: int
    size: int
    entries: int
    smallest: bytes
    largest: bytes


def tables(tree: StoredTree) -> list[TableInfo]:
    with tree.versions.lock:
        levels = tree.current.levels
    return [
        TableInfo(
            filenames.table_path(tree.versions.directory, f.number),
            level,
            f.number,
            f.size,
            f.entries,
            f.smallest,
            f.largest,
        )
        for level, files in enumerate(levels)
        for f in files
    ]


def split_points(tree: StoredTree, parts: int) -> list[bytes]:
    parts = index(parts)
    if parts < 1:
        raise ValueError("parts must be at least 1")
    return cuts(tree.tables(), parts, min_bytes=1)

"""The tables whose filters a command inspects: those of a database, or one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lsmkv_tool.directory import is_directory
from lsmkv_tool.manifest.tree import Tree, with_tree
from lsmkv_tool.sst.table import Table

if TYPE_CHECKING:
    from lsmkv.version.version import TableMeta

T = TypeVar("T")


@dataclass(frozen=True)
class TableRef:
    """A table that may be opened. A file outside a database has no level and no metadata."""

    path: str
    level: int | None = None
    meta: TableMeta | None = None

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def number(self) -> int | None:
        return self.meta.number if self.meta else None

    def open(self) -> Table:
        return Table(self.path, self.meta.global_seq if self.meta else 0)


def tree_tables(tree: Tree) -> list[TableRef]:
    """Return the tables of a database, newest first."""
    return [TableRef(tree.path(meta), level, meta) for level, meta in tree.files]


def with_tables(path: str, keyspace: str, compute: Callable[[list[TableRef], Tree | None], T]) -> T:
    """Return `compute(tables, tree)` for a keyspace of the database `path`, or for the file `path` with tree None."""
    if not is_directory(path):
        return compute([TableRef(path)], None)
    return with_tree(path, lambda tree: compute(tree_tables(tree), tree), keyspace)

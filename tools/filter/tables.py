"""The `filter` group, and the tables its commands look at: those of a database, or one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lsmkv_tool.command import group
from lsmkv_tool.directory import is_folder
from lsmkv_tool.manifest.tree import Tree, steady
from lsmkv_tool.sst.table import Table, open_table

if TYPE_CHECKING:
    from lsmkv.version.version import FileMeta

T = TypeVar("T")

filter = group("filter", "The Bloom filters of tables: what they cost, save and should be.")


@dataclass(frozen=True)
class Place:
    """A table and where it stands; level and meta are None for a file outside a database."""

    path: str
    level: int | None = None
    meta: FileMeta | None = None

    @property
    def number(self) -> int | None:
        return self.meta.number if self.meta else None

    @contextmanager
    def opened(self) -> Iterator[Table]:
        with open_table(self.path, self.meta.global_seq if self.meta else 0) as table:
            yield table


def over_tables(path: str, compute: Callable[[list[Place], Tree | None], T]) -> T:
    """`compute` over the tables of the database `path`, newest first, or over the one file `path`."""
    if not is_folder(path):
        return compute([Place(path)], None)
    return steady(path, lambda tree: compute(places(tree), tree))


def places(tree: Tree) -> list[Place]:
    return [Place(tree.path(meta), level, meta) for level, meta in tree.files]

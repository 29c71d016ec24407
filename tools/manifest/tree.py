"""The LSM tree of one keyspace as the manifest and the directory describe it. Opens no table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lsmkv_tool.directory import Directory, Entry
from lsmkv_tool.exits import CannotOpen
from lsmkv_tool.manifest.reader import read_state
from lsmkv_tool.render.key_axis import KeyAxis

if TYPE_CHECKING:
    from lsmkv.version.manifest import ManifestState, TreeState
    from lsmkv.version.version import TableMeta, Version

T = TypeVar("T")
ATTEMPTS = 20


@dataclass(frozen=True)
class Tree:
    directory: Directory
    state: ManifestState
    entries: list[Entry]
    keyspace: int = 0  # its id

    @property
    def stored(self) -> TreeState:
        return self.state.trees[self.keyspace]

    @property
    def version(self) -> Version:
        return self.stored.version

    @property
    def levels(self) -> Sequence[Sequence[TableMeta]]:
        return self.version.levels

    @property
    def all_metas(self) -> list[TableMeta]:
        """Return the tables of all keyspaces."""
        return list(self.state.files())

    def has(self, number: int) -> bool:
        """Return whether a keyspace has the table `number`."""
        return any(meta.number == number for meta in self.state.files())

    @property
    def files(self) -> list[tuple[int, TableMeta]]:
        """Return (level, table) pairs, newest first."""
        return [(level, meta) for level, files in enumerate(self.levels) for meta in files]

    @property
    def metas(self) -> list[TableMeta]:
        return [meta for _, meta in self.files]

    @property
    def filter_bytes(self) -> int:
        return sum(meta.filter_bytes for meta in self.metas)

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def live_logs(self) -> list[Entry]:
        return [entry for entry in self.of_kind("log") if entry.number >= self.state.log_number]

    @property
    def obsolete(self) -> list[Entry]:
        """Return tables and logs that the manifest no longer needs. The next writable open removes them."""
        named = {meta.number for meta in self.all_metas}
        tables = [entry for entry in self.of_kind("table") if entry.number not in named]
        return tables + [entry for entry in self.of_kind("log") if entry.number < self.state.log_number]

    def path(self, meta: TableMeta) -> str:
        return self.directory.file(f"{meta.number:06d}.sst")

    def key_axis(self) -> KeyAxis:
        return KeyAxis(key for meta in self.metas for key in (meta.smallest, meta.largest))


def keyspace_id(state: ManifestState, name: str) -> int:
    """Return the id of a keyspace, 0 for the name "". Raises KeyspaceError if there is none."""
    from lsmkv_ext.errors import KeyspaceError

    for keyspace, tree in state.trees.items():
        if tree.name == name:
            return keyspace
    raise KeyspaceError(f"there is no keyspace {name!r}")


def load_tree(db: str, keyspace: str = "") -> Tree:
    return with_tree(db, lambda tree: tree, keyspace)


def with_tree(db: str, compute: Callable[[Tree], T], keyspace: str = "") -> T:
    """Return `compute(tree)` for the keyspace of this name.

    Retry when a running database has removed files that `compute` needs.
    """
    from lsmkv_ext.errors import CorruptionError

    for left in reversed(range(ATTEMPTS)):
        before = _manifest_stamp(db)
        try:
            directory = Directory(db)
            state = read_state(db)
            return compute(Tree(directory, state, directory.entries(), keyspace_id(state, keyspace)))
        except (CannotOpen, CorruptionError, FileNotFoundError):
            if not left or _manifest_stamp(db) == before:
                raise
    raise AssertionError("the last attempt returns or raises")


def _manifest_stamp(db: str) -> tuple[tuple[str, int, int], ...]:
    """Return sizes and times of CURRENT and the manifests, which change with every edit."""
    return tuple(
        (entry.name, entry.size, entry.mtime_ns)
        for entry in Directory(db).entries()
        if entry.kind in ("manifest", "current")
    )

"""The tree of a database as its manifest and folder give it: no table is opened, any size answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lsmkv_tool.directory import Entry, Folder
from lsmkv_tool.exits import CannotOpen
from lsmkv_tool.manifest.reader import current_state
from lsmkv_tool.render.key_axis import KeySpace

if TYPE_CHECKING:
    from lsmkv.version.manifest import ManifestState
    from lsmkv.version.version import FileMeta

T = TypeVar("T")
ATTEMPTS = 20


@dataclass(frozen=True)
class Tree:
    folder: Folder
    state: ManifestState
    entries: list[Entry]

    @property
    def levels(self) -> Sequence[Sequence[FileMeta]]:
        return self.state.version.levels

    @property
    def files(self) -> list[tuple[int, FileMeta]]:
        return [(level, meta) for level, files in enumerate(self.levels) for meta in files]

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def live_logs(self) -> list[Entry]:
        return [entry for entry in self.of_kind("log") if entry.number >= self.state.log_number]

    @property
    def strangers(self) -> list[Entry]:
        """Tables and logs of ours that the manifest no longer names: an opening for writing removes them."""
        named = {meta.number for _, meta in self.files}
        tables = [entry for entry in self.of_kind("table") if entry.number not in named]
        return tables + [entry for entry in self.of_kind("log") if entry.number < self.state.log_number]

    def path(self, meta: FileMeta) -> str:
        return self.folder.file(f"{meta.number:06d}.sst")

    def bounds(self) -> KeySpace:
        return KeySpace(key for _, meta in self.files for key in (meta.smallest, meta.largest))


def load(db: str) -> Tree:
    folder = Folder(db)
    return Tree(folder, current_state(db), folder.entries())


def steady(db: str, compute: Callable[[Tree], T]) -> T:
    """`compute` on the tree of now. Where the owner of a running database drops tables meanwhile, again."""
    from lsmkv_ext.errors import CorruptionError

    for left in reversed(range(ATTEMPTS)):
        mark = _mark(db)
        try:
            return compute(load(db))
        except (CannotOpen, CorruptionError, FileNotFoundError):
            if not left or _mark(db) == mark:
                raise
    raise AssertionError("the last attempt returns or raises")


def _mark(db: str) -> tuple[tuple[str, int, int], ...]:
    """What changes whenever the tree does: the manifests and CURRENT, by size and time."""
    return tuple(
        (entry.name, entry.size, entry.mtime_ns)
        for entry in Folder(db).entries()
        if entry.kind in ("manifest", "current")
    )


def expected_fpr(meta: FileMeta) -> float | None:
    """What the filter of this table should let pass; None without a filter."""
    from lsmkv_ext.filter.bloom import fpr_for

    if not meta.filter_bytes or not meta.k:
        return None
    return float(fpr_for(meta.filter_keys, meta.filter_bytes // 64, meta.k))


def bits_per_key(files: Iterable[FileMeta]) -> float | None:
    filtered = [meta for meta in files if meta.filter_keys]
    keys = sum(meta.filter_keys for meta in filtered)
    return sum(meta.filter_bytes for meta in filtered) * 8 / keys if keys else None


def wasted_reads(level: int, files: Sequence[FileMeta]) -> float:
    """Table reads that a lookup of an absent key is expected to cost in this level.

    Every file of L0 may be asked; of a deeper level only the one whose range holds the key, here weighted by
    entries.
    """
    rates = [1.0 if (rate := expected_fpr(meta)) is None else rate for meta in files]
    if level == 0:
        return sum(rates)
    entries = sum(meta.entries for meta in files)
    weighted = sum(rate * meta.entries for rate, meta in zip(rates, files, strict=True))
    return weighted / entries if entries else 0.0


def level_rows(tree: Tree) -> list[dict[str, Any]]:
    """One row per level that holds files."""
    space = tree.bounds()
    rows = []
    for level, files in enumerate(tree.levels):
        if not files:
            continue
        rows.append(
            {
                "level": level,
                "files": len(files),
                "bytes": sum(meta.size for meta in files),
                "entries": sum(meta.entries for meta in files),
                "deletes": sum(meta.deletes for meta in files),
                "range_tombstones": sum(meta.range_tombstones for meta in files),
                "raw_bytes": sum(meta.raw_bytes for meta in files),
                "data_bytes": sum(meta.data_bytes for meta in files),
                "index_bytes": sum(meta.index_bytes for meta in files),
                "filter_bytes": sum(meta.filter_bytes for meta in files),
                "bits_per_key": bits_per_key(files),
                "expected_wasted_reads": wasted_reads(level, files),
                "spans": [
                    {"number": meta.number, "start": space(meta.smallest), "stop": space(meta.largest)}
                    for meta in files
                ],
            }
        )
    return rows

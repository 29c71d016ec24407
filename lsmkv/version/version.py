"""A Version: the tables that form the tree at one moment. Immutable; a change creates a new one.

L0 is ordered newest first and its files may overlap. In each deeper level files are ordered by key and
disjoint. Level n is newer than level n + 1 for every key.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field

from lsmkv.options import MAX_LEVELS
from lsmkv_ext.table.meta import KeyRange as KeyRange
from lsmkv_ext.table.meta import TableMeta as TableMeta

EVERYTHING = KeyRange(None, None)


def hull(files: Iterable[TableMeta]) -> KeyRange:
    """The smallest range that covers all of `files` (at least one)."""
    ranges = (f.range for f in files)
    result = next(ranges)
    for other in ranges:
        result = result.union(other)
    return result


def total_size(files: Iterable[TableMeta]) -> int:
    return sum(f.size for f in files)


Levels = tuple[tuple[TableMeta, ...], ...]


def _in_order(level: int, files: Iterable[TableMeta]) -> tuple[TableMeta, ...]:
    """The files of a level below L0 by key; ValueError if two of them overlap."""
    ordered = tuple(sorted(files, key=lambda f: f.smallest))
    for low, high in itertools.pairwise(ordered):
        if low.largest > high.smallest or (low.largest == high.smallest and not low.largest_exclusive):
            raise ValueError(f"files {low.number} and {high.number} of L{level} overlap")
    return ordered


@dataclass(frozen=True)
class Version:
    """The files of each level. `base` is a version with which this one shares levels: their order is not checked
    again.
    """

    levels: Levels = ((),) * MAX_LEVELS
    base: InitVar[Version | None] = None
    sizes: tuple[int, ...] = field(init=False, compare=False, default=())
    places: dict[int, tuple[int, TableMeta]] = field(init=False, compare=False, repr=False)  # by file number

    def __post_init__(self, base: Version | None) -> None:
        if len(self.levels) != MAX_LEVELS:
            raise ValueError(f"a version has {MAX_LEVELS} levels, not {len(self.levels)}")
        known = () if base is None else base.levels[1:]
        shared = {id(files) for files in known}
        ordered = [tuple(sorted(self.levels[0], key=lambda f: f.age, reverse=True))]
        for level, files in enumerate(self.levels[1:], 1):
            ordered.append(files if id(files) in shared else _in_order(level, files))
        places = {f.number: (level, f) for level, files in enumerate(ordered) for f in files}
        if len(places) != sum(map(len, ordered)):
            raise ValueError("a file number appears twice")
        object.__setattr__(self, "levels", tuple(ordered))
        object.__setattr__(self, "sizes", tuple(total_size(files) for files in ordered))
        object.__setattr__(self, "places", places)

    def check(self) -> None:
        """Raises ValueError if a level, shared with `base` or not, is out of order."""
        for level, files in enumerate(self.levels[1:], 1):
            if _in_order(level, files) != files:
                raise ValueError(f"L{level} is out of order")

    def files(self) -> Iterator[TableMeta]:
        for files in self.levels:
            yield from files

    @property
    def last_level(self) -> int:
        """The deepest level with a file; 0 for a tree that is empty or only L0."""
        return max((level for level, files in enumerate(self.levels) if files), default=0)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)

    def level_of(self, number: int) -> int | None:
        return self.places[number][0] if number in self.places else None

    def overlapping(self, level: int, span: KeyRange) -> tuple[TableMeta, ...]:
        """Files of `level` that may hold a key of `span`, in the level's order."""
        files = self.levels[level]
        if level == 0:
            return tuple(f for f in files if f.range.overlaps(span))
        first = 0 if span.start is None else bisect_left(files, span.start, key=lambda f: f.largest)
        found = []
        for f in files[first:]:
            if span.before(f.range):
                break
            if f.range.overlaps(span):
                found.append(f)
        return tuple(found)

    def below(self, level: int, span: KeyRange = EVERYTHING) -> list[TableMeta]:
        """Files of all levels deeper than `level` that overlap `span`, by smallest key."""
        found = [f for deeper in range(level + 1, MAX_LEVELS) for f in self.overlapping(deeper, span)]
        return sorted(found, key=lambda f: f.smallest)

    def with_levels(self, changed: Mapping[int, Iterable[TableMeta]]) -> Version:
        return Version(tuple(tuple(changed.get(i, files)) for i, files in enumerate(self.levels)), self)

    def shifted(self, by: int) -> Version:
        """L1 and deeper renumbered: +1 opens an empty L1, -1 closes one."""
        deep = self.levels[1:]
        if by == 1 and not deep[-1]:
            return Version((self.levels[0], (), *deep[:-1]), self)
        if by == -1 and not deep[0]:
            return Version((self.levels[0], *deep[1:], ()), self)
        raise ValueError(f"levels cannot shift by {by}: the level that would vanish holds files")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMeta:
    """What the tree knows about a table without opening it."""

    number: int
    size: int
    entries: int
    smallest: bytes
    largest: bytes
    largest_exclusive: bool = False  # a range tombstone ends just before `largest`
    deletes: int = 0
    range_tombstones: int = 0
    min_seq: int = 0
    max_seq: int = 0
    global_seq: int = 0  # not 0: an ingested table, all of whose entries have this sequence number
    raw_bytes: int = 0
    data_bytes: int = 0
    index_bytes: int = 0
    filter_bytes: int = 0
    filter_keys: int = 0
    millibits: int = 0
    k: int = 0
    filter_level: int = 0

    def __post_init__(self) -> None:
        if self.smallest > self.largest:
            raise ValueError(f"file {self.number}: smallest key above the largest")

    def overlaps(self, other: KeyRange | FileMeta) -> bool:
        return self.range.overlaps(other if isinstance(other, KeyRange) else other.range)

    @property
    def range(self) -> KeyRange:
        return KeyRange(self.smallest, self.largest, self.largest_exclusive)

    @property
    def age(self) -> tuple[int, int]:
        """Orders the files of L0: larger is newer."""
        return (self.max_seq, self.number)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """From `start` to `stop`; None is open on that side. `exclusive` leaves `stop` itself out."""

    start: bytes | None
    stop: bytes | None
    exclusive: bool = False

    def overlaps(self, other: KeyRange) -> bool:
        return not (self.before(other) or other.before(self))

    def before(self, other: KeyRange) -> bool:
        """All of this lies below all of `other`."""
        if self.stop is None or other.start is None:
            return False
        return self.stop < other.start or (self.exclusive and self.stop == other.start)

    def covers(self, other: KeyRange) -> bool:
        """All of `other` lies in this."""
        if self.start is not None and (other.start is None or other.start < self.start):
            return False
        if self.stop is None:
            return True
        if other.stop is None or other.stop > self.stop:
            return False
        return other.stop < self.stop or other.exclusive or not self.exclusive

    def union(self, other: KeyRange) -> KeyRange:
        start = None if self.start is None or other.start is None else min(self.start, other.start)
        if self.stop is None or other.stop is None:
            return KeyRange(start, None)
        last = max((self.stop, not self.exclusive), (other.stop, not other.exclusive))
        return KeyRange(start, last[0], not last[1])


EVERYTHING = KeyRange(None, None)


def hull(files: Iterable[FileMeta]) -> KeyRange:
    """The smallest range that covers all of `files` (at least one)."""
    ranges = (f.range for f in files)
    result = next(ranges)
    for other in ranges:
        result = result.union(other)
    return result


def total_size(files: Iterable[FileMeta]) -> int:
    return sum(f.size for f in files)


Levels = tuple[tuple[FileMeta, ...], ...]


def _in_order(level: int, files: Iterable[FileMeta]) -> tuple[FileMeta, ...]:
    """The files of a level below L0 by key; ValueError where two of them overlap."""
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
    places: dict[int, tuple[int, FileMeta]] = field(init=False, compare=False, repr=False)  # by file number

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

    def files(self) -> Iterator[FileMeta]:
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

    def overlapping(self, level: int, span: KeyRange) -> tuple[FileMeta, ...]:
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

    def below(self, level: int, span: KeyRange = EVERYTHING) -> list[FileMeta]:
        """Files of all levels deeper than `level` that overlap `span`, by smallest key."""
        found = [f for deeper in range(level + 1, MAX_LEVELS) for f in self.overlapping(deeper, span)]
        return sorted(found, key=lambda f: f.smallest)

    def with_levels(self, changed: Mapping[int, Iterable[FileMeta]]) -> Version:
        return Version(tuple(tuple(changed.get(i, files)) for i, files in enumerate(self.levels)), self)

    def shifted(self, by: int) -> Version:
        """L1 and deeper renumbered: +1 opens an empty L1, -1 closes one."""
        deep = self.levels[1:]
        if by == 1 and not deep[-1]:
            return Version((self.levels[0], (), *deep[:-1]), self)
        if by == -1 and not deep[0]:
            return Version((self.levels[0], *deep[1:], ()), self)
        raise ValueError(f"levels cannot shift by {by}: the level that would vanish holds files")

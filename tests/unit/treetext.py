"""Trees as small texts.

    L0: 9[a-f] 8[c-z]
    L1: 3[a-k]10 2[l-z]10/5d

A file is number[smallest-largest], then its size (default 1), then optionally /Nd (N deletes of 10 entries), /r (a
range tombstone) or /R (a range tombstone and no entries). `)` instead of `]` leaves the largest key out. In L0 a larger
number is newer.
"""

from __future__ import annotations

import re

from lsmkv.options import MAX_LEVELS
from lsmkv.version.version import TableMeta, Version

FILE = re.compile(r"(\d+)\[(\w+)-(\w+)([\])])(\d+)?(?:/(\d+)d)?(/[rR])?\Z")


def parse_file(text: str) -> TableMeta:
    match = FILE.match(text)
    assert match, text
    number, smallest, largest, bracket, size, deletes, ranged = match.groups()
    return TableMeta(
        number=int(number),
        size=int(size or 1),
        entries=0 if ranged == "/R" else 10,
        deletes=int(deletes or 0),
        range_tombstones=1 if ranged else 0,
        smallest=smallest.encode(),
        largest=largest.encode(),
        largest_exclusive=bracket == ")",
        min_seq=int(number),
        max_seq=int(number),
    )


def tree(text: str) -> Version:
    levels: list[tuple[TableMeta, ...]] = [()] * MAX_LEVELS
    for line in text.strip().splitlines():
        name, _, files = line.strip().partition(":")
        levels[int(name[1:])] = tuple(parse_file(item) for item in files.split())
    return Version(tuple(levels))


def show(version: Version) -> str:
    return " | ".join(
        f"L{level}: " + " ".join(str(f.number) for f in files) for level, files in enumerate(version.levels) if files
    )

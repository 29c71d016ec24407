"""Which kind of filter each level has, from the option `filter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# From this level on a table lives long, however deep the tree is.
LONG_LIVED = 2
NAMES = ("bloom", "fuse", "auto")


class Kind(NamedTuple):
    """The kind of filter in one level."""

    fuse: bool
    strict: bool  # a table with a filter of the other kind has filter debt


def kinds_of(given: str | Sequence[str], n_levels: int, bottom: int) -> tuple[Kind, ...]:
    """The kind of each level. `bottom` is the deepest level with tables. The last entry of a list continues.

    "auto": flushes and upper levels have Bloom filters, which are cheaper to build; the bottom level and all from
    `LONG_LIVED` on have fuse filters. L0 is never the bottom. A table that was at the bottom keeps its fuse filter.
    """
    names = [given] if isinstance(given, str) else list(given)
    if not names or any(name not in NAMES for name in names):
        raise ValueError(f'filter must be "bloom", "fuse" or "auto", or a list of these, not {given!r}')
    return tuple(_kind(names[min(level, len(names) - 1)], level, bottom) for level in range(n_levels))


def _kind(name: str, level: int, bottom: int) -> Kind:
    lives = level > 0 and (level >= LONG_LIVED or level >= bottom)
    if name == "auto":
        return Kind(lives, lives)
    return Kind(name == "fuse", True)

"""Columns of a listing: heading, field, number format, and how they give way on a narrow terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lsmkv_tool.render import units

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """Shows the field `name` of each row under `title`. A column with `hide_empty` needs a row with a value.

    On a narrow terminal the columns of the highest `rank` are left out first, those of rank 0 never. Cells are
    never broken, but for a `key`, which is shortened in the middle, and `prose`, which is wrapped between words.
    """

    title: str
    name: str
    show: Callable[[Any], str] = str
    right: bool = False
    hide_empty: bool = False
    rank: int = 0
    key: bool = False
    prose: bool = False

    def cell(self, row: Row) -> str:
        value = row.get(self.name)
        return "-" if value is None else self.show(value)

    def cells(self, rows: Sequence[Row]) -> list[str]:
        return [self.cell(row) for row in rows]

    def ranked(self, rank: int) -> Column:
        return replace(self, rank=rank)


class FileColumn(Column):
    """Shows paths. The directory is left out if all files are in the same one."""

    def cells(self, rows: Sequence[Row]) -> list[str]:
        shown = super().cells(rows)
        same = len({os.path.dirname(path) for path in shown}) == 1
        return [os.path.basename(path) for path in shown] if same else shown


FILE = FileColumn("file", "file")


def optional(title: str, name: str, rank: int = 0) -> Column:
    return Column(title, name, hide_empty=True, rank=rank)


def num(title: str, name: str, show: Callable[[Any], str] = str, rank: int = 0) -> Column:
    return Column(title, name, show, right=True, rank=rank)


def fixed(title: str, name: str, digits: int, rank: int = 0) -> Column:
    return num(title, name, lambda x: f"{x:.{digits}f}", rank)


def percent(title: str, name: str, digits: int, rank: int = 0) -> Column:
    return num(title, name, lambda x: units.percent(x, digits), rank)


def key(title: str, name: str, rank: int = 0) -> Column:
    return Column(title, name, key=True, rank=rank)


def prose(title: str, name: str, *, hide_empty: bool = False) -> Column:
    return Column(title, name, hide_empty=hide_empty, prose=True)


LEVEL = num("level", "level", lambda level: f"L{level}")
EXPIRES = Column("expires", "expires", units.clock_text, hide_empty=True, rank=1)
PROBLEM = prose("problem", "problem", hide_empty=True)


def present(row: Row, *names: str) -> list[str]:
    """Return the given fields as text, without those that are None."""
    return [str(row[name]) for name in names if row[name] is not None]


def expiry_text(row: Row) -> list[str]:
    return [] if row["expires"] is None else [f"expires {row['expires']}"]

"""Columns of a listing: heading, field and number format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lsmkv_tool.render import units

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """Shows the field `name` of each row under `title`. A column with `hide_empty` needs a row with a value."""

    title: str
    name: str
    show: Callable[[Any], str] = str
    right: bool = False
    hide_empty: bool = False

    def cell(self, row: Row) -> str:
        value = row.get(self.name)
        return "-" if value is None else self.show(value)


def optional(title: str, name: str) -> Column:
    return Column(title, name, hide_empty=True)


def num(title: str, name: str, show: Callable[[Any], str] = str) -> Column:
    return Column(title, name, show, right=True)


def fixed(title: str, name: str, digits: int) -> Column:
    return num(title, name, lambda x: f"{x:.{digits}f}")


def percent(title: str, name: str, digits: int) -> Column:
    return num(title, name, lambda x: units.percent(x, digits))


LEVEL = num("level", "level", lambda level: f"L{level}")
EXPIRES = optional("expires", "expires")


def present(row: Row, *names: str) -> list[str]:
    """Return the given fields as text, without those that are None."""
    return [str(row[name]) for name in names if row[name] is not None]


def expiry_text(row: Row) -> list[str]:
    return [] if row["expires"] is None else [f"expires {row['expires']}"]

"""Parameter types of commands: keys, sizes, counts, times, bits per key."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import click

from lsmkv_tool import keys
from lsmkv_tool.render import units


class Parsed(click.ParamType):
    """A parameter converted by `parse`, whose ValueError becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except (ValueError, OverflowError) as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class FloatRange(click.FloatRange):
    """A range of numbers, without NaN, which is in every range of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def parse_bits(text: str) -> float | tuple[float, ...] | str:
    """Parse `10`, `12,10,8` or `auto`."""
    if text == "auto":
        return text
    numbers = tuple(float(part) for part in text.split(","))
    if any(not 0 <= number <= 100 for number in numbers):
        raise ValueError("bits per key must be between 0 and 100")
    return numbers[0] if len(numbers) == 1 else numbers


def parse_keyspace(name: str) -> str:
    from lsmkv.options import check_name

    if name:
        check_name(name)
    return name


def count_from(first: int) -> click.IntRange:
    """Return the type of a count, from `first` to what a list can hold."""
    return click.IntRange(first, sys.maxsize)


KEY = Parsed("key", keys.parse)
SIZE = Parsed("size", units.parse_size)
COUNT = Parsed("count", units.parse_count)
TIME = Parsed("time", units.parse_duration)
BITS = Parsed("bits", parse_bits)

START = click.option("--from", "start", type=KEY, help="First key of the range.")
STOP = click.option("--to", "stop", type=KEY, help="End of the range, exclusive.")
KEYSPACE = click.option(
    "--keyspace",
    default="",
    metavar="NAME",
    type=Parsed("name", parse_keyspace),
    help="Name of the keyspace; by default the default keyspace.",
)
LIMIT = click.option("--limit", type=count_from(0), help="Print at most this many rows.")

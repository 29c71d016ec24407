"""`sst diff`: compare two tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.exits import FINDING
from lsmkv_tool.render.columns import Row, present
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Entry, Table

SIGNS = {"first": "-", "second": "+", "both": "!"}


def compare(a: Iterator[Entry], b: Iterator[Entry]) -> Iterator[Row]:
    """Merge both and yield the keys where they differ."""
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield {"key": left[0], "side": "first", "first": left[1], "second": None}
            left = next(a, None)
        elif left is None or right[0] < left[0]:
            yield {"key": right[0], "side": "second", "first": None, "second": right[1]}
            right = next(b, None)
        else:
            if (left[1], left[3]) != (right[1], right[3]):
                yield {"key": left[0], "side": "both", "first": left[1], "second": right[1]}
            left, right = next(a, None), next(b, None)


def difference_text(row: Row) -> str:
    return "\t".join([f"{SIGNS[row['side']]} {row['key']}", *present(row, "first", "second")])


@declare("sst diff", example="lsmkv-tool sst diff table.sst table.sst", key_format=True, value_format=True)
@path_argument("first", "FIRST")
@path_argument("second", "SECOND")
@params.LIMIT
def diff(out: Output, first: str, second: str, limit: int | None) -> None:
    """Print where two tables differ: - for a key only in FIRST, + only in SECOND, ! for different values or expiries.

    Exits 1 if they differ. Ignores sequence numbers; a delete differs from a missing key.
    """

    def rows() -> Iterator[Row]:
        for row in itertools.islice(compare(one.scan(), two.scan()), limit):
            out.exit = FINDING
            shown = {"key": out.key(row["key"]), "first": out.value(row["first"]), "second": out.value(row["second"])}
            yield {**row, **shown}

    with Table(first) as one, Table(second) as two:
        out.stream(rows(), difference_text)

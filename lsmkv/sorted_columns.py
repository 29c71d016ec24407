"""Arrow tables of keys and values, sorted and cut by key. Needs pyarrow; no row becomes a Python object."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from lsmkv.errors import Error

try:
    import pyarrow
    import pyarrow.compute
except ImportError as error:
    raise Error("this needs pyarrow: pip install pyarrow") from error


def sorted_columns(table: Any) -> Any:
    """The rows of a table of two columns, keys and values, in the order of their keys. Of equal keys the last stays."""
    # A binary array holds at most 2 GiB, a large one any number of bytes.
    columns = [_binary(column) for column in pyarrow.table(table).itercolumns()]
    if len(columns) != 2:
        raise TypeError(f"expected two columns, keys and values, not {len(columns)}")
    if any(column.null_count for column in columns):
        raise ValueError("a key or a value is null")
    rows = pyarrow.table(columns, names=["key", "value"]).combine_chunks()
    rows = rows.take(pyarrow.compute.sort_indices(rows, [("key", "ascending")]))  # stable
    keys = rows.column(0)
    if len(keys) < 2:
        return rows
    last = pyarrow.compute.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    if pyarrow.compute.all(last).as_py():
        return rows
    return rows.filter(pyarrow.chunked_array([*last.chunks, pyarrow.array([True])]))


def _binary(column: Any) -> Any:
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif not any(
        check(kind)
        for check in (
            pyarrow.types.is_binary,
            pyarrow.types.is_large_binary,
            pyarrow.types.is_fixed_size_binary,
            pyarrow.types.is_string,
            pyarrow.types.is_large_string,
        )
    ):
        raise TypeError(f"a column holds {kind}, not bytes or text")
    if pyarrow.types.is_fixed_size_binary(column.type) or pyarrow.types.is_string(column.type):
        column = column.cast(pyarrow.binary())
    return column.cast(pyarrow.large_binary())


def cut(rows: Any, split_points: Sequence[bytes]) -> Iterator[tuple[int, Any]]:
    """The number of each partition that has rows, and its rows, of sorted ones."""
    keys = rows.column(0)
    ends = [bisect_left(_Column(keys), point) for point in split_points] + [len(keys)]
    start = 0
    for partition, end in enumerate(ends):
        if end > start:
            yield partition, rows.slice(start, end - start)
        start = end


class _Column(Sequence[bytes]):
    """A column that `bisect` can search."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py()

"""Dask: builds a database from a bag or a DataFrame, and filters from bags, on the workers of a cluster."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lsmkv.bulk import BuiltPartition, BulkWriter, split_points
from lsmkv.errors import Error
from lsmkv.keyspace import KeyspaceCalls
from lsmkv_ext.filter.bloom import BlockedBloom

try:
    import pyarrow
    from dask import compute, delayed
except ImportError as error:
    raise Error("this module needs Dask and pyarrow: pip install 'lsmkv[dask]'") from error

SAMPLES = 10_000  # keys from which the split points are chosen
FAN_IN = 8  # filters that one task merges


def write_bag(bag: Any, database: KeyspaceCalls, staging: str, *, partitions: int | None = None, **options: Any) -> int:
    """Write a bag of (key, value) pairs to a database, and return the number of rows.

    The workers sort the pairs and build tables in `staging`, a directory that they share or the URL of an object store;
    this process ingests them. The pairs are computed twice, because the first time their keys are sampled;
    `bag.persist()` saves that. Of pairs with equal keys the last one of the bag counts. `options` are those of
    `lsmkv.BulkWriter`. A killed worker costs no row: Dask repeats its tasks.
    """
    return _write(bag.to_delayed(), _pairs, database, staging, partitions, options)


def write_dataframe(
    frame: Any,
    database: KeyspaceCalls,
    staging: str,
    *,
    key: str,
    value: str,
    partitions: int | None = None,
    **options: Any,
) -> int:
    """Write two columns of a DataFrame to a database, and return the number of rows. See `write_bag`.

    The columns hold bytes, or str, which is encoded as UTF-8.
    """

    def rows(part: Any) -> Any:
        return _table(part[key], part[value])

    return _write(frame.to_delayed(), rows, database, staging, partitions, options)


def _pairs(part: Iterable[tuple[bytes, bytes]]) -> Any:
    pairs = list(part)
    return _table([key for key, _ in pairs], [value for _, value in pairs])


def _table(keys: Any, values: Any) -> Any:
    return pyarrow.table({"key": _column(keys), "value": _column(values)})


def _column(cells: Any) -> Any:
    # An empty list has no type.
    return pyarrow.array(cells) if len(cells) else pyarrow.array([], pyarrow.binary())


def _write(
    parts: Sequence[Any],
    rows: Callable[[Any], Any],
    database: KeyspaceCalls,
    staging: str,
    partitions: int | None,
    options: dict[str, Any],
) -> int:
    if not parts:
        return 0
    wanted = len(parts) if partitions is None else partitions
    share = math.ceil(SAMPLES / len(parts))
    samples = compute(*[delayed(_sample)(rows, part, share) for part in parts])
    points = split_points((key for sample in samples for key in sample), wanted)
    writer = BulkWriter(staging, points, seed=database.seed, **options)
    try:
        built = compute(*[delayed(_build)(writer, rows, part) for part in parts])
        pieces: dict[int, list[BuiltPartition]] = defaultdict(list)
        for each in (each for results in built for each in results):
            pieces[each.partition].append(each)
        merged = compute(*[delayed(writer.merge)(results) for results in pieces.values()])
        return writer.publish(database, merged)
    except BaseException:
        writer.sweep()
        raise


def _sample(rows: Callable[[Any], Any], part: Any, share: int) -> list[bytes]:
    """Every n-th key: enough to cut the keys into parts of about equal size."""
    keys = rows(part).column(0)
    step = max(1, len(keys) // share)
    return [_encoded(keys[row].as_py()) for row in range(0, len(keys), step)]


def _encoded(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _build(writer: BulkWriter, rows: Callable[[Any], Any], part: Any) -> list[BuiltPartition]:
    return writer.build_arrow(rows(part))


def build_filter(bag: Any, capacity: int, fpr: float = 0.01, *, seed: int = 0) -> Any:
    """Return a delayed `BlockedBloom` of the keys in a bag: a filter for each partition, merged in a tree of tasks.

    `capacity` is the number of keys in all. `client.compute` makes it a future, which tasks take without a copy through
    this process; `client.scatter(filter, broadcast=True)` sends a computed one to every worker.
    """
    build = delayed(_filter_of)
    return merge_filters([build(part, capacity, fpr, seed) for part in bag.to_delayed()])


def merge_filters(filters: Sequence[Any]) -> Any:
    """Return the delayed union of filters, delayed or not. Raises `ValueError` if there are none."""
    if not filters:
        raise ValueError("there are no filters to merge")
    level = list(filters)
    while True:
        level = [delayed(_union)(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        if len(level) == 1:
            return level[0]


def where_in_filter(bag: Any, bloom: Any, *, key: Callable[[Any], Any] | None = None, present: bool = True) -> Any:
    """Return the elements of a bag that are in a filter, or with `present=False` those that are not.

    `key` returns the key of an element, by default the element itself. `bloom` is a filter, a delayed one or a future.
    """
    return bag.map_partitions(_where, bloom, key, present)


def _filter_of(keys: Iterable[bytes], capacity: int, fpr: float, seed: int) -> BlockedBloom:
    bloom = BlockedBloom(capacity, fpr, seed=seed)
    bloom.add_many(keys)
    return bloom


def _union(filters: Sequence[BlockedBloom]) -> BlockedBloom:
    merged = BlockedBloom.from_bytes(filters[0].to_bytes())  # results of other tasks must not change
    for other in filters[1:]:
        merged.merge(other)
    return merged


def _where(part: Iterable[Any], bloom: BlockedBloom, key: Callable[[Any], Any] | None, present: bool) -> list[Any]:
    elements = list(part)
    found = bloom.test_many(elements if key is None else [key(element) for element in elements])
    return [element for element, known in zip(elements, found, strict=True) if known == present]

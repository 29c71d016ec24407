"""Ray: builds a database from a dataset of Ray Data, and filters, on the nodes of a cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from lsmkv.bulk import BuiltPartition, BulkWriter, split_points
from lsmkv.errors import Error
from lsmkv.keyspace import KeyspaceCalls
from lsmkv_ext.filter.bloom import BlockedBloom

try:
    import pyarrow
    import pyarrow.compute
    import ray
    from ray.data import Datasink
    from ray.data.block import BlockAccessor
except ImportError as error:
    raise Error("this module needs Ray Data: pip install 'lsmkv[ray]'") from error

SAMPLES = 200  # keys of each block, from which the split points are chosen
FAN_IN = 8  # filters that one task merges


class LsmkvDatasink(Datasink):  # type: ignore[misc]
    """A data sink for `Dataset.write_datasink`: the columns `key` and `value` become entries of a database.

    The write tasks sort their blocks and build tables in `staging`, a directory that all nodes share or the URL of an
    object store. Parts of one partition are merged by tasks, and the process that has the database ingests the result,
    all of it or nothing. The columns hold bytes or text. Of rows with equal keys one counts, as a dataset has no order.
    `split_points` cut the keys into partitions, and `options` are those of `lsmkv.BulkWriter`.
    """

    def __init__(
        self,
        database: KeyspaceCalls,
        staging: str,
        *,
        key: str,
        value: str,
        split_points: Sequence[bytes] = (),
        **options: Any,
    ) -> None:
        self.rows = 0  # written, each key counted once
        self._database: KeyspaceCalls | None = database
        self._columns = [key, value]
        self._writer = BulkWriter(staging, split_points, seed=database.seed, **options)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_database": None}  # which stays where it is open

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[BuiltPartition]:
        """Called by Ray in each write task."""
        return [built for block in blocks for built in self._writer.build_arrow(_columns(block, self._columns))]

    def on_write_complete(self, write_result: Any) -> None:
        """Called by Ray in the process that started the write."""
        parts: dict[int, list[BuiltPartition]] = defaultdict(list)
        for results in write_result.write_returns:
            for built in results:
                parts[built.partition].append(built)
        merge = ray.remote(BulkWriter.merge)
        merged = ray.get([merge.remote(self._writer, part) for part in parts.values()])
        assert self._database is not None
        self.rows = self._writer.publish(self._database, merged)

    def on_write_failed(self, error: Exception) -> None:
        """Called by Ray if a task has failed for good."""
        self._writer.sweep()


def write_dataset(
    dataset: Any,
    database: KeyspaceCalls,
    staging: str,
    *,
    key: str,
    value: str,
    partitions: int,
    **options: Any,
) -> int:
    """Write two columns of a dataset to a database, and return the number of rows. See `LsmkvDatasink`.

    The split points come from a sample, for which the keys are read once more; `dataset.materialize()` saves that. A
    killed worker costs no row: Ray repeats its tasks.
    """
    sample = dataset.select_columns([key]).map_batches(_sample, batch_format="pyarrow", batch_size=None)
    points = split_points((row[key] for row in sample.take_all()), partitions)
    sink = LsmkvDatasink(database, staging, key=key, value=value, split_points=points, **options)
    dataset.write_datasink(sink)
    return sink.rows


def _columns(block: Any, names: Sequence[str]) -> Any:
    return BlockAccessor.for_block(block).to_arrow().select(names)


def _sample(keys: Any) -> Any:
    """Every n-th key, as bytes."""
    rows = keys.take(list(range(0, len(keys), max(1, len(keys) // SAMPLES))))
    return rows.set_column(0, rows.column_names[0], rows.column(0).cast(pyarrow.binary()))


def build_filter(dataset: Any, key: str, capacity: int, fpr: float = 0.01, *, seed: int = 0) -> Any:
    """Build a `BlockedBloom` of a column, and return a reference to it, which every task can take.

    A filter is built for each block, and a tree of tasks merges them. `capacity` is the number of keys in all.
    """

    def build(batch: Any) -> Any:
        bloom = BlockedBloom(capacity, fpr, seed=seed)
        bloom.add_many(batch.column(key).combine_chunks())
        return pyarrow.table({"filter": [bloom.to_bytes(compress=True)]})

    built = dataset.select_columns([key]).map_batches(build, batch_format="pyarrow", batch_size=None)
    empty = BlockedBloom(capacity, fpr, seed=seed)
    return merge_filters([empty.to_bytes(compress=True), *(row["filter"] for row in built.iter_rows())])


def merge_filters(filters: Sequence[Any]) -> Any:
    """Merge filters, or the bytes of filters, or references to them, in a tree of tasks. Return a reference.

    Raises `ValueError` if there are none; the tasks raise it for filters of different sizes or seeds.
    """
    if not filters:
        raise ValueError("there are no filters to merge")
    union = ray.remote(_union)
    level = list(filters)
    while True:
        level = [union.remote(*level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        if len(level) == 1:
            return level[0]


def _union(*filters: BlockedBloom | bytes) -> BlockedBloom:
    first, *others = (BlockedBloom.from_bytes(each) if isinstance(each, bytes) else each for each in filters)
    merged = BlockedBloom.from_bytes(first.to_bytes())  # arguments of a task may be shared
    for other in others:
        merged.merge(other)
    return merged


def where_in_filter(dataset: Any, key: str, reference: Any, *, present: bool = True) -> Any:
    """Return the rows of a dataset whose key is in a filter, or with `present=False` those whose key is not.

    `reference` is what `build_filter` returns: each node gets the filter once.
    """

    def keep(batch: Any) -> Any:
        found = pyarrow.array(list(ray.get(reference).test_many(batch.column(key).combine_chunks())), pyarrow.bool_())
        return batch.filter(found if present else pyarrow.compute.invert(found))

    return dataset.map_batches(keep, batch_format="pyarrow", batch_size=None)

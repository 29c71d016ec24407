"""Bulk builds: many workers sort rows and build tables, one publisher ingests them.

A job cuts the keys into partitions. A worker builds the tables of one partition and puts them into the staging area, a
directory that all share or an object store, under names that no other attempt uses. The publisher ingests exactly the
tables that the results name. Whatever else is in the staging area, such as the tables of an attempt that was killed or
repeated, is never read and is removed at the end.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import secrets
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lsmkv.errors import CorruptionError, IOError
from lsmkv.keyspace import KeyspaceCalls
from lsmkv.mapping import Key
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.repository.store import Store, open_store
from lsmkv.repository.transfer import hash_file
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.table.sst_reader import SSTReader
from lsmkv_ext.table.sst_writer import SSTWriter

Row = tuple[Key, Key]
ARROW_ROWS = 1 << 14  # rows between two looks at the size of a table


@dataclass(frozen=True)
class BuiltTable:
    """A table in the staging area."""

    name: str
    size: int
    sha256: str
    entries: int


@dataclass(frozen=True)
class BuiltPartition:
    """What one attempt has built of one partition: tables in the order of their keys. It can be pickled.

    >>> writer = lsmkv.BulkWriter("staging", [b"m"])
    >>> built = writer.build(0, [(b"ada", b"1815")])
    >>> built.partition, built.rows
    (0, 1)
    """

    partition: int
    tables: tuple[BuiltTable, ...]

    @property
    def rows(self) -> int:
        """The number of rows, each key counted once.

        >>> writer = lsmkv.BulkWriter("staging", [])
        >>> writer.build(0, [(b"a", b"1"), (b"a", b"2")]).rows
        1
        """
        return sum(table.entries for table in self.tables)


@dataclass(frozen=True)
class BulkWriter:
    """A bulk build: where its tables are staged, and how its keys are cut into partitions. It can be pickled.

    `staging` is a directory that all workers see, or the URL of an object store as in `backup`. Partition i has the
    keys from `split_points[i - 1]` up to, not including, `split_points[i]`. `seed` should be that of the database
    (`db.seed`): lookups hash each key once more in tables with another one. The other parameters are those of
    `SSTWriter`.

    >>> writer = lsmkv.BulkWriter("staging", split_points=[b"m"])
    >>> results = [
    ...     writer.build(0, [(b"grace", b"1906"), (b"ada", b"1815")]),
    ...     writer.build(1, [(b"rosalind", b"1920")]),
    ... ]
    >>> with lsmkv.open("people.db") as db:
    ...     writer.publish(db, results)
    ...     list(db)
    3
    [b'ada', b'grace', b'rosalind']
    """

    staging: str
    split_points: Sequence[bytes] = ()
    seed: int | None = None
    bits_per_key: float = 10
    compression: str | None = "lz4"
    block_size: int = 4096
    target_file_size: int = 64 << 20
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    job: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        points = tuple(as_bytes(point) for point in self.split_points)
        if any(low >= high for low, high in pairwise(points)) or b"" in points:
            raise ValueError("split points must be ascending, without repetitions, and not empty")
        if self.target_file_size < 1:
            raise ValueError("target_file_size must be at least 1")
        object.__setattr__(self, "split_points", points)
        object.__setattr__(self, "staging", os.fspath(self.staging))

    @property
    def partitions(self) -> int:
        """The number of partitions.

        >>> lsmkv.BulkWriter("staging", [b"h", b"p"]).partitions
        3
        """
        return len(self.split_points) + 1

    def partition_of(self, key: Key) -> int:
        """Return the partition that a key belongs to.

        >>> writer = lsmkv.BulkWriter("staging", [b"m"])
        >>> writer.partition_of(b"ada"), writer.partition_of(b"m")
        (0, 1)
        """
        return bisect_right(self.split_points, as_bytes(key))

    def build(
        self, partition: int, rows: Iterable[Row], *, scratch: str | os.PathLike[str] | None = None
    ) -> BuiltPartition:
        """Build the tables of a partition from rows in any order, and stage them. Of rows with equal keys the last
        counts.

        It takes little memory, whatever the number of rows, and space for them in the directory `scratch`, by default
        that for temporary files. A repeated attempt is harmless. Raises `ValueError` for a key of another partition.

        >>> writer = lsmkv.BulkWriter("staging", [b"m"])
        >>> writer.build(1, [(b"zoe", b"1"), (b"zoe", b"2")]).rows
        1
        """
        if not 0 <= partition < self.partitions:
            raise ValueError(f"partition {partition} of {self.partitions}")
        with tempfile.TemporaryDirectory(prefix="lsmkv-bulk-", dir=scratch) as directory:
            return self._stage(partition, self._tables(directory, self._sorted(directory, partition, rows)))

    def build_arrow(self, table: object, *, scratch: str | os.PathLike[str] | None = None) -> list[BuiltPartition]:
        """Build and stage the rows of an Arrow table, and return a result for each partition that has some.

        `table` has two columns, keys and values, of bytes or text, in any order. It is sorted in memory, without a
        Python object per row. Of rows with equal keys the last counts. Several results of one partition are joined by
        `merge`. Raises `Error` if pyarrow is not installed.

        >>> import pyarrow
        >>> writer = lsmkv.BulkWriter("staging", [b"m"])
        >>> built = writer.build_arrow(pyarrow.table({"key": ["zoe", "ada"], "value": ["1", "2"]}))
        >>> [(each.partition, each.rows) for each in built]
        [(0, 1), (1, 1)]
        """
        from lsmkv.sorted_columns import cut, sorted_columns

        with tempfile.TemporaryDirectory(prefix="lsmkv-bulk-", dir=scratch) as directory:
            return [
                self._stage(partition, self._arrow_tables(directory, part))
                for partition, part in cut(sorted_columns(table), self.split_points)
            ]

    def merge(
        self, results: Sequence[BuiltPartition], *, scratch: str | os.PathLike[str] | None = None
    ) -> BuiltPartition:
        """Join results of one partition, each with a part of its rows, to one. Of equal keys the last result counts.

        Raises what `publish` raises. The tables of `results` stay until the job is published or swept.

        >>> writer = lsmkv.BulkWriter("staging")
        >>> parts = [writer.build(0, [(b"ada", b"1")]), writer.build(0, [(b"zoe", b"2")])]
        >>> writer.merge(parts).rows
        2
        """
        self._check(results)
        partitions = {result.partition for result in results}
        if len(partitions) != 1:
            raise ValueError(f"results of {len(partitions)} partitions")
        if len(results) == 1:
            return results[0]
        store = open_store(self.staging, self.storage_options)
        with tempfile.TemporaryDirectory(prefix="lsmkv-bulk-", dir=scratch) as directory, ExitStack() as opened:
            runs, fetched = [], 0
            for age, result in enumerate(reversed(results)):
                readers = []
                for table in result.tables:
                    path = _fetch(store, table, directory, fetched)
                    readers.append(opened.enter_context(SSTReader(path)))
                    fetched += 1
                runs.append(_rows_of(readers, age))
            return self._stage(partitions.pop(), self._tables(directory, _newest(heapq.merge(*runs))))

    def _stage(self, partition: int, tables: Iterable[tuple[str, int]]) -> BuiltPartition:
        store = open_store(self.staging, self.storage_options)
        staged = []
        for path, entries in tables:
            # No other attempt has the name.
            name = f"{self._prefix}{partition:05d}-{secrets.token_hex(8)}.sst"
            built = BuiltTable(name, os.path.getsize(path), hash_file(path), entries)
            store.upload(path, name)
            staged.append(built)
            os.unlink(path)
        return BuiltPartition(partition, tuple(staged))

    def _sorted(self, directory: str, partition: int, rows: Iterable[Row]) -> Iterator[tuple[bytes, bytes]]:
        """Sorted by a database without a log, of which the last write of a key wins."""
        low = self.split_points[partition - 1] if partition else b""
        high = self.split_points[partition] if partition < self.partitions - 1 else None
        options = Options(wal=None, bits_per_key=0, compression=None, large_value_threshold=None)
        with open_database(os.path.join(directory, "sort"), "n", options) as db:
            for given, value in rows:
                key = as_bytes(given)
                if not low <= key or (high is not None and not key < high):
                    raise ValueError(f"key {key!r} does not belong to partition {partition}")
                db.put(key, value)
            yield from db.items()

    def _tables(self, directory: str, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[str, int]]:
        """Yields the path and the number of entries of each table."""
        path = os.path.join(directory, "part.sst")
        row = next(rows, None)
        while row is not None:
            entries = 0
            with self._table_writer(path) as writer:
                while row is not None and writer.size < self.target_file_size:
                    writer.put(*row)
                    entries += 1
                    row = next(rows, None)
            yield path, entries

    def _arrow_tables(self, directory: str, rows: Any) -> Iterator[tuple[str, int]]:
        path = os.path.join(directory, "part.sst")
        row = 0
        while row < len(rows):
            first = row
            with self._table_writer(path) as writer:
                while row < len(rows) and writer.size < self.target_file_size:
                    part = rows.slice(row, ARROW_ROWS)
                    writer.put_arrow(part)
                    row += len(part)
            yield path, row - first

    def _table_writer(self, path: str) -> SSTWriter:
        return SSTWriter(
            path,
            compression=self.compression,
            block_size=self.block_size,
            bits_per_key=self.bits_per_key,
            seed=self.seed,
        )

    @property
    def _prefix(self) -> str:
        return f"bulk/{self.job}/"

    def publish(self, database: KeyspaceCalls, results: Iterable[BuiltPartition]) -> int:
        """Ingest the tables that `results` name, all of them or none, and remove all others of this job. Return the
        number of rows.

        `results` has what `build` returned for each partition that has rows; of repeated attempts one is taken. A call
        that failed can be repeated. Raises `ValueError` for results of another job, `CorruptionError` if a table is
        damaged, and `IOError` if one is missing.

        >>> writer = lsmkv.BulkWriter("staging")
        >>> with lsmkv.open("people.db") as db:
        ...     writer.publish(db, [writer.build(0, [(b"ada", b"1815")])])
        1
        """
        chosen: dict[int, BuiltPartition] = {}
        for result in self._check(results):
            chosen.setdefault(result.partition, result)
        tables = [table for number in sorted(chosen) for table in chosen[number].tables]
        store = open_store(self.staging, self.storage_options)
        if tables:
            with _directory_beside(database.path) as directory:
                paths = [_fetch(store, table, directory, number) for number, table in enumerate(tables)]
                database.ingest(paths, move=True)
        self.sweep()
        return sum(table.entries for table in tables)

    def _check(self, results: Iterable[BuiltPartition]) -> list[BuiltPartition]:
        given = list(results)
        for result in given:
            if not 0 <= result.partition < self.partitions or any(
                not table.name.startswith(self._prefix) or ".." in table.name for table in result.tables
            ):
                raise ValueError("a result of another job")
        return given

    def sweep(self) -> int:
        """Remove everything that this job has staged, as after a failure. Return the number of tables.

        >>> writer = lsmkv.BulkWriter("staging")
        >>> _ = writer.build(0, [(b"ada", b"1815")])
        >>> writer.sweep()
        1
        """
        store = open_store(self.staging, self.storage_options)
        names = store.list(self._prefix)
        for name in names:
            store.delete(name)
        return len(names)


@contextmanager
def _directory_beside(path: str) -> Iterator[str]:
    """On the file system of the database, where tables are moved into it without a copy."""
    directory = tempfile.mkdtemp(prefix=os.path.basename(path) + ".bulk-", dir=os.path.dirname(path))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _rows_of(tables: Sequence[SSTReader], age: int) -> Iterator[tuple[bytes, int, bytes]]:
    for table in tables:
        for key, value in table.items():
            yield key, age, value


def _newest(rows: Iterable[tuple[bytes, int, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The first of each key, which is that of the lowest age."""
    last = None
    for key, _, value in rows:
        if key != last:
            yield key, value
        last = key


def _fetch(store: Store, table: BuiltTable, directory: str, number: int) -> str:
    """Downloads a table and compares its checksum."""
    path = os.path.join(directory, f"{number:05d}.sst")
    digest = hashlib.sha256()
    try:
        with open(path, "xb") as file:
            for piece in store.download(table.name):
                digest.update(piece)
                file.write(piece)
    except IOError as error:
        if error.errno == errno.ENOENT:
            raise IOError(errno.ENOENT, "a staged table is missing", f"{store.url}/{table.name}") from error
        raise
    if digest.hexdigest() != table.sha256:
        raise CorruptionError("a staged table is damaged", f"{store.url}/{table.name}")
    return path


def split_points(keys: Iterable[Key], partitions: int) -> list[bytes]:
    """Return keys that cut a sample of keys into about equal partitions.

    >>> from lsmkv.bulk import split_points
    >>> split_points([b"%02d" % i for i in range(100)], 4)
    [b'25', b'50', b'75']
    """
    if partitions < 1:
        raise ValueError("partitions must be at least 1")
    ordered = sorted({as_bytes(key) for key in keys} - {b""})
    return sorted({ordered[len(ordered) * i // partitions] for i in range(1, partitions)}) if ordered else []

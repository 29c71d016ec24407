"""Measures what docs/scale.md says about bulk builds, second backups and refreshes.

    python -m lsmkv_bench.scale put_arrow|build|dask|backup|refresh [--num 1000000]

Keys have 16 bytes, values 100, half of them random. `dask` compares two workers with one process in turns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lsmkv

ROUNDS = 3
VALUE = 100


@contextmanager
def timed(what: str, rows: int) -> Iterator[None]:
    wall, spent = time.perf_counter(), time.process_time()
    yield
    wall, spent = time.perf_counter() - wall, time.process_time() - spent
    print(f"{what:<48} {rows / wall:>12,.0f} rows/s  {rows / spent:>12,.0f} rows per CPU second", flush=True)


def columns(start: int, stop: int, ordered: bool) -> Any:
    import numpy
    import pyarrow

    numbers = numpy.arange(start, stop, dtype=numpy.uint64)
    if not ordered:
        numbers = numbers * numpy.uint64(0x9E3779B97F4A7C15)
    keys = numpy.zeros((len(numbers), 16), dtype=numpy.uint8)
    keys[:, 8:] = numbers.astype(">u8").view(numpy.uint8).reshape(-1, 8)
    values = numpy.zeros((len(numbers), VALUE), dtype=numpy.uint8)
    values[:, : VALUE // 2] = numpy.random.default_rng(start).integers(
        0, 256, (len(numbers), VALUE // 2), dtype=numpy.uint8
    )

    def binary(cells: Any) -> Any:
        ends = numpy.arange(len(cells) + 1, dtype=numpy.int64) * cells.shape[1]
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(cells.reshape(-1))]
        return pyarrow.Array.from_buffers(pyarrow.large_binary(), len(cells), buffers)

    return pyarrow.table({"key": binary(keys), "value": binary(values)})


def pairs(start: int, stop: int) -> list[tuple[bytes, bytes]]:
    table = columns(start, stop, ordered=False)
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def put_arrow(num: int, rounds: int, directory: str) -> None:
    table = columns(0, num, ordered=True)
    for compression in (None, "lz4"):
        for round_ in range(rounds):
            path = os.path.join(directory, f"{compression}-{round_}.sst")
            with (
                timed(f"put_arrow, compression={compression}", num),
                lsmkv.SSTWriter(path, compression=compression) as table_writer,
            ):
                table_writer.put_arrow(table)
            os.unlink(path)


def points(parts: int) -> list[bytes]:
    return [bytes(8) + (2**64 * part // parts).to_bytes(8, "big") for part in range(1, parts)]


def build(num: int, rounds: int, directory: str) -> None:
    table = columns(0, num, ordered=False)
    rows = pairs(0, num)
    for round_ in range(rounds):
        for what in ("build", "build_arrow"):
            with lsmkv.open(os.path.join(directory, f"{what}{round_}")) as db:
                writer = lsmkv.BulkWriter(os.path.join(directory, "staging"), seed=db.seed)
                with timed(f"BulkWriter.{what}, one partition", num):
                    results = [writer.build(0, rows)] if what == "build" else writer.build_arrow(table)
                with timed("publish", num):
                    writer.publish(db, results)


def dask(num: int, rounds: int, directory: str) -> None:
    import dask.bag
    from dask.distributed import Client, LocalCluster

    from lsmkv.integrations.dask import write_bag

    parts = 8
    starts = [(num * part // parts, num * (part + 1) // parts) for part in range(parts)]

    def bag() -> Any:
        return dask.bag.from_sequence(starts, npartitions=parts).map(lambda each: pairs(*each)).flatten()

    def write(name: str) -> None:
        with lsmkv.open(os.path.join(directory, name)) as db:
            assert write_bag(bag(), db, os.path.join(directory, "staging"), partitions=4) == num

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        for round_ in range(rounds):
            with Client(cluster), timed("Dask, two workers", num):
                write(f"two{round_}")
            with dask.config.set(scheduler="synchronous"), timed("Dask, one process", num):
                write(f"one{round_}")
            with timed("put in a loop, one process", num), lsmkv.open(os.path.join(directory, f"put{round_}")) as db:
                for start, stop in starts:
                    for key, value in pairs(start, stop):
                        db.put(key, value)


def backup(num: int, rounds: int, directory: str) -> None:
    repository = os.path.join(directory, "backups")
    with lsmkv.open(os.path.join(directory, "db")) as db:
        rows = pairs(0, num)
        for spread in ("all over the keys", "beside each other"):
            for key, value in rows:
                db.put(key, value)
            db.compact_range()
            first = lsmkv.backup(db, repository)
            rows.sort()
            changed = rows[::100] if spread == "all over the keys" else rows[: num // 100]
            for key, value in changed:
                db.put(key, value[::-1])
            second = lsmkv.backup(db, repository)
            files = sum(file.size for file in second.files if file.object not in first.objects)
            print(
                f"{num:,} keys, {first.bytes:,} bytes; 1 % changed, {spread}: "
                f"{second.sent_bytes:,} bytes sent, {second.sent_bytes / files:.2f} of the files that changed"
            )


def refresh(num: int, rounds: int, directory: str) -> None:
    path = os.path.join(directory, "db")
    with lsmkv.open(path) as db:
        for key, value in pairs(0, num):
            db.put(key, value)
        db.compact_range()
        db.put(b"last", b"value")
        with lsmkv.open(path, "r") as reader:
            for wait in ("just written", "written two seconds ago"):
                calls = 10_000
                reader.refresh()
                began, spent = time.perf_counter(), time.thread_time()
                changed = sum(reader.refresh() for _ in range(calls))
                took, spent = (time.perf_counter() - began) / calls, (time.thread_time() - spent) / calls
                print(
                    f"refresh, {wait}: {took * 1e6:.1f} us, {spent * 1e6:.1f} us CPU; {changed} of {calls} looked again"
                )
                time.sleep(2)
            db.put(b"new", b"value")
            began = time.perf_counter()
            assert reader.refresh()
            print(f"refresh after a put: {(time.perf_counter() - began) * 1e6:.0f} us")


WHAT: dict[str, Callable[[int, int, str], None]] = {
    "put_arrow": put_arrow,
    "build": build,
    "dask": dask,
    "backup": backup,
    "refresh": refresh,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--num", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--dir", help="where the databases go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as directory:
        WHAT[given.what](given.num, given.rounds, directory)


if __name__ == "__main__":
    main()

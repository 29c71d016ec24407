"""Whole columns per call beside Python loops, of lsmkv and of RocksDB: scans, writes and lookups.

    python -m lsmkv_bench.columns [--rows N] [--rounds N] [--json]

Keys have 16 bytes, values 100. Everything is in memory when it is read; writes are logged and not synced. The calls
take turns on portions of the rows, and the best time of each portion counts, so other processes have little influence.
It is the CPU time of the calling thread: flushes in the background are not in it. RocksDB is left out if rocksdict is
not installed.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow

import lsmkv

from .engines.rocksdb_engine import RocksEngine
from .settings import Settings
from .standalone import best_in_turns, run_in_scratch, thread_seconds

PORTIONS = 20
BATCH = 1000  # rows of a write batch of the loops
LOOKUPS = 100  # keys of a multi_get
CACHE = 1 << 30
Pairs = list[tuple[bytes, bytes]]
Engine = lsmkv.DB | RocksEngine
Call = Callable[[int], object]  # of a portion


def make_pairs(rows: int) -> Pairs:
    """In random order of the keys."""
    rng = random.Random(7)
    pairs = [(b"%016d" % i, rng.randbytes(50).hex().encode()) for i in range(rows)]
    rng.shuffle(pairs)
    return pairs


def make_table(pairs: Pairs) -> pyarrow.Table:
    keys, values = zip(*pairs, strict=True)
    return pyarrow.table({"key": pyarrow.array(keys, "binary"), "value": pyarrow.array(values, "binary")})


def chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def portions(items: list[Any]) -> list[list[Any]]:
    return chunks(items, len(items) // PORTIONS)


def open_rocksdb(path: Path) -> RocksEngine:
    engine = RocksEngine(str(path), Settings(cache_size=CACHE))
    engine.open()
    return engine


def has_rocksdb() -> bool:
    return importlib.util.find_spec("rocksdict") is not None


def nanoseconds(calls: dict[str, Call], rounds: int, rows: int) -> dict[str, float]:
    timed = {
        name: partial(lambda call, portion: thread_seconds(partial(call, portion)), call)
        for name, call in calls.items()
    }
    return {name: seconds / rows * 1e9 for name, seconds in best_in_turns(timed, PORTIONS, rounds).items()}


# --- writes ---------------------------------------------------------------------------------------------------


def write_loop(db: lsmkv.DB, pairs: Pairs) -> None:
    for some in chunks(pairs, BATCH):
        with db.write_batch() as batch:
            for key, value in some:
                batch.put(key, value)


def write_lists(db: lsmkv.DB, columns: tuple[list[bytes], list[bytes]]) -> None:
    db.put_many(*columns)


def rocks_loop(engine: RocksEngine, pairs: Pairs) -> None:
    for some in chunks(pairs, BATCH):
        engine.write_batch(some)


class Fill:
    """Writes portions in their order, from an empty database on."""

    def __init__(self, path: Path, open: Callable[[Path], Any], write: Callable[[Any, Any], object], parts: list[Any]):
        self.path, self.open, self.write, self.parts = path, open, write, parts
        self.db: Any = None

    def begin(self) -> None:
        self.close()
        self.db = self.open(self.path)

    def close(self) -> None:
        if self.db is not None:
            self.db.close()
            shutil.rmtree(self.path)
            self.db = None

    def seconds(self, portion: int) -> float:
        if portion == 0:
            self.begin()
        return thread_seconds(partial(self.write, self.db, self.parts[portion]))


def measure_writes(scratch: Path, pairs: Pairs, rounds: int) -> dict[str, float]:
    parts, ordered = portions(pairs), portions(sorted(pairs))
    fills: dict[str, tuple[Callable[[Path], Any], Callable[[Any, Any], object], list[Any]]] = {
        "write_arrow": (lsmkv.open, lsmkv.DB.write_arrow, list(map(make_table, parts))),
        "write_arrow, key order": (lsmkv.open, lsmkv.DB.write_arrow, list(map(make_table, ordered))),
        "put_many of lists": (lsmkv.open, write_lists, [tuple(zip(*part, strict=True)) for part in parts]),
        "write_batch loop": (lsmkv.open, write_loop, parts),
    }
    if has_rocksdb():
        fills["RocksDB WriteBatch loop"] = (open_rocksdb, rocks_loop, parts)
    made = {name: Fill(scratch / name, *rest) for name, rest in fills.items()}
    with ExitStack() as stack:
        for fill in made.values():
            stack.callback(fill.close)
        best = best_in_turns({name: fill.seconds for name, fill in made.items()}, PORTIONS, rounds)
    return {name: seconds / len(pairs) * 1e9 for name, seconds in best.items()}


# --- reads ----------------------------------------------------------------------------------------------------


def count(items: Any) -> int:
    n = 0
    for _ in items:
        n += 1
    return n


def count_batches(scan: Any) -> int:
    return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(scan))


@contextmanager
def filled(scratch: Path, pairs: Pairs) -> Iterator[tuple[lsmkv.DB, RocksEngine | None]]:
    with ExitStack() as stack:
        db = stack.enter_context(lsmkv.open(scratch / "read", block_cache_size=CACHE))
        db.write_arrow(make_table(pairs))
        db.compact_range()
        rocks = None
        if has_rocksdb():
            rocks = open_rocksdb(scratch / "read by RocksDB")
            stack.callback(rocks.close)
            rocks_loop(rocks, pairs)
            rocks.compact()
        yield db, rocks


def rocks_scan(engine: RocksEngine, part: Pairs) -> int:
    items = engine.scan(part[0][0])
    for _ in range(len(part)):
        next(items)
    return len(part)


def measure_scans(db: lsmkv.DB, rocks: RocksEngine | None, pairs: Pairs, rounds: int) -> dict[str, float]:
    parts = portions(sorted(pairs))
    spans = [{"start": part[0][0], "stop": part[-1][0] + b"\0"} for part in parts]
    for part, span in zip(parts, spans, strict=True):
        if not count_batches(db.scan_arrow(**span)) == count(db.iterator(**span)) == len(part):
            raise AssertionError("a scan has another number of rows than was written")
    calls: dict[str, Call] = {
        "scan_arrow, batch by batch": lambda i: count_batches(db.scan_arrow(**spans[i])),
        "scan_arrow into a pyarrow.Table": lambda i: pyarrow.table(db.scan_arrow(**spans[i])),
        "iterator loop": lambda i: count(db.iterator(**spans[i])),
    }
    if rocks is not None:
        calls["RocksDB loop"] = lambda i: rocks_scan(rocks, parts[i])
    return nanoseconds(calls, rounds, len(pairs))


def measure_lookups(db: lsmkv.DB, rocks: RocksEngine | None, pairs: Pairs, rounds: int) -> dict[str, float]:
    keys = [key for key, _ in random.Random(3).choices(pairs, k=min(len(pairs), 200_000))]
    parts = portions(keys)
    columns = [pyarrow.array(part, "binary") for part in parts]

    def each(get: Callable[[list[bytes]], Any], size: int) -> Call:
        return lambda i: [get(some) for some in chunks(parts[i], size)]

    calls: dict[str, Call] = {
        "multi_get_arrow": lambda i: db.multi_get_arrow(columns[i]),
        "multi_get of 100": each(db.multi_get, LOOKUPS),
        "multi_get of 1000": each(db.multi_get, 10 * LOOKUPS),
    }
    if rocks is not None:
        calls["RocksDB multi_get of 100"] = each(rocks.multi_get, LOOKUPS)
    return nanoseconds(calls, rounds, len(keys))


def measure(scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    pairs = make_pairs(rows - rows % PORTIONS)
    with filled(scratch, pairs) as (db, rocks):
        scans = measure_scans(db, rocks, pairs, rounds)
        lookups = measure_lookups(db, rocks, pairs, rounds)
    return {"scan_ns": scans, "lookup_ns": lookups, "write_ns": measure_writes(scratch, pairs, rounds)}


def show(found: dict[str, Any]) -> None:
    for work, figures in found.items():
        for name, ns in figures.items():
            print(f"{work.removesuffix('_ns'):8}{name:34}{ns:9.1f} ns per row {1e3 / ns:8.2f} million rows/s")


def main(argv: list[str] | None = None) -> None:
    run_in_scratch(__doc__, measure, show, argv, rows=1_000_000, rounds=3)


if __name__ == "__main__":
    main()

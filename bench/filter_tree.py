"""What filters do in a whole tree: wasted reads, the best split of memory, memory given back, the cost of
more levels, of checking new filters, and of rebuilding them.

    python -m lsmkv_bench.filter_tree [--keys N] [--rebuild-keys N] [--json]

One database, L0 above at least three full levels; of it copies that differ in nothing but their filters, so that
all measurements see the same tables. Times are of the thread's own clock where one
thread does the work. Lookups in trees of another shape are timed in small portions, now in the one tree, now in
the other; the best time of each portion counts, so that other processes hardly matter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lsmkv

from . import standalone as figures

OPTIONS: dict[str, Any] = {
    "write_buffer_size": 128 << 10,
    "target_file_size": 1 << 20,
    "level_size_ratio": 10,
    "block_cache_size": 512 << 20,
    "wal": None,
}
BATCH = 1000
PORTION = 1000  # lookups timed at once
BUSY = ("num-running-jobs", "pending-compaction-bytes")


def _key(n: int) -> bytes:
    return b"%016x" % (n * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)


def _missing(n: int) -> bytes:
    """As random as the keys, within their range, and never one of them (they have 16 characters)."""
    return _key(n) + b"-"


def build(path: Path, n_keys: int, *, thin: Path) -> None:
    """Random keys, then more of the same until L0 holds three tables and every level below its share.

    A copy of the moment when it held one table, so that there was one in each level to ask, goes to `thin`.
    """
    with lsmkv.open(path, **OPTIONS) as db:
        _load(db, n_keys, [b"value%015d" % i for i in range(1000)])
        rng = random.Random(1)
        while not _is_full(db, 3):
            for i in (rng.randrange(n_keys) for _ in range(2000)):
                db.put(_key(i), b"again")
            db.flush()
            _settle(db)
            if _is_full(db, 1):
                shutil.rmtree(thin, ignore_errors=True)
                db.checkpoint(thin)


def _load(db: lsmkv.DB, n_keys: int, values: list[bytes]) -> None:
    for start in range(0, n_keys, BATCH):
        with db.write_batch() as batch:
            for i in range(start, min(start + BATCH, n_keys)):
                batch.put(_key(i), values[i % len(values)])
    db.flush()
    _settle(db)


def _settle(db: lsmkv.DB) -> None:
    """Waits until nothing is left to compact."""
    while any(db.property("lsmkv." + name) != "0" for name in BUSY):
        time.sleep(0.02)


def _is_full(db: lsmkv.DB, l0_tables: int) -> bool:
    levels = db.stats().levels
    deepest = max(level.level for level in levels if level.files)
    shares = [levels[n].bytes * 10 ** (deepest - n) / levels[deepest].bytes for n in range(1, deepest)]
    return deepest >= 3 and levels[0].files == l0_tables and all(share > 0.5 for share in shares)


def shape(db: lsmkv.DB) -> list[dict[str, Any]]:
    return [
        {"level": s.level, "files": s.files, "entries": s.entries, "filter_bytes": s.filter.memory_bytes}
        for s in db.stats().levels
        if s.files
    ]


def misses(db: lsmkv.DB, n: int) -> dict[str, Any]:
    """Lookups for keys that are not there: how many wasted reads, and what one lookup costs."""
    asked = [_missing(i) for i in range(n)]
    db.reset_stats()
    _each(db.get, asked)
    stats = db.stats()
    best = min(_thread_seconds(lambda: _each(db.get, asked)) for _ in range(5))
    total = stats.total.filter
    lookups = stats.reads.gets
    return {
        "reads_in_vain_per_lookup": (total.false_positives + total.unfiltered) / lookups,
        "tables_per_lookup": total.lookups / lookups,
        "reads_in_vain_per_table": (total.false_positives + total.unfiltered) / total.lookups,
        "touched_per_lookup": (stats.cache.hits + stats.reads.disk_reads) / lookups,
        "observed_fpr": total.observed_fpr,
        "designed_fpr": total.designed_fpr,
        "filter_bytes": total.memory_bytes,
        "us_per_lookup": best / n * 1e6,
        "bits_per_level": {s.level: _bits(s) for s in stats.levels if s.files},
        "blocks_skipped": total.blocks_skipped,
        "bytes_skipped": total.bytes_skipped,
        "alarms": [alarm.message for alarm in stats.alarms],
    }


def levels_cost(trees: dict[str, Path], n: int, n_keys: int, rounds: int = 15) -> dict[str, Any]:
    """Nanoseconds of a lookup for nothing in each tree, and how many tables it asks there."""
    found: dict[str, Any] = {}
    portions = [[_missing(i) for i in range(at, at + PORTION)] for at in range(0, n, PORTION)]
    with contextlib.ExitStack() as stack:
        gets = {}
        for name, path in trees.items():
            db = stack.enter_context(lsmkv.open(path, "r", **OPTIONS))
            _each(db.get, [_key(i) for i in range(0, n_keys, 7)])
            db.reset_stats()
            _each(db.get, itertools.chain(*portions))
            stats = db.stats()
            found[name] = {"tables_per_lookup": stats.total.filter.lookups / stats.reads.gets}
            gets[name] = db.get
        best = _alternating(gets, portions, rounds)
    for name, seconds in best.items():
        found[name]["ns_per_lookup"] = seconds / n * 1e9
    return found


def _alternating(
    gets: dict[str, Callable[[bytes], Any]], portions: list[list[bytes]], rounds: int
) -> dict[str, float]:
    """Seconds for all portions: of each the best of all rounds, in which the trees take turns."""
    best = {name: [math.inf] * len(portions) for name in gets}
    order = list(gets)
    for _ in range(rounds):
        for i, keys in enumerate(portions):
            for name in order:
                seconds = _thread_seconds(lambda g=gets[name], k=keys: _each(g, k))  # type: ignore[misc]
                best[name][i] = min(best[name][i], seconds)
            order.reverse()
    return {name: sum(seconds) for name, seconds in best.items()}


def _bits(level: Any) -> float:
    return round(level.filter.memory_bytes * 8 / level.entries, 2) if level.entries else 0.0


def _each(get: Callable[[bytes], Any], keys: Iterable[bytes]) -> None:
    for key in keys:
        get(key)


def _thread_seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the wall, and processor seconds of all threads."""
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - wall, time.process_time() - cpu


def with_options(path: Path, n: int, n_keys: int, **options: Any) -> dict[str, Any]:
    """Gives a copy of the tree the filters of `options`, then reads through a handle that never changes it."""
    copy = path.with_name("copy")
    _refiltered(path, copy, options)
    with lsmkv.open(copy, "r", **OPTIONS) as db:
        _each(db.get, [_key(i) for i in range(0, n_keys, 7)])
        return misses(db, n) | {"tree": shape(db)}


def _refiltered(path: Path, copy: Path, options: dict[str, Any]) -> None:
    """Once more where the database found the time to tidy up its L0 meanwhile: that would be another tree."""
    with lsmkv.open(path, "r", **OPTIONS) as db:
        before = _counts(db)
    for _ in range(10):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        with lsmkv.open(copy, **OPTIONS) as db:
            db.set_options(**options)
            db.rebuild_filters()
        with lsmkv.open(copy, "r", **OPTIONS) as db:
            if _counts(db) == before:
                return
    raise RuntimeError("the tree does not stay as it is while its filters are rebuilt")


def _counts(db: lsmkv.DB) -> list[tuple[int, int, int]]:
    return [(s.level, s.files, s.entries) for s in db.stats().levels]


def rebuild_against_compaction(path: Path, n_keys: int) -> dict[str, Any]:
    """A compaction of all data with filters of 6 bits, then new filters of 12 bits for the same tables.

    Values of 100 bytes of which half are random. So that no table can stay as it is, a few keys from
    everywhere are written again before the compaction.
    """
    rng = random.Random(2)
    with lsmkv.open(path, wal=None, bits_per_key=6.0) as db:
        _load(db, n_keys, [rng.randbytes(50) + bytes(50) for _ in range(1000)])
        for i in rng.sample(range(n_keys), 5000):
            db.put(_key(i), b"again")
        db.flush()
        before = dataclasses.replace(db.background)
        compaction = _timed(db.compact_range)
        verify = _verify_share(before, db.background)
        db.set_options(bits_per_key=12.0)
        rebuild = _timed(db.rebuild_filters)
        bits = db.stats().total.filter.memory_bytes * 8 / n_keys
    return {
        "keys": n_keys,
        "compaction_wall_s": compaction[0],
        "compaction_cpu_s": compaction[1],
        "rebuild_wall_s": rebuild[0],
        "rebuild_cpu_s": rebuild[1],
        "wall_ratio": rebuild[0] / compaction[0],
        "cpu_ratio": rebuild[1] / compaction[1],
        "verify_share": verify,
        "bits_per_key": bits,
    }


def _verify_share(before: Any, after: Any) -> float:
    """Of the time in which tables were built: what the check of their new filters took."""
    spent = {
        name: getattr(after, name) - getattr(before, name)
        for name in ("filter_verify_ns", "flush_ns", "compaction_ns")
    }
    return spent["filter_verify_ns"] / (spent["flush_ns"] + spent["compaction_ns"])


def verify_share_of_flushes(path: Path, n_keys: int) -> float:
    """Flushes of keys without values: nothing else to build but keys and filter, so the largest share."""
    with lsmkv.open(path, wal=None) as db:
        before = dataclasses.replace(db.background)
        _load(db, n_keys, [b""])
        return _verify_share(before, db.background)


def measure(scratch: Path, n_keys: int, rebuild_keys: int) -> dict[str, Any]:
    path, thin, n = scratch / "tree", scratch / "thin", min(n_keys, 200_000)
    one = scratch / "one"
    build(path, n_keys, thin=thin)
    shutil.copytree(thin, one)
    with lsmkv.open(one, **OPTIONS) as db:
        db.compact_range()
    costs = levels_cost({"one": one, "four": thin, "six": path}, n, n_keys)
    uniform = with_options(path, n, n_keys, bits_per_key=10.0)
    memory = uniform["filter_bytes"]
    auto = with_options(path, n, n_keys, bits_per_key="auto", filter_memory=memory)
    hits = with_options(
        path, n, n_keys, bits_per_key=10.0, filter_memory=None, optimize_filters_for_hits=True
    )
    return {
        "keys": n_keys,
        "tree": uniform["tree"],
        "uniform": uniform,
        "auto": auto,
        "for_hits": hits,
        "auto_over_uniform": auto["reads_in_vain_per_lookup"] / uniform["reads_in_vain_per_lookup"],
        "auto_memory_ratio": auto["filter_bytes"] / memory,
        "memory_given_back": 1 - hits["filter_bytes"] / memory,
        "levels": costs,
        "levels_cost": costs["four"]["ns_per_lookup"] / costs["one"]["ns_per_lookup"],
        "runs_cost": costs["six"]["ns_per_lookup"] / costs["one"]["ns_per_lookup"],
        "rebuild": rebuild_against_compaction(scratch / "rebuild", rebuild_keys),
        "verify_share_of_flushes": verify_share_of_flushes(scratch / "flushes", min(n_keys, 1_000_000)),
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['keys']:,} keys")
    for row in result["tree"]:
        print(f"  L{row['level']}: {row['files']:4} files {row['entries']:10,} entries")
    print("\nLookups for keys that are not there        uniform 10      auto  for hits")
    shown = [result[name] for name in ("uniform", "auto", "for_hits")]
    for name, form in (
        ("tables_per_lookup", "10.2f"),
        ("reads_in_vain_per_table", "10.3%"),
        ("reads_in_vain_per_lookup", "10.3%"),
        ("filter_bytes", "10,"),
        ("us_per_lookup", "10.3f"),
    ):
        print(f"  {name:36}" + "".join(f"{row[name]:{form}}" for row in shown))
    for name in ("uniform", "auto", "for_hits"):
        print(f"  bits per key by level, {name}: {result[name]['bits_per_level']}")
    print(
        f"\nauto: {result['auto_over_uniform']:.2f} of the wasted reads of uniform bits, at"
        f" {result['auto_memory_ratio']:.2f} of the memory"
    )
    print(f"optimize_filters_for_hits gives back {result['memory_given_back']:.1%} of filter memory")
    print("a lookup for nothing:")
    for name, cost in result["levels"].items():
        print(f"  {name:>4}: {cost['tables_per_lookup']:.2f} tables to ask, {cost['ns_per_lookup']:.0f} ns")
    print(
        f"  {result['levels_cost']:.2f} times as much in L0 to L3 as in one level,"
        f" {result['runs_cost']:.2f} times with three tables in L0"
    )
    rebuild = result["rebuild"]
    print(
        f"{rebuild['keys']:,} keys, filters from 6 to 12 bits: {rebuild['wall_ratio']:.2f} of the"
        f" time of their compaction, {rebuild['cpu_ratio']:.2f} of its processor time"
        f" ({rebuild['rebuild_wall_s']:.2f} s and {rebuild['compaction_wall_s']:.2f} s)"
    )
    print(
        f"checking new filters: {rebuild['verify_share']:.1%} of that compaction,"
        f" {result['verify_share_of_flushes']:.1%} of flushes of keys without values"
    )


def main(argv: list[str] | None = None) -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--keys", type=int, default=4_000_000, help="in the tree")
    parser.add_argument("--rebuild-keys", type=int, default=5_000_000)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), arguments.keys, arguments.rebuild_keys)
    figures.put_out(result, arguments.json, show)


if __name__ == "__main__":
    main()

"""Measures filters in a whole tree: wasted reads, allocation of memory over the levels, and the costs of more
levels, of verifying new filters and of rebuilding them.

    python -m lsmkv_bench.filter_tree [--keys N] [--rebuild-keys N] [--json]

One database has L0 above at least three full levels. Its copies differ only in their filters, so all
measurements use the same tables. Times of a single thread are CPU times. Lookups in trees of different shapes
take turns in small portions, and the best time of each portion counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lsmkv
from lsmkv.compaction import automatic

from .standalone import best_in_turns, run_in_scratch, thread_seconds

OPTIONS: dict[str, Any] = {
    "write_buffer_size": 128 << 10,
    "target_file_size": 1 << 20,
    "level_size_ratio": 10,
    "block_cache_size": 512 << 20,
    "wal": None,
}
BATCH = 1000
PORTION = 1000  # lookups per measurement
FUSE_MEMORY = 0.8  # of that of "auto" with Bloom filters
BUSY = ("num-running-jobs", "pending-compaction-bytes")


def _key(n: int) -> bytes:
    return b"%016x" % (n * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)


def _missing(n: int) -> bytes:
    """An absent key in the range of the keys, which have 16 characters."""
    return _key(n) + b"-"


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    present = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, present)


def no_idle_compaction() -> contextlib.AbstractContextManager[None]:
    """Keeps the databases of this process from merging L0 while they are idle: the trees stay as they are."""
    return _replaced(automatic, "IDLE_SECONDS", automatic.LONGEST_PAUSE)


def no_automatic_compaction() -> contextlib.AbstractContextManager[None]:
    """Keeps the databases of this process from compacting by themselves.

    Other filters change the size of the tables. That alone can push a full level over its target, which is a share of
    the size of the last level.
    """
    return _replaced(automatic.AutomaticCompaction, "next_plan", lambda self: None)


def build(path: Path, n_keys: int, *, thin: Path) -> None:
    """Write random keys until L0 has three tables and the levels below are full.

    `thin` gets a copy with one table in L0, where a lookup probes one table per level.
    """
    with lsmkv.open(path, **OPTIONS) as db:
        _load(db, n_keys, [b"value%015d" % i for i in range(1000)])
        rng = random.Random(1)
        while not (thin.exists() and _is_full(db, 3)):
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
    """Wait until there is nothing to compact."""
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
    """Lookups of absent keys: wasted reads, and the time per lookup."""
    keys = [_missing(i) for i in range(n)]
    db.reset_stats()
    _each(db.get, keys)
    stats = db.stats()
    best = min(thread_seconds(lambda: _each(db.get, keys)) for _ in range(5))
    total = stats.total.filter
    lookups = stats.reads.gets
    return {
        "wasted_reads_per_lookup": (total.false_positives + total.unfiltered) / lookups,
        "tables_per_lookup": total.lookups / lookups,
        "wasted_reads_per_table": (total.false_positives + total.unfiltered) / total.lookups,
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
    """Nanoseconds per lookup of an absent key in each tree, and the tables that it probes."""
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
        timers = {name: partial(_time_portion, get, portions) for name, get in gets.items()}
        best = best_in_turns(timers, len(portions), rounds)
    for name, seconds in best.items():
        found[name]["ns_per_lookup"] = seconds / n * 1e9
    return found


def _time_portion(get: Callable[[bytes], Any], portions: list[list[bytes]], portion: int) -> float:
    return thread_seconds(lambda: _each(get, portions[portion]))


def _bits(level: Any) -> float:
    return round(level.filter.memory_bytes * 8 / level.entries, 2) if level.entries else 0.0


def _each(get: Callable[[bytes], Any], keys: Iterable[bytes]) -> None:
    for key in keys:
        get(key)


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of all threads."""
    wall, cpu = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - wall, time.process_time() - cpu


def with_options(path: Path, n: int, n_keys: int, **options: Any) -> dict[str, Any]:
    """Rebuild the filters of a copy with `options`, and measure lookups in the read-only copy."""
    copy = path.with_name("copy")
    copy_with_filters(path, copy, options)
    with lsmkv.open(copy, "r", **OPTIONS) as db:
        _each(db.get, [_key(i) for i in range(0, n_keys, 7)])
        return misses(db, n) | {"tree": shape(db)}


def copy_with_filters(path: Path, copy: Path, options: dict[str, Any]) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with no_automatic_compaction(), lsmkv.open(copy, **OPTIONS) as db:
        before = _counts(db)
        db.set_options(**options)
        db.rebuild_filters()
        if _counts(db) != before:
            raise RuntimeError("a compaction changed the tree while its filters were rebuilt")


def _counts(db: lsmkv.DB) -> list[tuple[int, int, int]]:
    return [(s.level, s.files, s.entries) for s in db.stats().levels]


def rebuild_against_compaction(path: Path, n_keys: int) -> dict[str, Any]:
    """Time a compaction of all data with 6-bit filters, then a rebuild of the filters with 12 bits.

    Values have 100 bytes, half of them random. Updates all over the key space prevent trivial moves.
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
    """The share of verifying new filters in the time of flushes and compactions."""
    spent = {
        name: getattr(after, name) - getattr(before, name) for name in ("filter_verify_ns", "flush_ns", "compaction_ns")
    }
    return spent["filter_verify_ns"] / (spent["flush_ns"] + spent["compaction_ns"])


def verify_share_of_flushes(path: Path, n_keys: int) -> float:
    """The share in flushes of keys without values, where it is largest."""
    with lsmkv.open(path, wal=None) as db:
        before = dataclasses.replace(db.background)
        _load(db, n_keys, [b""])
        return _verify_share(before, db.background)


@no_idle_compaction()
def measure(scratch: Path, keys: int, rebuild_keys: int) -> dict[str, Any]:
    path, thin, n = scratch / "tree", scratch / "thin", min(keys, 200_000)
    one = scratch / "one"
    build(path, keys, thin=thin)
    shutil.copytree(thin, one)
    with lsmkv.open(one, **OPTIONS) as db:
        db.compact_range()
    costs = levels_cost({"one": one, "four": thin, "six": path}, n, keys)
    uniform = with_options(path, n, keys, bits_per_key=10.0)
    memory = uniform["filter_bytes"]
    auto = with_options(path, n, keys, bits_per_key="auto", filter_memory=memory)
    budget = int(FUSE_MEMORY * auto["filter_bytes"])
    fuse = with_options(path, n, keys, filter="auto", bits_per_key="auto", filter_memory=budget)
    hits = with_options(path, n, keys, bits_per_key=10.0, filter_memory=None, optimize_filters_for_hits=True)
    return {
        "keys": keys,
        "tree": uniform["tree"],
        "uniform": uniform,
        "auto": auto,
        "auto_fuse": fuse,
        "for_hits": hits,
        "auto_over_uniform": auto["wasted_reads_per_lookup"] / uniform["wasted_reads_per_lookup"],
        "auto_memory_ratio": auto["filter_bytes"] / memory,
        "fuse_over_auto": fuse["wasted_reads_per_lookup"] / auto["wasted_reads_per_lookup"],
        "fuse_memory_ratio": fuse["filter_bytes"] / auto["filter_bytes"],
        "memory_saved": 1 - hits["filter_bytes"] / memory,
        "levels": costs,
        "levels_cost": costs["four"]["ns_per_lookup"] / costs["one"]["ns_per_lookup"],
        "runs_cost": costs["six"]["ns_per_lookup"] / costs["one"]["ns_per_lookup"],
        "rebuild": rebuild_against_compaction(scratch / "rebuild", rebuild_keys),
        "verify_share_of_flushes": verify_share_of_flushes(scratch / "flushes", min(keys, 1_000_000)),
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['keys']:,} keys")
    for row in result["tree"]:
        print(f"  L{row['level']}: {row['files']:4} files {row['entries']:10,} entries")
    trees = ("uniform", "auto", "auto_fuse", "for_hits")
    print("\nLookups of absent keys                     uniform 10      auto auto fuse  for hits")
    shown = [result[name] for name in trees]
    for name, form in (
        ("tables_per_lookup", "10.2f"),
        ("wasted_reads_per_table", "10.3%"),
        ("wasted_reads_per_lookup", "10.3%"),
        ("filter_bytes", "10,"),
        ("us_per_lookup", "10.3f"),
    ):
        print(f"  {name:36}" + "".join(f"{row[name]:{form}}" for row in shown))
    for name in trees:
        print(f"  bits per key by level, {name}: {result[name]['bits_per_level']}")
    print(
        f"\nauto: {result['auto_over_uniform']:.2f} times the wasted reads of uniform bits, with"
        f" {result['auto_memory_ratio']:.2f} times the memory"
    )
    print(
        f'auto with filter="auto": {result["fuse_over_auto"]:.2f} times the wasted reads of auto with Bloom filters,'
        f" with {result['fuse_memory_ratio']:.2f} times the memory"
    )
    print(f"optimize_filters_for_hits saves {result['memory_saved']:.1%} of filter memory")
    print("lookup of an absent key:")
    for name, cost in result["levels"].items():
        print(f"  {name:>4}: {cost['tables_per_lookup']:.2f} tables, {cost['ns_per_lookup']:.0f} ns")
    print(
        f"  {result['levels_cost']:.2f} times the time of one level with one table in each of L0 to L3,"
        f" {result['runs_cost']:.2f} times with three tables in L0"
    )
    rebuild = result["rebuild"]
    print(
        f"rebuilding the filters of {rebuild['keys']:,} keys from 6 to 12 bits: {rebuild['wall_ratio']:.2f} of the"
        f" time of their compaction, {rebuild['cpu_ratio']:.2f} of its CPU time"
        f" ({rebuild['rebuild_wall_s']:.2f} s and {rebuild['compaction_wall_s']:.2f} s)"
    )
    print(
        f"verifying new filters: {rebuild['verify_share']:.1%} of that compaction,"
        f" {result['verify_share_of_flushes']:.1%} of flushes of keys without values"
    )


def main(argv: list[str] | None = None) -> None:
    run_in_scratch(__doc__, measure, show, argv, keys=4_000_000, rebuild_keys=5_000_000)


if __name__ == "__main__":
    main()

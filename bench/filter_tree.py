"""What filters do in a whole tree: reads in vain, the best split of memory, memory given back, rebuilding.

    python -m lsmkv_bench.filter_tree [--keys 3000000] [--json] [--keep DIR]

One database, L0 above at least three full levels; between the measurements only the options change and the
filters are rebuilt, so that all of them see the same tables. Times are of the thread's own clock where one
thread does the work.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lsmkv

OPTIONS: dict[str, Any] = {
    "write_buffer_size": 128 << 10,
    "target_file_size": 1 << 20,
    "block_cache_size": 512 << 20,
    "wal": None,
}
BATCH = 1000


def _key(n: int) -> bytes:
    return b"%016x" % (n * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)


def _missing(n: int) -> bytes:
    """As random as the keys, within their range, and never one of them (they have 16 characters)."""
    return _key(n) + b"-"


def build(path: Path, n_keys: int) -> lsmkv.DB:
    db = lsmkv.open(path, **OPTIONS)
    for start in range(0, n_keys, BATCH):
        with db.write_batch() as batch:
            for i in range(start, min(start + BATCH, n_keys)):
                batch.put(_key(i), b"value%015d" % i)
    db.flush()
    _settle(db)
    _top_up(db, n_keys)
    return db


def _settle(db: lsmkv.DB) -> None:
    """Waits until nothing is left to compact."""
    while any(db.property(f"lsmkv.{name}") != "0" for name in ("num-running-jobs", "pending-compaction-bytes")):
        time.sleep(0.05)


def _top_up(db: lsmkv.DB, n_keys: int) -> None:
    """Three tables into L0, below the number that starts a compaction."""
    while len(_files(db)[0]) < 3:
        for i in random.Random(len(_files(db)[0])).sample(range(n_keys), 2000):
            db.put(_key(i), b"again")
        db.flush()
        _settle(db)


def _files(db: lsmkv.DB) -> list[list[Any]]:
    return [[None] * level.files for level in db.stats().levels]


def shape(db: lsmkv.DB) -> list[dict[str, Any]]:
    return [
        {"level": s.level, "files": s.files, "entries": s.entries, "filter_bytes": s.filter.memory_bytes}
        for s in db.stats().levels
        if s.files
    ]


def misses(db: lsmkv.DB, n: int) -> dict[str, Any]:
    """Lookups for keys that are not there: how many reads in vain, and what one lookup costs."""
    asked = [_missing(i) for i in range(n)]
    db.reset_stats()
    get = db.get
    best = min(_thread_seconds(lambda: _each(get, asked)) for _ in range(3))
    stats = db.stats()
    total = stats.total.filter
    lookups = stats.reads.gets
    return {
        "false_positives_per_lookup": total.false_positives / lookups,
        "tables_per_lookup": total.lookups / lookups,
        "false_positives_per_table": (total.false_positives + total.unfiltered) / total.lookups,
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


def _bits(level: Any) -> float:
    return round(level.filter.memory_bytes * 8 / level.entries, 2) if level.entries else 0.0


def _each(get: Callable[[bytes], Any], keys: list[bytes]) -> None:
    for key in keys:
        get(key)


def _thread_seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _cpu_seconds(work: Callable[[], Any]) -> float:
    """Processor time of all threads: the background does part of the work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rebuilt(db: lsmkv.DB, **options: Any) -> float:
    """Changes the options and pays all filter debt; processor seconds."""
    db.set_options(**options)
    return _cpu_seconds(db.rebuild_filters)


def rebuild_against_compaction(db: lsmkv.DB, n_keys: int) -> dict[str, Any]:
    """New filters of 12 bits instead of 6 for all tables, and a compaction of all data, in processor time."""
    rebuilt(db, bits_per_key=6.0, filter_memory=None, optimize_filters_for_hits=False)
    start = time.monotonic()
    filters_s = rebuilt(db, bits_per_key=12.0)
    filters_wall = time.monotonic() - start
    start = time.monotonic()
    compaction_s = _cpu_seconds(db.compact_range)
    compaction_wall = time.monotonic() - start
    return {
        "keys": n_keys,
        "rebuild_cpu_s": filters_s,
        "compaction_cpu_s": compaction_s,
        "ratio": filters_s / compaction_s,
        "rebuild_wall_s": filters_wall,
        "compaction_wall_s": compaction_wall,
    }


def measure(path: Path, n_keys: int) -> dict[str, Any]:
    n = min(n_keys, 200_000)
    with build(path, n_keys) as db:
        result: dict[str, Any] = {"keys": n_keys, "tree": shape(db)}
        rebuilt(db, bits_per_key=10.0)
        _each(db.get, [_key(i) for i in range(0, n_keys, 7)])
        result["uniform"] = misses(db, n)
        memory = result["uniform"]["filter_bytes"]
        rebuilt(db, bits_per_key="auto", filter_memory=memory)
        result["auto"] = misses(db, n)
        rebuilt(db, bits_per_key=10.0, filter_memory=None, optimize_filters_for_hits=True)
        result["for_hits"] = misses(db, n)
        result["rebuild"] = rebuild_against_compaction(db, n_keys)
        rebuilt(db, bits_per_key=10.0)
        result["one_level"] = misses(db, n) | {"tree": shape(db)}
    uniform, auto, hits, one = (result[name] for name in ("uniform", "auto", "for_hits", "one_level"))
    result["auto_over_uniform"] = auto["false_positives_per_lookup"] / uniform["false_positives_per_lookup"]
    result["auto_memory_ratio"] = auto["filter_bytes"] / uniform["filter_bytes"]
    result["memory_given_back"] = 1 - hits["filter_bytes"] / uniform["filter_bytes"]
    result["levels_cost"] = uniform["us_per_lookup"] / one["us_per_lookup"]
    return result


def show(result: dict[str, Any]) -> None:
    print(f"{result['keys']:,} keys")
    for row in result["tree"]:
        print(f"  L{row['level']}: {row['files']:4} files {row['entries']:10,} entries")
    print("\nLookups for keys that are not there        uniform 10      auto  for hits  one level")
    shown = [result[name] for name in ("uniform", "auto", "for_hits", "one_level")]
    for name, form in (
        ("tables_per_lookup", "10.2f"),
        ("false_positives_per_table", "10.3%"),
        ("false_positives_per_lookup", "10.3%"),
        ("filter_bytes", "10,"),
        ("us_per_lookup", "10.3f"),
    ):
        print(f"  {name:36}" + "".join(f"{row[name]:{form}}" for row in shown))
    for name in ("uniform", "auto", "for_hits"):
        print(f"  bits per key by level, {name}: {result[name]['bits_per_level']}")
    print(
        f"\nauto: {result['auto_over_uniform']:.2f} of the reads in vain of uniform bits, at"
        f" {result['auto_memory_ratio']:.2f} of the memory"
    )
    print(f"optimize_filters_for_hits gives back {result['memory_given_back']:.1%} of filter memory")
    print(f"a lookup for nothing costs {result['levels_cost']:.2f} times what it costs in one level")
    rebuild = result["rebuild"]
    print(
        f"filters from 6 to 12 bits: {rebuild['rebuild_cpu_s']:.2f} s, compaction of the same data"
        f" {rebuild['compaction_cpu_s']:.2f} s: ratio {rebuild['ratio']:.2f} (processor time)"
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=3_000_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--keep", metavar="DIR", help="leave the database there")
    arguments = parser.parse_args(argv)
    if arguments.keep:
        result = measure(Path(arguments.keep), arguments.keys)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            result = measure(Path(scratch) / "db", arguments.keys)
    if arguments.json:
        json.dump(result, sys.stdout, indent=1)
        print()
    else:
        show(result)


if __name__ == "__main__":
    main()

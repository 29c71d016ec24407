"""`python -m lsmkv_bench.demo`: a short workload on a temporary database, then a report on its filters."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import lsmkv

from .native.latency import Driver, Histogram
from .native.workload import OPS, KeyGenerator, ValueGenerator, make_keys
from .report.db_stats import filter_stats

NUM = 400_000
CHUNK = 20_000
OPTIONS: dict[str, Any] = {"write_buffer_size": 4 << 20, "target_file_size": 4 << 20, "block_cache_size": 8 << 20}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="lsmkv-demo-") as folder, lsmkv.open(folder, **OPTIONS) as db:
        print(f"lsmkv demo: {NUM:,} records of 116 bytes; small buffers make several levels")
        values = ValueGenerator(1)
        run(db, "put", "write in random order", KeyGenerator("unique", NUM, 1), NUM, values=values)
        run(db, "get", "read existing keys", KeyGenerator("uniform", NUM, 2), NUM // 2)
        run(db, "get", "read absent keys", KeyGenerator("uniform", NUM, 3), NUM // 2, suffix=b".")
        verify(db, values)
        print("\nFilters\n")
        print(filter_stats(db.stats()))
    return 0


def run(
    db: lsmkv.DB,
    op: str,
    title: str,
    keys: KeyGenerator,
    count: int,
    *,
    values: ValueGenerator | None = None,
    suffix: bytes = b"",
) -> None:
    """Run `count` operations and print their latencies."""
    start = time.perf_counter()
    hist = Histogram()
    driver = Driver(get=db.get, put=db.put, hist=hist)
    for done in range(0, count, CHUNK):
        numbers = keys.take(min(CHUNK, count - done))
        chunk = values.values(numbers, 1) if values is not None else None
        driver.run(bytes([OPS[op]]) * len(numbers), make_keys(numbers, 16, suffix), chunk)
        show_progress(title, (done + len(numbers)) / count)
    found = f", {driver.found:,} found" if op == "get" else ""
    print(
        f"\r{title:<28} {driver.ops:>9,} operations in {time.perf_counter() - start:5.2f} s,"
        f" p50 {hist.percentile(50) / 1e3:6.2f} us, p99 {hist.percentile(99) / 1e3:7.2f} us{found}"
    )


def verify(db: lsmkv.DB, values: ValueGenerator) -> None:
    """Iterate over all records, and compare every hundredth with the value that was written."""
    count = 0
    for number, (key, value) in enumerate(db.items()):
        count += 1
        if number % 100 == 0 and (int(key) != number or value != values.value(number, 1)):
            raise SystemExit(f"record {number} came back as {key!r}")
    if count != NUM:
        raise SystemExit(f"{NUM:,} records were written, {count:,} came back")
    print(f"iterated over all {count:,} records in order")


def show_progress(title: str, share: float) -> None:
    if sys.stdout.isatty():
        bar = "#" * int(30 * share)
        print(f"\r{title:<28} [{bar:<30}] {share:4.0%}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())

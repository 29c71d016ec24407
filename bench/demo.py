"""`python -m lsmkv_bench.demo`: a short workload on a temporary database, and what its filters saved."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .native.latency import Driver, Histogram
from .native.workload import OPS, Stream, Values, make_keys
from .report.db_stats import filter_report

NUM = 400_000
CHUNK = 20_000
OPTIONS = {"write_buffer_size": 4 << 20, "target_file_size": 4 << 20, "block_cache_size": 8 << 20}


def main() -> int:
    import lsmkv

    with tempfile.TemporaryDirectory(prefix="lsmkv-demo-") as folder, lsmkv.open(folder, **OPTIONS) as db:
        print(f"lsmkv demo: {NUM:,} records of 116 bytes, with small buffers so that several levels grow")
        values = Values(1)
        with stage("write in random order") as step:
            step(Driver(put=db.put, hist=Histogram()), Stream("unique", NUM, 1), NUM, "put", values)
        with stage("read them back") as step:
            step(Driver(get=db.get, hist=Histogram()), Stream("uniform", NUM, 2), NUM // 2, "get")
        with stage("read keys that do not exist") as step:
            step(
                Driver(get=db.get, hist=Histogram()), Stream("uniform", NUM, 3), NUM // 2, "get", suffix=b"."
            )
        verify(db, values)
        print("\nWhat the filters did\n")
        print(filter_report(db.stats()))
    return 0


def verify(db: object, values: Values) -> None:
    """Every hundredth record through one ordered walk: the demo must not show a speed of wrong answers."""
    seen = 0
    for number, (key, value) in enumerate(db.items()):  # type: ignore[attr-defined]
        seen += 1
        if number % 100 == 0 and (int(key) != number or value != values.one(number, 1)):
            raise SystemExit(f"record {number} came back as {key!r}")
    if seen != NUM:
        raise SystemExit(f"{NUM:,} records were written, {seen:,} came back")
    print(f"walked over all {seen:,} records in order: all there")


Step = Callable[..., None]


@contextmanager
def stage(title: str) -> Iterator[Step]:
    """Gives a function that runs operations in chunks, with progress; prints the figures at the end."""
    start = time.perf_counter()
    drivers: list[Driver] = []
    reading = False

    def run(
        driver: Driver, stream: Stream, count: int, op: str, values: Values | None = None, suffix: bytes = b""
    ) -> None:
        nonlocal reading
        drivers.append(driver)
        reading = op == "get"
        for done in range(0, count, CHUNK):
            numbers = stream.take(min(CHUNK, count - done))
            made = values.make(numbers, 1) if values is not None else None
            driver.run(bytes([OPS[op]]) * len(numbers), make_keys(numbers, 16, suffix), made)
            progress(title, (done + len(numbers)) / count)

    yield run
    driver = drivers[0]
    hist = driver.hist
    assert hist is not None
    found = f", {driver.found:,} found" if reading else ""
    print(
        f"\r{title:<28} {driver.ops:>9,} operations in {time.perf_counter() - start:5.2f} s,"
        f" p50 {hist.percentile(50) / 1e3:6.2f} us, p99 {hist.percentile(99) / 1e3:7.2f} us{found}"
    )


def progress(title: str, share: float) -> None:
    if sys.stdout.isatty():
        bar = "#" * int(30 * share)
        print(f"\r{title:<28} [{bar:<30}] {share:4.0%}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The time to the first key behind a range of deletes, in a memtable, in tables, and after a flush or a reopen.

    python -m lsmkv_bench.first_key [--deletes N] [--rounds N] [--json]

The first scan passes the tombstones one by one and leaves a dead span. Later scans jump over it; their median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lsmkv

from .standalone import run_in_scratch

LIVE = 1000  # records behind the deleted ones
VALUE = b"v" * 100
OPTIONS: dict[str, Any] = {"write_buffer_size": 1 << 30}


def _key(i: int) -> bytes:
    return b"%016d" % i


def _fill(db: lsmkv.DB, deletes: int) -> None:
    for i in range(deletes + LIVE):
        db.put(_key(i), VALUE)


def _delete(db: lsmkv.DB, start: int, stop: int) -> None:
    for i in range(start, stop):
        db.delete(_key(i))


def in_memtable(db: lsmkv.DB, deletes: int) -> None:
    _fill(db, deletes)
    _delete(db, 0, deletes)


def flushed(db: lsmkv.DB, deletes: int) -> None:
    in_memtable(db, deletes)
    db.flush()


def half_compacted(db: lsmkv.DB, deletes: int) -> None:
    """Half of the deletes were merged into the last level, and the others are in a table above it."""
    _fill(db, deletes)
    _delete(db, 0, deletes // 2)
    db.compact_range()
    _delete(db, deletes // 2, deletes)
    db.flush()


def _microseconds(db: lsmkv.DB, first: bytes) -> float:
    began = time.perf_counter()
    found = next(db.iterator())[0]
    passed = time.perf_counter() - began
    if found != first:
        raise AssertionError(f"the first key is {found!r}, expected {first!r}")
    return passed * 1e6


def _scans(db: lsmkv.DB, deletes: int, rounds: int) -> dict[str, float]:
    first = _microseconds(db, _key(deletes))
    return {"first_us": first, "then_us": statistics.median(_microseconds(db, _key(deletes)) for _ in range(rounds))}


def measure_place(path: Path, place: Callable[[lsmkv.DB, int], None], deletes: int, rounds: int) -> dict[str, Any]:
    """Scans where the tombstones are, then after a flush, then after a reopen. Automatic compaction stands still."""
    found = {}
    with lsmkv.open(path, **OPTIONS) as db:
        db._work.claims.suspended += 1
        place(db, deletes)
        found["as is"] = _scans(db, deletes, rounds)
        db.flush()
        found["after a flush"] = _scans(db, deletes, rounds)
    with lsmkv.open(path, **OPTIONS) as db:
        db._work.claims.suspended += 1
        found["after a reopen"] = _scans(db, deletes, rounds)
    return found


def measure(scratch: Path, deletes: int, rounds: int) -> dict[str, Any]:
    places = (in_memtable, flushed, half_compacted)
    return {
        place.__name__.replace("_", " "): measure_place(scratch / place.__name__, place, deletes, rounds)
        for place in places
    }


def show(found: dict[str, Any]) -> None:
    for place, moments in found.items():
        for moment, scans in moments.items():
            print(f"{place}, {moment}: first scan {scans['first_us']:,.0f} us, then {scans['then_us']:.1f} us")


def main(argv: list[str] | None = None) -> None:
    run_in_scratch(__doc__, measure, show, argv, deletes=500_000, rounds=1000)


if __name__ == "__main__":
    main()

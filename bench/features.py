"""The cost of keyspaces, expiry, atomic updates and transactions.

    python -m lsmkv_bench.features [--keyspaces N] [--rounds N] [--json]

The calls that are compared take turns on small portions of the same keys. The best CPU time of each portion counts, so
other processes have little influence.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import lsmkv

from .standalone import best_in_turns, run_in_scratch, thread_seconds

KEYS = 100_000
PORTION = 1000
PORTIONS = 40
VALUE = b"v" * 100

Call = Callable[[bytes], Any]


def _key(i: int) -> bytes:
    return b"%016d" % i


def _draws(seed: int) -> list[list[bytes]]:
    rng = random.Random(seed)
    return [[_key(rng.randrange(KEYS)) for _ in range(PORTION)] for _ in range(PORTIONS)]


def _each(call: Call, keys: Iterable[bytes]) -> None:
    for key in keys:
        call(key)


def nanoseconds(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Nanoseconds of each call per key, in turns."""
    portions = _draws(1)

    def timer(call: Call, portion: int) -> float:
        return thread_seconds(partial(_each, call, portions[portion]))

    best = best_in_turns({name: partial(timer, call) for name, call in calls.items()}, PORTIONS, rounds)
    return {name: seconds / (PORTIONS * PORTION) * 1e9 for name, seconds in best.items()}


def measure_gets(path: Path, rounds: int) -> dict[str, float]:
    """Gets from tables in the default keyspace and in a named one, without the row cache."""
    with lsmkv.open(path, row_cache_size=0) as db:
        named = db.keyspace("named")
        for keyspace in (db, named):
            for start in range(0, KEYS, 1000):
                with keyspace.write_batch() as batch:
                    for i in range(start, start + 1000):
                        batch.put(_key(i), VALUE)
            keyspace.compact_range()
            _each(keyspace.get, map(_key, range(KEYS)))
        return nanoseconds({"default": db.get, "named": named.get}, rounds)


def measure_puts(path: Path, rounds: int) -> dict[str, float]:
    with lsmkv.open(path, write_buffer_size=1 << 30) as db:
        put = db.put

        def plain(key: bytes) -> None:
            put(key, VALUE)

        def timed(key: bytes) -> None:
            put(key, VALUE, ttl=3600)

        _each(plain, map(_key, range(KEYS)))
        return nanoseconds({"plain": plain, "ttl": timed}, rounds)


def measure_updates(path: Path, rounds: int) -> dict[str, float]:
    """`add`, and transactions of two reads and two writes."""
    with lsmkv.open(path, write_buffer_size=1 << 30) as db:
        for i in range(KEYS):
            db.put(_key(i), bytes(8))

        def transaction(key: bytes) -> None:
            with db.transaction() as tx:
                tx.put(key, tx[key])
                tx.put(key + b".", tx.get(key + b".", b""))

        return nanoseconds({"add": db.add, "transaction": transaction}, max(1, rounds // 3))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def open_in_turn(*paths: str) -> None:
    """Open the databases one after the other. Print the milliseconds and bytes that the last one takes."""
    for path in paths:
        before, began = resident(), time.perf_counter()
        db = lsmkv.open(path)
        seconds, taken = time.perf_counter() - began, resident() - before
        db.close()
    print(seconds * 1e3, taken)


def measure_many(path: Path, count: int) -> dict[str, float]:
    """The open of a database with `count` keyspaces of one table each, and the memory of each when idle.

    A new process opens it after a small one: memory that was used before would be used again, and not show.
    """
    for n in (1, count):
        with lsmkv.open(path / str(n)) as db:
            for i in range(n):
                db.keyspace(f"keyspace {i}").put(b"key", VALUE)
            db.flush()
    script = "import sys; from lsmkv_bench.features import open_in_turn; open_in_turn(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(path / "1"), str(path / str(count))]
    milliseconds, taken = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {"open_ms": float(milliseconds), "kib_each": int(taken) / count / 1024}


def measure(scratch: Path, keyspaces: int, rounds: int) -> dict[str, Any]:
    (scratch / "many").mkdir()
    return {
        "keyspaces": {"count": keyspaces, **measure_many(scratch / "many", keyspaces)},
        "get_ns": measure_gets(scratch / "gets", rounds),
        "put_ns": measure_puts(scratch / "puts", rounds),
        "update_ns": measure_updates(scratch / "updates", rounds),
    }


def show(found: dict[str, Any]) -> None:
    many, get, put, update = found["keyspaces"], found["get_ns"], found["put_ns"], found["update_ns"]
    print(f"open with {many['count']} keyspaces: {many['open_ms']:.0f} ms, {many['kib_each']:.0f} KiB each")
    ratio = get["named"] / get["default"]
    print(f"get: {get['default']:.0f} ns, in a named keyspace {get['named']:.0f} ns: {ratio:.3f}x")
    print(f"put: {put['plain']:.0f} ns, with a TTL {put['ttl']:.0f} ns: {put['ttl'] - put['plain']:+.0f} ns")
    print(f"add: {update['add'] / 1e3:.2f} us")
    print(f"transaction of 2 reads and 2 writes: {update['transaction'] / 1e3:.2f} us")


def main(argv: list[str] | None = None) -> None:
    run_in_scratch(__doc__, measure, show, argv, keyspaces=200, rounds=15)


if __name__ == "__main__":
    main()

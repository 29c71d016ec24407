"""Jobs of the lab: a database in a process whose address space is limited."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from typing import Any

import lsmkv

KEYS = 3000


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def write_within(folder: str, book: str, options: dict[str, Any], room: int, seed: int) -> dict[str, int]:
    """Writes, flushes, compacts and iterates with `room` bytes of address space left, as far as they reach. Notes each
    write in `book` before the call and after it; errors other than those of memory are raised.
    """
    rng = random.Random(seed)
    counts = {"written": 0, "refused": 0}
    db = lsmkv.open(folder, **options)
    with open(book, "ab", buffering=0) as file:
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + room, most))
        for number in range(4 * KEYS):
            key = rng.randrange(KEYS)
            _attempt(counts, lambda key=key, number=number: _put(db, file, key, number))
            if number % 500 == 499:
                _attempt(counts, rng.choice([db.flush, db.compact_range, lambda: sum(1 for _ in db.items())]))
        try:
            db.close()
        except (MemoryError, lsmkv.Error):
            counts["refused"] += 1
        # The report takes memory too.
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return counts


def _put(db: Any, file: Any, key: int, number: int) -> None:
    file.write(b"?%06d%06d\n" % (key, number))
    db.put(b"%06d" % key, b"%06d" % number * 50)
    file.write(b"!%06d%06d\n" % (key, number))


def _attempt(counts: dict[str, int], call: Callable[[], object]) -> None:
    """A limit on memory refuses allocations, mappings and threads; a failed commit refuses the writes after it."""
    try:
        call()
        counts["written"] += 1
    except (MemoryError, lsmkv.Error, RuntimeError):
        counts["refused"] += 1


def check_written(folder: str, book: str, options: dict[str, Any]) -> list[str]:
    """What a reopen finds must be the last acknowledged value of each key, or one asked for after it."""
    allowed: dict[int, set[int | None]] = {key: {None} for key in range(KEYS)}
    with open(book, "rb") as file:
        for line in file.read().split():
            key, number = int(line[1:7]), int(line[7:13])
            allowed[key] = {number} if line[:1] == b"!" else allowed[key] | {number}
    problems = []
    with lsmkv.open(folder, **options) as db:
        for key, numbers in allowed.items():
            value = db.get(b"%06d" % key)
            found = None if value is None else int(value[:6])
            if found not in numbers or (value is not None and value != b"%06d" % found * 50):
                problems.append(f"{key}: {found} is none of {sorted(numbers, key=str)}")
    return problems

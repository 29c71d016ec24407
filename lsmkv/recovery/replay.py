"""Checked logs into memtables, a piece at a time: tiny operations take ten times the room in memory that they take in a
log, so a log of them must not become one memtable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsmkv_ext.wal.log import LogReader
from lsmkv_ext.memtable.memtable import Memtable

# What a piece may take in memory, its flush included, beyond the bytes of log that it came from.
SLACK = 32 << 20
# The least of it that is left for a piece when what became of those before it takes memory, too.
LEAST_SLACK = 8 << 20
# Memory is taken in steps of at most this size.
CHUNK = 4 << 20


@dataclass(frozen=True)
class CheckedLog:
    """A log, and the offset up to which its records are good."""

    path: str
    number: int
    end: int


def replay(logs: Sequence[CheckedLog], seed: int, spill: Callable[[Memtable], int]) -> Memtable:
    """Calls `spill` with every memtable that is full, oldest first; returns the last one, which may be empty.
    `spill` says how many bytes of memory its result keeps: an open table's filter, index and range tombstones.

    A batch may be in two of them, so they have to become visible together.
    """
    chunk = min(CHUNK, sum(log.end for log in logs))
    memtable, held = Memtable(seed, chunk), 0
    spilled, kept = 0, 0
    for log in logs:
        reader = LogReader(log.path, log.number, log.end)
        while True:
            before = reader.taken
            slack = max(min(SLACK, LEAST_SLACK), SLACK - max(0, kept - spilled))
            reader.fill(memtable, slack + held)
            if reader.done:
                held += reader.taken - before
                break
            kept += spill(memtable)
            spilled += held + reader.taken - before
            memtable, held = Memtable(seed, chunk), 0
        memtable.number = log.number
    return memtable

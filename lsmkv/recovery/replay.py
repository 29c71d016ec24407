"""Replay: checked logs become memtables, a piece at a time.

Tiny operations take ten times the room in memory that they take in a log, so a log of them must not become one
memtable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay

# Bytes of memory that a piece may take, its flush included, beyond the bytes of log that it came from.
SLACK = 32 << 20
# The tables of earlier pieces take memory too; their share comes off the slack, down to this.
LEAST_SLACK = 8 << 20
# A memtable allocates at most this at a time.
CHUNK = 4 << 20


@dataclass(frozen=True)
class CheckedLog:
    """A log, and the offset up to which its records are good."""

    path: str
    number: int
    end: int


def replay(logs: Sequence[CheckedLog], seed: int, spill: Callable[[Memtable], int]) -> Memtable:
    """Call `spill` with every full memtable, oldest first; return the last memtable, which may be empty.

    `spill` makes a table of it and returns the bytes of memory that the open table keeps: filter, index, range
    tombstones. A batch may be in two memtables, so all of them have to become visible together.
    """
    chunk = min(CHUNK, sum(log.end for log in logs))
    memtable, held = Memtable(seed, chunk), 0
    spilled, kept = 0, 0
    for log in logs:
        replayed = LogReplay(log.path, log.number, log.end)
        while True:
            if memtable.empty:
                memtable.number = log.number  # the oldest log that it needs
            before = replayed.taken
            slack = max(min(SLACK, LEAST_SLACK), SLACK - max(0, kept - spilled))
            replayed.fill(memtable, slack + held)
            if replayed.done:
                held += replayed.taken - before
                break
            kept += spill(memtable)
            spilled += held + replayed.taken - before
            memtable, held = Memtable(seed, chunk), 0
    return memtable

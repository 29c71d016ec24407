"""Replay: checked logs become memtables, a piece at a time.

Tiny operations take ten times the room in memory that they take in a log, so a log of them must not become one
memtable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay
from lsmkv_ext.values.reader import ValueLog

# Bytes of memory that a piece may take, its flush included, beyond the bytes of log that it came from.
SLACK = 32 << 20
# The tables of earlier pieces take memory too; their share comes off the slack, down to this.
LEAST_SLACK = 8 << 20
# A memtable allocates at most this at a time.
CHUNK = 4 << 20
SMALL_CHUNK = 64 << 10  # of a named keyspace
# Keyspaces that only a log knows. A hostile log may name millions, and each takes a memtable.
MOST_UNKNOWN = 512


@dataclass(frozen=True)
class CheckedLog:
    """A log, and the offset up to which its records are good."""

    path: str
    number: int
    end: int
    known_synced: int = 0
    value_logs: tuple[ValueLog, ...] = ()  # that its records point into


# The memtables of one piece by keyspace.
Piece = dict[int, Memtable]


def replay(
    logs: Sequence[CheckedLog],
    seed: int,
    keyspaces: Iterable[int],
    spill: Callable[[Piece], int],
    *,
    by_log: bool = False,
    lost: Callable[[CheckedLog, int], None] | None = None,
) -> Piece:
    """Call `spill` with every full piece, oldest first; return the last piece, which may be empty.

    `spill` makes tables of it and returns the bytes of memory that the open tables keep: filter, index, range
    tombstones. A batch may be in two pieces, so all of them have to become visible together. With `by_log` no piece
    has operations of two logs. With `lost` operations whose values are missing are left out, and it is called with
    their number; without it they are corruption.
    """
    chunk = min(CHUNK, sum(log.end for log in logs))
    keyspaces = sorted(keyspaces)
    piece, held = _new_piece(keyspaces, seed, chunk), 0
    spilled, kept = 0, 0
    for log in logs:
        if by_log and not is_empty(piece):
            kept += spill(piece)
            spilled += held
            piece, held = _new_piece(keyspaces, seed, chunk), 0
        replayed = LogReplay(log.path, log.number, log.end, skip_lost=lost is not None)
        while True:
            if is_empty(piece):
                for memtable in piece.values():
                    memtable.number = log.number  # the oldest log that it needs
            for memtable in piece.values():
                for value_log in log.value_logs:
                    memtable.hold(value_log)
            before = replayed.taken
            slack = max(min(SLACK, LEAST_SLACK), SLACK - max(0, kept - spilled))
            replayed.fill(piece, seed, slack + held)
            if replayed.done:
                held += replayed.taken - before
                if lost is not None and replayed.lost:
                    lost(log, replayed.lost)
                break
            kept += spill(piece)
            spilled += held + replayed.taken - before
            piece, held = _new_piece(keyspaces, seed, chunk), 0
    return piece


def is_empty(piece: Piece) -> bool:
    return all(memtable.empty for memtable in piece.values())


def _new_piece(keyspaces: Iterable[int], seed: int, chunk: int) -> Piece:
    # Most named keyspaces have few operations in a log.
    small = min(chunk, SMALL_CHUNK)
    return {k: Memtable(seed, small, small=True) if k else Memtable(seed, chunk) for k in keyspaces}

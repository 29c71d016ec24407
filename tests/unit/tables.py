"""Helpers for the tests of the table layer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import xxhash

from lsmkv_ext.table.sst import SSTWriter

FRAME_SEED = 0x6C736D6B76667261

# key -> (value, or None for a delete; sequence number)
Rows = Mapping[bytes, tuple[bytes | None, int]]


def write_table(path: Path, rows: Rows, ranges: tuple[tuple[bytes, bytes, int], ...] = (), **options) -> dict:
    """A table with exactly these rows and range tombstones; returns the writer's summary."""
    path.unlink(missing_ok=True)
    with SSTWriter(path, **options) as writer:
        for start, stop, seq in ranges:
            writer.delete_range(start, stop, seq=seq)
        for key in sorted(rows):
            value, seq = rows[key]
            if value is None:
                writer.delete(key, seq=seq)
            else:
                writer.put(key, value, seq=seq)
    return writer.summary


def numbered(n: int, value_size: int = 20, start: int = 0) -> dict[bytes, tuple[bytes | None, int]]:
    """n rows under keys key00000000, ...: every seventh a delete."""
    return {
        b"key%08d" % i: (None if i % 7 == 3 else b"%d:" % i + b"v" * value_size, 1000 + i * 3)
        for i in range(start, start + n)
    }


def listed(rows: Rows) -> list[tuple[bytes, bytes | None, int]]:
    return [(key, *rows[key]) for key in sorted(rows)]


def section_seed(kind: int, offset: int) -> int:
    return FRAME_SEED ^ kind << 56 ^ offset


def seal(payload: bytes, raw_size: int, compression: int, kind: int, offset: int) -> bytes:
    """A section with the trailer that makes it valid there."""
    body = payload + struct.pack("<IB", raw_size & 0xFFFFFFFF, compression)
    return body + struct.pack("<I", xxhash.xxh3_64_intdigest(body, section_seed(kind, offset)) & 0xFFFFFFFF)

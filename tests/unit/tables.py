"""Helpers for the tests of the table layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lsmkv_ext.sst import SSTWriter

# key -> (value, or None for a delete; sequence number)
Rows = Mapping[bytes, tuple[bytes | None, int]]


def write_table(path: Path, rows: Rows, ranges: tuple[tuple[bytes, bytes, int], ...] = (), **options) -> dict:
    """A table with exactly these rows and range deletes; returns the writer's summary."""
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

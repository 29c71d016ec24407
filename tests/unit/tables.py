"""Helpers for the tests of the table layer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import xxhash
from hypothesis import strategies as st

from lsmkv_ext.table.sst_writer import SSTWriter

FRAME_SEED = 0x6C736D6B76667261

# key -> (value, or None for a delete; sequence number)
Rows = Mapping[bytes, tuple[bytes | None, int]]

keys = st.one_of(
    st.binary(max_size=5),
    st.text(alphabet="ab", max_size=14).map(lambda s: s.encode()),
    st.integers(0, 500).map(lambda n: b"shared/prefix/of/some/length/" + b"%05d" % n),
    st.integers(0, 200).map(lambda n: b"\xff" * 9 + bytes([n])),
    st.integers(0, 200).map(lambda n: b"\x00" * 9 + bytes([n])),
)
values = st.one_of(st.none(), st.binary(max_size=40), st.integers(1, 3000).map(lambda n: b"z" * n))
rows_by_key = st.dictionaries(keys, st.tuples(values, st.integers(0, 2**40)), max_size=120)
layouts = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 32, 128, 4096]),
        "restart_interval": st.sampled_from([1, 2, 8, 16]),
        "compression": st.sampled_from([None, "lz4", "zstd"]),
        "bits_per_key": st.sampled_from([0, 10]),
    }
)


def write_table(path: Path, rows: Rows, tombstones: tuple[tuple[bytes, bytes, int], ...] = (), **options) -> dict:
    """A table with exactly these rows and range tombstones; returns the writer's summary."""
    path.unlink(missing_ok=True)
    with SSTWriter(path, **options) as writer:
        for start, stop, seq in tombstones:
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

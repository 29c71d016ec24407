"""A minimal PNG encoder: 8-bit RGB, no row filter."""

from __future__ import annotations

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def encode(width: int, height: int, pixels: bytes) -> bytes:
    """Encode `pixels`: width * height RGB triples, row by row."""
    if len(pixels) != width * height * 3:
        raise ValueError(f"expected {width} x {height} RGB pixels, got {len(pixels)} bytes")
    stride = width * 3
    rows = b"".join(b"\0" + pixels[y * stride : (y + 1) * stride] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    )

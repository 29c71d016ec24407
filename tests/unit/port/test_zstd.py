"""zstd through its C functions and through the Python API: frames that one path writes, the other reads."""

import os
import random
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsmkv
from lsmkv_ext.port import compression, zstd

PATHS = ("c", "python")
MAGIC = struct.pack("<I", 0xFD2FB528)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def c_path_again():
    yield
    zstd.use("c")


@given(st.binary(min_size=1, max_size=3000).map(lambda b: b * 3), st.integers(-5, 9))
def test_frames_written_by_one_path_are_read_by_the_other(data, level):
    for writer in PATHS:
        zstd.use(writer)
        packed = zstd.compress(data, level)
        for reader in PATHS:
            zstd.use(reader)
            assert zstd.decompress(packed, len(data)) == data


@pytest.mark.parametrize("path", PATHS)
def test_a_frame_is_refused_for_any_other_size(path):
    zstd.use(path)
    data = bytes(range(256)) * 20
    packed = zstd.compress(data)
    for raw in (0, 1, len(data) - 1, len(data) + 1, 1 << 30):
        with pytest.raises(ValueError, match="size"):
            zstd.decompress(packed, raw)


@pytest.mark.parametrize("path", PATHS)
def test_every_truncation_is_refused(path):
    zstd.use(path)
    data = random.Random(1).randbytes(200) + b"lsmkv " * 100
    packed = zstd.compress(data)
    for n in range(len(packed)):
        with pytest.raises(ValueError):
            zstd.decompress(packed[:n], len(data))
    with pytest.raises(ValueError):
        zstd.decompress(packed + b"\0", len(data))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_is_refused_or_changes_no_size(path, flip):
    zstd.use(path)
    data = b"".join(b"record %d of %d, " % (i, i * i) for i in range(60))
    packed = zstd.compress(data)
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= flip
        try:
            assert len(zstd.decompress(bytes(damaged), len(data))) == len(data)
        except ValueError:
            continue


def frame(descriptor, fields, blocks):
    return MAGIC + bytes([descriptor]) + fields + blocks


def rle(n, last=True):
    """A block of n zeros."""
    return (n << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0"


SINGLE = 1 << 5


@pytest.mark.parametrize("path", PATHS)
def test_a_frame_made_by_hand_is_read(path):
    zstd.use(path)
    assert zstd.decompress(frame(SINGLE, bytes([100]), rle(100)), 100) == bytes(100)
    # A window of 1 KiB and a size of two bytes, which counts from 256.
    assert zstd.decompress(frame(1 << 6, b"\0" + struct.pack("<H", 44), rle(300)), 300) == bytes(300)


HOSTILE = {
    "a dictionary": (frame(SINGLE | 1, b"\x07" + bytes([100]), rle(100)), 100),
    "a reserved bit": (frame(SINGLE | 8, bytes([100]), rle(100)), 100),
    "no content size": (frame(0, b"\0", rle(100)), 100),
    "a huge window": (frame(1 << 6, b"\xff" + struct.pack("<H", 44), rle(300)), 300),
    "a window of 64 MiB": (frame(1 << 6, bytes([16 << 3]) + struct.pack("<H", 44), rle(300)), 300),
    "a huge size": (frame(SINGLE | 3 << 6, struct.pack("<Q", 1 << 62), rle(100)), 100),
    "more than it states": (frame(SINGLE, bytes([100]), rle(128 << 10)), 100),
    "less than it states": (frame(SINGLE, bytes([100]), rle(50)), 100),
    "two frames": (frame(SINGLE, bytes([50]), rle(50)) * 2, 100),
    "a frame after it": (frame(SINGLE, bytes([100]), rle(100)) + frame(SINGLE, b"\0", rle(0)), 100),
    "a skippable frame": (struct.pack("<II", 0x184D2A50, 4) + b"skip", 4),
    "a skippable frame after it": (frame(SINGLE, bytes([100]), rle(100)) + struct.pack("<II", 0x184D2A50, 0), 100),
    "no last block": (frame(SINGLE, bytes([100]), rle(100, last=False)), 100),
    "nothing": (b"", 0),
    "only the magic number": (MAGIC, 0),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_frame_is_refused(path, what):
    zstd.use(path)
    packed, raw = HOSTILE[what]
    with pytest.raises(ValueError):
        zstd.decompress(packed, raw)


def test_a_missing_zstd_says_what_to_install():
    zstd.use("missing")
    assert zstd.describe() == "missing"
    for call in (zstd.require, lambda: zstd.compress(b"abc"), lambda: zstd.decompress(b"abc", 3)):
        with pytest.raises(lsmkv.FormatError, match=r"backports\.zstd|compression\.zstd"):
            call()


def test_an_unknown_path_is_refused():
    with pytest.raises(ValueError, match="missing"):
        zstd.use("fortran")


def shown_by_a_new_process(code, **environment):
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def test_it_is_loaded_at_the_first_use():
    mapped = "any('_zstd' in line for line in open('/proc/self/maps'))"
    code = f"import lsmkv; from lsmkv_ext.port import zstd; print({mapped}); zstd.require(); print({mapped})"
    assert shown_by_a_new_process(code).split() == ["False", "True"]


def test_the_environment_forces_the_fallback():
    code = "from lsmkv_ext.port import zstd; print(zstd.describe())"
    assert shown_by_a_new_process(code, LSMKV_CODECS="python") == "python"


def test_codecs_have_the_numbers_of_the_format():
    assert compression.CODECS == {None: 0, "lz4": 1, "zstd": 2}
    assert [compression.codec_name(n) for n in (0, 1, 2, 3)] == [None, "lz4", "zstd", "unknown"]


@pytest.mark.parametrize("codec", compression.CODECS)
def test_measuring_a_codec(codec):
    pieces = [b"lsmkv " * 100, bytes(5), random.Random(2).randbytes(500), b""]
    stored, compress_ns, decompress_ns = compression.measure(codec, b"".join(pieces), [len(p) for p in pieces])
    assert (stored == 1105) if codec is None else (505 < stored < 700)
    assert compress_ns >= 0 and decompress_ns >= 0
    with pytest.raises(ValueError, match="sizes"):
        compression.measure(codec, b"abc", [2])

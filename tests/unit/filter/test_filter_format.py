"""A filter as it is stored: damaged or unknown bytes are never usable."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.filter.format import describe_filter
from lsmkv_ext.port import codecs


def stored(members=(b"a", b"b"), **options):
    bloom = BlockedBloom(100, bits_per_key=10, **options)
    bloom.add_many(members)
    blob = bloom.to_bytes()
    return blob[:64], blob[64:]


def resealed(header):
    """The header with its own checksum made right again."""
    return header[:56] + struct.pack("<Q", codecs.hash64(header[:56], 0x68656164666C7472))


def test_header_says_what_the_filter_is():
    header, body = stored(seed=9)
    described = describe_filter(header, body)
    assert described["problem"] == "ok" and described["usable"]
    assert (described["k"], described["n_blocks"], described["n_keys"], described["seed"]) == (6, 2, 2, 9)
    assert described["millibits"] == 10_000
    assert described["fill_ratio"] == pytest.approx(12 / 1024, abs=0.002)


def test_every_flipped_bit_makes_it_unusable():
    header, body = stored()
    for where, part in (("header", header), ("body", body)):
        for i in range(8 * len(part)):
            damaged = bytearray(part)
            damaged[i >> 3] ^= 1 << (i & 7)
            pair = (damaged, body) if where == "header" else (header, damaged)
            described = describe_filter(*pair)
            assert not described["usable"], (where, i)
            assert described["problem"] not in ("ok", "absent"), (where, i)


@pytest.mark.parametrize(
    ("kind", "argument", "problem"),
    [
        (0, 0, "ok"),
        (1, 9, "ok"),
        (2, 255, "ok"),
        (2, 256, "impossible geometry"),
        (3, 0x0804, "ok"),
        (3, 0xFF030201, "ok"),
        (3, 8, "ok"),
        (3, 0, "impossible geometry"),
        (3, 0x0408, "impossible geometry"),
        (3, 0x0404, "impossible geometry"),
        (3, 0x080004, "impossible geometry"),
        (3, 0x0400, "impossible geometry"),
        (4, 4, "unknown version, kind or hash"),
    ],
)
def test_kinds_of_prefixes(kind, argument, problem):
    header, body = stored()
    described = describe_filter(resealed(header[:40] + struct.pack("<II", kind, argument) + header[48:]), body)
    assert described["problem"] == problem
    assert described["usable"] == (problem == "ok")


@pytest.mark.parametrize("n", range(0, 64, 7))
def test_short_header_is_unusable(n):
    header, body = stored()
    assert describe_filter(header[:n], body)["problem"] == "bad length"


@pytest.mark.parametrize("n", (0, 1, 63, 64, 127, 129, 192))
def test_wrong_body_length_is_unusable(n):
    header, body = stored()
    assert describe_filter(header, (body * 2)[:n])["problem"] == "bad length"


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (0, b"NOPE", "unknown version, kind or hash"),
        (4, b"\x02", "unknown version, kind or hash"),
        (5, b"\x07", "unknown version, kind or hash"),
        (6, b"\x02", "unknown version, kind or hash"),
        (7, b"\x00", "impossible geometry"),
        (7, b"\x11", "impossible geometry"),
        (8, bytes(8), "impossible geometry"),
        (8, b"\xff" * 8, "bad length"),
        (8, struct.pack("<Q", 2**58 + 2), "bad length"),  # times 64 this wraps to the right size
        (32, b"\xff" * 4, "impossible geometry"),
        (40, b"\x04", "unknown version, kind or hash"),
        (40, b"\x03", "impossible geometry"),
        (40, b"\x02\0\0\0\0\x01\0\0", "impossible geometry"),
        (5, b"\x00", "bad length"),  # says "no filter" but bits follow
    ],
)
def test_sealed_but_senseless_headers_are_unusable(offset, value, problem):
    header, body = stored()
    changed = resealed(header[:offset] + value + header[offset + len(value) :])
    described = describe_filter(changed, body)
    assert not described["usable"]
    assert described["problem"] == problem


def test_absent_filter_is_no_damage():
    header, _ = stored()
    none = resealed(header[:5] + b"\0" + header[6:])
    described = describe_filter(none, b"")
    assert described["problem"] == "absent" and not described["usable"]


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_are_never_usable(header, body):
    assert not describe_filter(header, body)["usable"]

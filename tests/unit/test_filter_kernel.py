"""The kernel behind every filter, seen through `BlockedBloom` and the stored form."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmkv_ext.filter import bloom as kernel
from lsmkv_ext.port import codecs
from lsmkv_ext.filter.bloom import BlockedBloom

keys = st.binary(max_size=40)
bits = st.floats(0.5, 60, allow_nan=False)
seeds = st.integers(0, 2**64 - 1)

MULTIPLIERS = (
    0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B5, 0xE47AF04D, 0x6A09E667, 0xBB67AE85,
    0x3C6EF373, 0xA54FF53B, 0x510E527F, 0x9B05688D, 0x1F83D9AB, 0x5BE0CD19, 0xCBBB9D5D, 0x629A292B,
)  # fmt: skip


@pytest.fixture
def portable():
    kernel.use_simd(False)
    yield
    kernel.use_simd(True)


def reference_bits(members, n_blocks, k, seed):
    """The bits as docs/format.md defines them, the slow way."""
    out = bytearray(64 * n_blocks)
    for key in members:
        h = codecs.hash64(key, seed)
        block = (h * n_blocks) >> 64
        mixed = ((h * 0x9E3779B97F4A7C15) & (2**64 - 1)) >> 32
        for multiplier in MULTIPLIERS[:k]:
            bit = ((mixed * multiplier) & 0xFFFFFFFF) >> 23
            out[64 * block + (bit >> 3)] |= 1 << (bit & 7)
    return bytes(out)


@given(st.sets(keys, max_size=60), bits, seeds)
def test_bits_are_the_documented_ones(members, bits_per_key, seed):
    bloom = BlockedBloom(max(len(members), 1), bits_per_key=bits_per_key, seed=seed)
    bloom.add_many(members)
    assert bloom.to_bytes()[64:] == reference_bits(members, bloom.n_blocks, bloom.k, seed)


@given(st.sets(keys, max_size=80), st.lists(keys, max_size=80), bits, seeds)
def test_portable_and_simd_paths_answer_alike(members, others, bits_per_key, seed):
    bloom = BlockedBloom(max(len(members), 1), bits_per_key=bits_per_key, seed=seed)
    bloom.add_many(members)
    asked = [*members, *others]
    one_by_one = [key in bloom for key in asked]
    batch = bloom.test_many(asked)
    kernel.use_simd(False)
    try:
        assert bloom.test_many(asked) == batch == one_by_one
    finally:
        kernel.use_simd(True)


@given(
    st.lists(st.one_of(st.none(), st.tuples(st.sets(keys, max_size=20), bits)), max_size=32), st.lists(keys), seeds
)
def test_many_filters_asked_at_once_answer_as_one_by_one(contents, others, seed):
    filters = [
        None if c is None else BlockedBloom(max(len(c[0]), 1), bits_per_key=c[1], seed=seed) for c in contents
    ]
    for bloom, c in zip(filters, contents, strict=True):
        if bloom is not None:
            bloom.add_many(c[0])
    asked = [*others, *(key for c in contents if c for key in c[0])]
    for on in (True, False):
        kernel.use_simd(on)
        try:
            for key in asked:
                assert kernel.probe_all(filters, key) == [bloom is None or key in bloom for bloom in filters]
        finally:
            kernel.use_simd(True)


def test_filters_asked_at_once_share_a_seed():
    with pytest.raises(ValueError, match="one seed"):
        kernel.probe_all([BlockedBloom(10, 0.01, seed=1), BlockedBloom(10, 0.01, seed=2)], b"key")
    with pytest.raises(ValueError, match="at most 32"):
        kernel.probe_all([None] * 33, b"key")


@given(st.lists(keys, max_size=80), bits, seeds)
def test_portable_and_simd_paths_set_the_same_bits(members, bits_per_key, seed):
    made = []
    for on in (True, False):
        kernel.use_simd(on)
        try:
            bloom = BlockedBloom(50, bits_per_key=bits_per_key, seed=seed)
            seen = [bloom.test_and_add(key) for key in members[:20]]
            bloom.add_many(members)
            made.append((seen, bloom.count, bloom.to_bytes()))
        finally:
            kernel.use_simd(True)
    assert made[0] == made[1]


@given(st.lists(keys, max_size=200), bits, seeds, st.integers(1, 300))
def test_no_false_negative_ever(members, bits_per_key, seed, capacity):
    bloom = BlockedBloom(capacity, bits_per_key=bits_per_key, seed=seed)
    half = len(members) // 2
    bloom.add_many(members[:half])
    for key in members[half:]:
        bloom.add(key)
    assert all(bloom.test_many(members))
    assert all(key in bloom for key in members)


def test_false_positive_rate_is_the_designed_one_in_bulk(portable):
    """Seeded, so the outcome is always the same; 200 000 probes put 4 sigma at about 9 % of the rate."""
    rng = random.Random(7)
    members = [rng.randbytes(12) for _ in range(20_000)]
    probes = [rng.randbytes(13) for _ in range(200_000)]
    bloom = BlockedBloom(len(members), bits_per_key=10, seed=11)
    bloom.add_many(members)
    observed = sum(bloom.test_many(probes)) / len(probes)
    assert observed == pytest.approx(kernel.designed_fpr(10), rel=0.09)
    assert observed == pytest.approx(bloom.expected_fpr, rel=0.09)


def test_block_counts_are_64_bit():
    """Geometry far beyond what fits here: no 32-bit step on the way."""
    assert kernel.blocks_for(2**40, 10) == -(-(2**40 * 10) // 512)
    assert kernel.blocks_for(1, 10) == 1
    assert kernel.blocks_for(52, 10) == 2
    assert kernel.blocks_for(2**63, 100) == 0  # would overflow: no filter rather than a wrong one


# --- stored form ---


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
    described = kernel.describe_filter(header, body)
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
            described = kernel.describe_filter(*pair)
            assert not described["usable"], (where, i)
            assert described["problem"] not in ("ok", "absent"), (where, i)


@pytest.mark.parametrize("n", range(0, 64, 7))
def test_short_header_is_unusable(n):
    header, body = stored()
    assert kernel.describe_filter(header[:n], body)["problem"] == "bad length"


@pytest.mark.parametrize("n", (0, 1, 63, 64, 127, 129, 192))
def test_wrong_body_length_is_unusable(n):
    header, body = stored()
    assert kernel.describe_filter(header, (body * 2)[:n])["problem"] == "bad length"


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
        (40, b"\x03", "unknown version, kind or hash"),
        (40, b"\x02\0\0\0\0\x01\0\0", "impossible geometry"),
        (5, b"\x00", "bad length"),  # says "no filter" but bits follow
    ],
)
def test_sealed_but_senseless_headers_are_unusable(offset, value, problem):
    header, body = stored()
    changed = resealed(header[:offset] + value + header[offset + len(value) :])
    described = kernel.describe_filter(changed, body)
    assert not described["usable"]
    assert described["problem"] == problem


def test_absent_filter_is_no_damage():
    header, _ = stored()
    none = resealed(header[:5] + b"\0" + header[6:])
    described = kernel.describe_filter(none, b"")
    assert described["problem"] == "absent" and not described["usable"]


@settings(max_examples=300)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_are_never_usable(header, body):
    assert not kernel.describe_filter(header, body)["usable"]


# --- prefixes ---


@given(keys, keys, st.integers(1, 20), seeds)
def test_keys_that_share_the_first_n_bytes_share_the_prefix_hash(a, b, n, seed):
    first, second = (kernel.prefix_hash(1, n, key, seed) for key in (a, b))
    assert (first is None) == (len(a) < n)
    if len(a) >= n and len(b) >= n:
        assert (first == second) == (a[:n] == b[:n])


@given(keys, keys, seeds)
def test_keys_that_share_everything_up_to_the_separator_share_the_prefix_hash(a, b, seed):
    first, second = (kernel.prefix_hash(2, ord("/"), key, seed) for key in (a, b))
    assert (first is None) == (b"/" not in a)
    if first is not None and second is not None:
        assert (first == second) == (a[: a.index(b"/")] == b[: b.index(b"/")])


def test_a_prefix_is_not_the_key_of_the_same_bytes():
    assert kernel.prefix_hash(1, 4, b"user", 5) != codecs.hash64(b"user", 5)
    assert kernel.prefix_hash(0, 4, b"user", 5) is None

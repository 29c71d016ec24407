"""The kernel behind every filter, seen through `BlockedBloom`."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.filter.bloom import BlockedBloom, probe_all, use_simd
from lsmkv_ext.filter.curve import designed_fpr
from lsmkv_ext.port import codecs

keys = st.binary(max_size=40)
bits = st.floats(0.5, 60, allow_nan=False)
seeds = st.integers(0, 2**64 - 1)

MULTIPLIERS = (
    0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B5, 0xE47AF04D, 0x6A09E667, 0xBB67AE85,
    0x3C6EF373, 0xA54FF53B, 0x510E527F, 0x9B05688D, 0x1F83D9AB, 0x5BE0CD19, 0xCBBB9D5D, 0x629A292B,
)  # fmt: skip


@pytest.fixture
def portable():
    use_simd(False)
    yield
    use_simd(True)


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
    use_simd(False)
    try:
        assert bloom.test_many(asked) == batch == one_by_one
    finally:
        use_simd(True)


@given(st.lists(st.one_of(st.none(), st.tuples(st.sets(keys, max_size=20), bits)), max_size=32), st.lists(keys), seeds)
def test_many_filters_asked_at_once_answer_as_one_by_one(contents, others, seed):
    filters = [None if c is None else BlockedBloom(max(len(c[0]), 1), bits_per_key=c[1], seed=seed) for c in contents]
    for bloom, c in zip(filters, contents, strict=True):
        if bloom is not None:
            bloom.add_many(c[0])
    asked = [*others, *(key for c in contents if c for key in c[0])]
    for on in (True, False):
        use_simd(on)
        try:
            for key in asked:
                assert probe_all(filters, key) == [bloom is None or key in bloom for bloom in filters]
        finally:
            use_simd(True)


def test_filters_asked_at_once_share_a_seed():
    with pytest.raises(ValueError, match="one seed"):
        probe_all([BlockedBloom(10, 0.01, seed=1), BlockedBloom(10, 0.01, seed=2)], b"key")
    with pytest.raises(ValueError, match="at most 32"):
        probe_all([None] * 33, b"key")


@given(st.lists(keys, max_size=80), bits, seeds)
def test_portable_and_simd_paths_set_the_same_bits(members, bits_per_key, seed):
    made = []
    for on in (True, False):
        use_simd(on)
        try:
            bloom = BlockedBloom(50, bits_per_key=bits_per_key, seed=seed)
            seen = [bloom.test_and_add(key) for key in members[:20]]
            bloom.add_many(members)
            made.append((seen, bloom.count, bloom.to_bytes()))
        finally:
            use_simd(True)
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
    assert observed == pytest.approx(designed_fpr(10), rel=0.09)
    assert observed == pytest.approx(bloom.expected_fpr, rel=0.09)

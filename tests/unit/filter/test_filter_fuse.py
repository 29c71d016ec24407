"""The kernel of fuse filters, beside the definition in docs/format.md."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmkv_ext.filter import fuse

WORD = 2**64 - 1
widths = st.integers(4, 16)
hash_values = st.one_of(st.integers(0, WORD), st.sampled_from([0, 1, WORD, 1 << 63]))


@pytest.fixture(autouse=True)
def no_hooks():
    yield
    fuse.fail_next(0)


def mix(x):
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD & WORD
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53 & WORD
    return x ^ (x >> 33)


def reference_probe(geometry, bits, h):
    """The probe as docs/format.md defines it, the slow way."""
    c, s, w, attempt, positions = geometry
    array = int.from_bytes(bits, "little")
    g = mix((h + attempt * 0x9E3779B97F4A7C15) & WORD)
    low = (1 << s) - 1
    p0 = (g * (c << s)) >> 64
    p1 = (p0 + (1 << s)) ^ ((g >> 18) & low)
    p2 = (p0 + (2 << s)) ^ (g & low)
    p3 = (p0 + (3 << s)) ^ ((g >> 36) & low)
    mask = (1 << w) - 1
    value = 0
    for slot in (p0, p1, p2, p3)[:positions]:
        value ^= array >> (slot * w) & mask
    return value == (g ^ (g >> 32)) & mask


def random_hashes(n, seed=1):
    rng = random.Random(seed)
    return [rng.getrandbits(64) for _ in range(n)]


@given(st.lists(hash_values, max_size=60), st.lists(hash_values, max_size=40), widths)
def test_probes_are_the_documented_ones(members, others, width):
    geometry, n, bits = fuse.build_fuse(members, width, 100)
    assert n == len(set(members))
    assert len(bits) % 64 == 0
    single, batch = fuse.probe_fuse(geometry, bits, members + others)
    assert single == batch == [reference_probe(geometry, bits, h) for h in members + others]
    assert all(single[: len(members)])


@settings(max_examples=50)
@given(st.integers(0, 3000), widths, st.integers(0, WORD))
def test_no_false_negative_ever(n, width, seed):
    members = random_hashes(n, seed)
    geometry, distinct, bits = fuse.build_fuse(members, width, 100)
    assert distinct == n
    single, batch = fuse.probe_fuse(geometry, bits, members)
    assert all(single)
    assert all(batch)


@given(st.lists(hash_values, min_size=1, max_size=50), st.integers(2, 600), widths)
def test_repeated_hashes_are_one_key(members, times, width):
    """Also more often than a slot's counter can count."""
    geometry, n, bits = fuse.build_fuse(members * times, width, 100)
    assert n == len(set(members))
    assert (geometry, n, bits) == fuse.build_fuse(sorted(set(members)), width, 100)
    assert all(fuse.probe_fuse(geometry, bits, members)[0])


@pytest.mark.parametrize(("n", "positions"), [(19_999, 3), (20_000, 4), (200_000, 4), (200_001, 3)])
def test_small_tables_have_four_positions(n, positions):
    members, others = random_hashes(n), random_hashes(200, 2)
    geometry, _, bits = fuse.build_fuse(members, 8)
    assert geometry[4] == positions
    single, batch = fuse.probe_fuse(geometry, bits, members)
    assert all(single)
    assert all(batch)
    asked = members[:100] + others
    assert [reference_probe(geometry, bits, h) for h in asked] == fuse.probe_fuse(geometry, bits, asked)[1]


def test_a_repeated_hash_takes_no_attempt():
    members = random_hashes(30_000)
    geometry, n, bits = fuse.build_fuse([*members, *members[:100]], 8, 1)
    assert geometry[3] == 0
    assert n == len(members)
    assert (geometry, n, bits) == fuse.build_fuse(members, 8, 1)


@pytest.mark.parametrize("n", [19_999, 74_280])
def test_fewer_hashes_that_would_need_more_slots(n):
    """The room is that for all hashes, and repeated ones are found later."""
    assert fuse.slots_for(n) > fuse.slots_for(n + 1)
    members = random_hashes(n)
    geometry, distinct, bits = fuse.build_fuse([*members, members[0]], 16)
    assert distinct == n
    assert len(bits) <= fuse.slots_for(n + 1) * 2 + 64
    assert all(fuse.probe_fuse(geometry, bits, members)[0])


@pytest.mark.parametrize("n", [15_000, 40_000])
@pytest.mark.parametrize("width", [4, 7, 8, 11, 12, 16])
def test_rate_is_that_of_the_width(width, n):
    members = random_hashes(n)
    geometry, _, bits = fuse.build_fuse(members, width)
    others = random_hashes(400_000, 2)
    hits = sum(fuse.probe_fuse(geometry, bits, others)[1])
    expected = len(others) / 2**width
    assert abs(hits - expected) < 4.5 * expected**0.5


@pytest.mark.parametrize(("n", "width", "limit"), [
    (1_000_000, 8, 9.1), (1_000_000, 4, 4.6), (1_000_000, 12, 13.7),
    (100_000, 8, 9.1 * 1.05), (100_000, 4, 4.6 * 1.05), (100_000, 12, 13.7 * 1.05), (20_000, 8, 9.5),
    (40_000, 8, 9.25), (100_000, 8, 9.0), (200_000, 8, 8.9),
])  # fmt: skip
def test_bits_per_key(n, width, limit):
    assert fuse.slots_for(n) * width / n <= limit


def test_a_failed_attempt_gives_other_positions():
    members = random_hashes(25_000)
    first = fuse.build_fuse(members, 8)
    fuse.fail_next(2)
    third = fuse.build_fuse(members, 8)
    assert (first[0][3], third[0][3]) == (0, 2)
    assert first[2] != third[2]
    assert all(fuse.probe_fuse(third[0], third[2], members)[0])
    assert reference_probe(third[0], third[2], members[0])


def test_the_attempts_are_limited():
    members = random_hashes(100)
    fuse.fail_next(3)
    assert fuse.build_fuse(members, 8) is None
    assert fuse.build_fuse(members, 8, 100) is not None


def test_many_sizes_are_built_within_three_attempts():
    """The smallest tables that get a fuse filter, and sizes around changes of the segment length."""
    for i, n in enumerate([20_000, 20_001, 22_222, 27_000, 34_000, 50_000, 77_000, 100_000, 130_000]):
        for width in (4, 16):
            assert fuse.build_fuse(random_hashes(n, i), width) is not None


def test_an_empty_filter_answers_at_the_rate_of_its_width():
    geometry, n, bits = fuse.build_fuse([], 8)
    assert n == 0
    assert sum(fuse.probe_fuse(geometry, bits, random_hashes(10_000))[0]) < 100


@pytest.mark.parametrize(("bits", "width"), [
    (0, 0), (4.4, 0), (4.5, 4), (5.6, 4), (8.9, 7), (9, 8), (10, 8), (12, 10), (13.5, 12), (18, 16), (64, 16),
])  # fmt: skip
def test_width_for_bits(bits, width):
    assert fuse.width_for(bits) == width


def test_wrong_arguments():
    for width in (3, 17):
        with pytest.raises(ValueError, match="4 to 16"):
            fuse.build_fuse([1], width)
    with pytest.raises(ValueError, match="does not fit"):
        fuse.probe_fuse((1, 4, 8, 0, 3), b"\0" * 64 * 3, [1])
    with pytest.raises(ValueError, match="negative"):
        fuse.width_for(-1)

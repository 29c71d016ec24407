"""`BlockedBloom`, the kernel as a public class."""

import math
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.filter.bloom import BlockedBloom

keys = st.binary(max_size=30)


def numbered(n, start=0):
    return [b"key%09d" % i for i in range(start, start + n)]


def filled(n=1000, **options):
    bloom = BlockedBloom(n, **(options or {"bits_per_key": 10}))
    bloom.add_many(numbered(n))
    return bloom


def test_sized_by_rate_or_by_bits():
    by_rate = BlockedBloom(10_000, 0.01)
    assert by_rate.designed_fpr <= 0.01
    assert by_rate.bits_per_key == pytest.approx(9.92, abs=0.05)
    by_bits = BlockedBloom(10_000, bits_per_key=12.5)
    assert by_bits.bits_per_key == 12.5
    assert by_bits.nbytes == 64 * by_bits.n_blocks == 64 * math.ceil(10_000 * 12.5 / 512)
    assert by_bits.capacity >= 10_000
    assert BlockedBloom(10_000).bits_per_key == by_rate.bits_per_key


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0,), {}, ValueError, "capacity"),
        ((-5,), {}, ValueError, "capacity"),
        ((2**57,), {}, ValueError, "capacity"),
        ((1.5,), {}, TypeError, "capacity"),
        ((True,), {}, TypeError, "capacity"),
        (("10",), {}, TypeError, "capacity"),
        ((10, 0), {}, ValueError, "fpr"),
        ((10, 1), {}, ValueError, "fpr"),
        ((10, math.nan), {}, ValueError, "fpr"),
        ((10,), {"bits_per_key": 0}, ValueError, "bits_per_key"),
        ((10,), {"bits_per_key": -1}, ValueError, "bits_per_key"),
        ((10,), {"bits_per_key": 101}, ValueError, "bits_per_key"),
        ((10,), {"bits_per_key": math.inf}, ValueError, "bits_per_key"),
        ((10, 0.01), {"bits_per_key": 10}, TypeError, "not both"),
        ((10,), {"seed": -1}, ValueError, "seed"),
        ((10,), {"seed": 2**64}, ValueError, "seed"),
        ((10,), {"seed": "x"}, TypeError, "seed"),
        ((2**56,), {"bits_per_key": 100}, MemoryError, "no memory"),
    ],
)
def test_bad_parameters_are_named(arguments, options, error, message):
    with pytest.raises(error, match=message):
        BlockedBloom(*arguments, **options)


@pytest.mark.parametrize("key", ("text", 5, None))
def test_only_bytes_like_keys(key):
    bloom = BlockedBloom(10)
    for call in (bloom.add, bloom.__contains__, bloom.test_and_add, lambda k: bloom.add_many([b"x", k])):
        with pytest.raises(TypeError):
            call(key)
    with pytest.raises(TypeError):
        bloom.test_many([key])


@given(keys)
def test_every_bytes_like_form_is_the_same_key(key):
    bloom = BlockedBloom(10)
    bloom.add(bytearray(key))
    assert key in bloom and memoryview(key) in bloom
    assert bloom.test_many([key, bytearray(key), memoryview(key)]) == [True] * 3


def test_test_and_add_says_whether_it_was_there():
    bloom = BlockedBloom(100)
    assert bloom.test_and_add(b"ant") is False
    assert bloom.test_and_add(b"ant") is True
    assert bloom.count == 1


def test_batches_take_any_iterable_and_are_exact_across_chunks():
    members = numbered(40_000)
    bloom = BlockedBloom(len(members), bits_per_key=16)
    bloom.add_many(iter(members))
    assert bloom.test_many(key for key in members) == [True] * len(members)
    single = BlockedBloom(len(members), bits_per_key=16)
    for key in members:
        single.add(key)
    assert single == bloom
    assert bloom.test_many([]) == []


def test_an_error_in_the_iterable_comes_through():
    def broken():
        yield b"x"
        raise KeyError("from the iterable")

    with pytest.raises(KeyError, match="from the iterable"):
        BlockedBloom(10).add_many(broken())


def test_counts_and_fill():
    bloom = filled(5000)
    assert bloom.count == pytest.approx(5000, rel=0.02)
    assert bloom.approximate_count == pytest.approx(5000, rel=0.03)
    assert 0.40 < bloom.fill_ratio < 0.50
    assert bloom.expected_fpr == pytest.approx(bloom.designed_fpr, rel=0.15)
    assert not bloom.saturated
    bloom.add_many(numbered(2000, start=10_000))
    assert bloom.saturated
    assert bloom.expected_fpr > 1.5 * bloom.designed_fpr


def test_full_filter_still_answers():
    bloom = BlockedBloom(1, bits_per_key=1)
    bloom.add_many(numbered(20_000))
    assert bloom.fill_ratio == 1
    assert bloom.expected_fpr == 1
    assert bloom.saturated
    assert b"never added" in bloom


def test_clear_forgets():
    bloom = filled()
    bloom.clear()
    assert (bloom.count, bloom.fill_ratio, bloom.approximate_count) == (0, 0, 0)
    assert not any(bloom.test_many(numbered(1000)))


@given(st.sets(keys, max_size=50), st.sets(keys, max_size=50))
def test_merge_is_the_union(left, right):
    a, b, both = (BlockedBloom(100, bits_per_key=10, seed=3) for _ in range(3))
    a.add_many(left)
    b.add_many(right)
    both.add_many(left | right)
    a.merge(b)
    assert a == both
    assert all(a.test_many(left | right))


def test_merge_estimates_the_count_and_merging_itself_changes_nothing():
    a = filled(1000)
    before = a.to_bytes()
    a.merge(a)
    assert a.to_bytes() == before
    b = BlockedBloom(1000, bits_per_key=10)
    b.add_many(numbered(1000, start=500))
    a.merge(b)
    assert a.count == pytest.approx(1500, rel=0.06)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (BlockedBloom(1000, bits_per_key=10, seed=1), "seed"),
        (BlockedBloom(1000, bits_per_key=11), "bits_per_key"),
        (BlockedBloom(2000, bits_per_key=10), "n_blocks"),
    ],
)
def test_merge_refuses_other_parameters(other, named):
    bloom = filled(1000)
    before = bloom.to_bytes()
    with pytest.raises(ValueError, match=named):
        bloom.merge(other)
    assert bloom.to_bytes() == before
    with pytest.raises(TypeError):
        bloom.merge(None)


@given(st.sets(keys, max_size=80), st.floats(1, 40), st.integers(0, 2**64 - 1))
def test_round_trip(members, bits_per_key, seed):
    bloom = BlockedBloom(50, bits_per_key=bits_per_key, seed=seed)
    bloom.add_many(members)
    again = BlockedBloom.from_bytes(bloom.to_bytes())
    assert again == bloom
    assert again.to_bytes() == bloom.to_bytes()
    for name in ("seed", "k", "count", "capacity", "bits_per_key"):
        assert getattr(again, name) == getattr(bloom, name)
    assert all(again.test_many(members))
    assert BlockedBloom.from_bytes(memoryview(bytearray(bloom.to_bytes()))) == bloom


def test_copy_is_independent():
    bloom = filled(100)
    twin = bloom.copy()
    twin.add_many(numbered(100, start=1000))
    assert twin != bloom
    assert bloom == filled(100)


def test_documented_vector():
    """The example of docs/format.md, byte for byte."""
    bloom = BlockedBloom(50, bits_per_key=10, seed=42)
    bloom.add_many([b"alpha", b"beta", b""])
    blob = bloom.to_bytes()
    assert blob[:8].hex() == "4c4b564601010106"
    assert blob[8:48].hex() == VECTOR_FIELDS
    assert [i for i in range(512) if blob[64 + (i >> 3)] >> (i & 7) & 1] == VECTOR_BITS
    assert blob[48:64].hex() == VECTOR_SUMS


VECTOR_FIELDS = "010000000000000003000000000000002a0000000000000010270000000000000000000000000000"
VECTOR_BITS = [11, 61, 87, 150, 183, 189, 190, 192, 256, 295, 323, 329, 338, 341, 414, 430, 446, 490]
VECTOR_SUMS = "1679feabcef543c8c7d6f3e2cf3dec74"


@pytest.mark.parametrize("n", (0, 1, 63, 64, 65, 100, 127))
def test_truncated_blobs_are_refused(n):
    blob = BlockedBloom(50).to_bytes()
    with pytest.raises(CorruptionError, match="not a filter"):
        BlockedBloom.from_bytes(blob[:n])


def test_flipped_blobs_are_refused():
    blob = filled(50).to_bytes()
    for i in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[i >> 3] ^= 1 << (i & 7)
        with pytest.raises(CorruptionError, match="not a filter"):
            BlockedBloom.from_bytes(damaged)


def test_trailing_bytes_are_refused():
    with pytest.raises(CorruptionError):
        BlockedBloom.from_bytes(filled(50).to_bytes() + b"\0")


def test_writers_in_several_threads_lose_nothing():
    """Two batches of one block each: without the lock, two read-modify-writes of one byte lose bits."""
    for _ in range(20):
        bloom = BlockedBloom(1, bits_per_key=1)
        wide = BlockedBloom(60_000, bits_per_key=8)
        parts = [numbered(15_000, start=15_000 * i) for i in range(4)]

        def work(part, bloom=bloom, wide=wide):
            bloom.add_many(part[:30])
            wide.add_many(part)

        threads = [threading.Thread(target=work, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(wide.test_many(key for part in parts for key in part))
        assert all(bloom.test_many(key for part in parts for key in part[:30]))


@pytest.mark.parametrize("batch", ["add_many", "test_many"])
def test_batches_release_the_gil(batch):
    """With a switch interval of minutes no other thread runs unless the batch itself releases the GIL. The keys are
    long: on a single processor the GIL must stay free long enough to be taken. On a busy one that may take several
    batches."""
    bloom = BlockedBloom(10)
    keys = [bytes(128 << 10)] * 8192
    running, ticks = True, 0

    def count():
        nonlocal ticks
        while running:
            ticks += 1
            time.sleep(0)

    other = threading.Thread(target=count)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        other.start()
        before_batch = ticks
        for _ in range(50):
            getattr(bloom, batch)(keys)
            if ticks > before_batch:
                break
    finally:
        running = False
        sys.setswitchinterval(before)
        other.join()
    assert ticks > before_batch


def test_made_once_and_valid_before_init():
    bloom = BlockedBloom(10)
    with pytest.raises(TypeError, match="made once"):
        bloom.__init__(10)
    bare = BlockedBloom.__new__(BlockedBloom)
    assert b"x" not in bare
    bare.add(b"x")
    assert b"x" in bare


def test_equality_and_text():
    assert filled(100) == filled(100)
    assert filled(100) != BlockedBloom(100, bits_per_key=10)
    assert filled(100) != "a filter"
    with pytest.raises(TypeError):
        hash(filled(100))
    assert "capacity=" in repr(filled(100)) and "bits_per_key=10" in repr(filled(100))
    assert filled(100).__sizeof__() > filled(100).nbytes

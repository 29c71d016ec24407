"""`ScalableBloom`, `CountingBloom` and `RotatingBloom`."""

import math
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import lsmkv
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.filter import family_format
from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.filter.counting import CountingBloom
from lsmkv_ext.filter.rotating import RotatingBloom
from lsmkv_ext.filter.scalable import ScalableBloom

KINDS = [CountingBloom, RotatingBloom, ScalableBloom]
keys = st.binary(max_size=12)


def numbered(n, start=0):
    return [b"key%09d" % i for i in range(start, start + n)]


def wrong_rate(bloom, n=50_000):
    return sum(bloom.test_many(b"absent%d" % i for i in range(n))) / n


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0,), {}, ValueError, "capacity"),
        ((2**57,), {}, ValueError, "capacity"),
        ((1.5,), {}, TypeError, "capacity"),
        ((True,), {}, TypeError, "capacity"),
        ((10, 0), {}, ValueError, "fpr"),
        ((10, 1), {}, ValueError, "fpr"),
        ((10, math.nan), {}, ValueError, "fpr"),
        ((10,), {"seed": -1}, ValueError, "seed"),
        ((10,), {"seed": 2**64}, ValueError, "seed"),
        ((10,), {"seed": "x"}, TypeError, "seed"),
        ((2**56,), {}, MemoryError, "no memory"),
    ],
)
def test_bad_parameters_are_named(kind, arguments, options, error, message):
    with pytest.raises(error, match=message):
        kind(*arguments, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_made_once_and_of_no_use_before_init(kind):
    with pytest.raises(TypeError, match="made once"):
        kind(10).__init__(10)
    bare = kind.__new__(kind)
    for use in (lambda: bare.add(b"a"), lambda: bare.add_many([b"a"]), bare.to_bytes, bare.clear, bare.digest):
        with pytest.raises(ValueError, match="not initialized"):
            use()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ("text", 5, None))
def test_only_bytes_like_keys(kind, key):
    bloom = kind(10)
    for call in (bloom.add, bloom.__contains__, bloom.test_and_add, lambda k: bloom.add_many([b"x", k])):
        with pytest.raises(TypeError):
            call(key)


@pytest.mark.parametrize("kind", KINDS)
@given(st.sets(keys, max_size=60), st.integers(1, 40))
def test_no_false_negatives_and_a_round_trip(kind, members, capacity):
    # RotatingBloom keeps the last `capacity` keys.
    bloom = kind(max(capacity, len(members), 1), 0.02, seed=5)
    half = sorted(members)[: len(members) // 2]
    bloom.add_many(half)
    for key in members - set(half):
        bloom.add(bytearray(key))
    again = kind.from_bytes(bloom.to_bytes())
    for one in (bloom, again, kind.from_bytes(bloom.to_bytes(compress=True))):
        assert all(one.test_many(members)) and all(key in one for key in members)
    assert again == bloom and again.to_bytes() == bloom.to_bytes() and again.digest() == bloom.digest()
    assert (again.count, again.capacity, again.designed_fpr) == (bloom.count, bloom.capacity, bloom.designed_fpr)


@pytest.mark.parametrize("kind", KINDS)
def test_figures(kind):
    bloom = kind(5000, 0.01)
    assert (bloom.count, bloom.fill_ratio, bloom.expected_fpr, bloom.saturated) == (0, 0, 0, False)
    bloom.add_many(numbered(5000))
    assert bloom.count == pytest.approx(5000, rel=0.02)
    assert bloom.approximate_count == pytest.approx(5000, rel=0.04)
    assert 0.15 < bloom.fill_ratio < 0.55
    assert bloom.expected_fpr <= 0.0101 and not bloom.saturated
    assert wrong_rate(bloom) == pytest.approx(bloom.expected_fpr, rel=0.3)
    assert type(bloom).__name__ in repr(bloom) and bloom.nbytes > 5000
    assert bloom != kind(5000, 0.01) and bloom != b"a filter"
    with pytest.raises(TypeError):
        hash(bloom)
    bloom.clear()
    assert bloom == kind(5000, 0.01) and bloom.count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_test_and_add_says_whether_it_was_there(kind):
    bloom = kind(100)
    assert bloom.test_and_add(b"ant") is False
    assert bloom.test_and_add(b"ant") is True


def blobs():
    for kind in (*KINDS, BlockedBloom):
        bloom = kind(20, 0.05)
        bloom.add_many(numbered(20))
        yield kind, bloom.to_bytes(), numbered(20)
        yield kind, kind(3000).to_bytes(compress=True), []


@pytest.mark.parametrize(("kind", "blob", "_"), list(blobs()))
def test_every_flipped_bit_is_refused(kind, blob, _):
    for i in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[i >> 3] ^= 1 << (i & 7)
        with pytest.raises(CorruptionError, match="not a filter"):
            kind.from_bytes(damaged)


@pytest.mark.parametrize(("kind", "blob", "_"), list(blobs()))
def test_cut_and_extended_blobs_are_refused(kind, blob, _):
    for n in {0, 1, 55, 56, 63, 64, 65, len(blob) // 2, len(blob) - 1}:
        with pytest.raises(CorruptionError, match="not a filter"):
            kind.from_bytes(blob[:n])
    with pytest.raises(CorruptionError, match="not a filter"):
        kind.from_bytes(blob + b"\0")
    for other in KINDS:
        if other is not kind:
            with pytest.raises(CorruptionError, match=r"unknown version, kind or hash|bad checksum"):
                other.from_bytes(blob)


def test_compressed_bytes_of_a_wrong_size_are_refused():
    """Sealed by whoever made them: the checksums are right."""
    import zlib

    blob = BlockedBloom(10).to_bytes()
    for size in (0, len(blob) - 1, len(blob) + 1, 2**63):
        packed = family_format.encode(family_format.KIND_COMPRESSED, 0, size, 0, bytes(16), zlib.compress(blob))
        with pytest.raises((CorruptionError, MemoryError, OverflowError)):
            BlockedBloom.from_bytes(packed)
    for payload in (b"", b"no zlib", zlib.compress(blob)[:-1], zlib.compress(blob) + b"x"):
        packed = family_format.encode(family_format.KIND_COMPRESSED, 0, len(blob), 0, bytes(16), payload)
        with pytest.raises(CorruptionError):
            BlockedBloom.from_bytes(packed)


def test_documented_vectors():
    """The examples of docs/format.md, byte for byte."""
    for name, bloom in (
        ("counting", CountingBloom(50, bits_per_key=10, seed=42)),
        ("scalable", ScalableBloom(50, 0.05, seed=42)),
        ("rotating", RotatingBloom(50, 0.05, window=60, clock=lambda: 7.0, seed=42)),
    ):
        bloom.add_many([b"alpha", b"beta", b""])
        blob = bloom.to_bytes()
        assert blob[:64].hex() == HEADERS[name], name
    counters = CountingBloom(50, bits_per_key=10, seed=42)
    counters.add_many([b"alpha", b"beta", b""])
    cells = counters.to_bytes()[64:]
    values = [cells[b >> 1] >> 4 * (b & 1) & 15 for b in range(512)]
    vector = BlockedBloom(50, bits_per_key=10, seed=42)
    vector.add_many([b"alpha", b"beta", b""])
    assert [b for b in range(512) if values[b]] == [
        b for b in range(512) if vector.to_bytes()[64 + b // 8] >> b % 8 & 1
    ]
    assert set(values) == {0, 1}


HEADERS = {
    "counting": "4c4b564601030106000100000000000003000000000000002a000000000000000100000000000000"
    "10270000000000008683c83f32d15e5179f02b251ca2301a",
    "scalable": "4c4b564601040100a00000000000000003000000000000002a000000000000000000000000000000"
    "00000000000000006af320cdd0359f990328a235cade8e32",
    "rotating": "4c4b564601050100380100000000000003000000000000002a000000000000000000000000000000"
    "0000000000000000d292bff74546c35825110d8b3e14b6d4",
}


# --- CountingBloom --------------------------------------------------------------------------------------------------


class CountingMachine(RuleBasedStateMachine):
    """Against a multiset. One block, so that counters are shared and get stuck."""

    def __init__(self):
        super().__init__()
        self.bloom, self.model = CountingBloom(30, bits_per_key=10), Counter()

    @rule(key=st.integers(0, 40), times=st.integers(1, 20))
    def add(self, key, times):
        self.bloom.add_many([b"%d" % key] * times)
        self.model[key] += times

    @rule(key=st.integers(0, 40))
    def remove(self, key):
        if self.model[key]:
            self.bloom.remove(b"%d" % key)
            self.model[key] -= 1
        elif b"%d" % key not in self.bloom:
            with pytest.raises(KeyError):
                self.bloom.remove(b"%d" % key)
            assert self.bloom.discard(b"%d" % key) is False

    @invariant()
    def no_false_negatives(self):
        present = [b"%d" % key for key, times in self.model.items() if times]
        assert all(self.bloom.test_many(present))
        assert all(self.bloom.to_bloom().test_many(present))
        assert self.bloom.count == sum(self.model.values())

    @invariant()
    def forgets_what_no_counter_is_stuck_for(self):
        if not any(self.model.values()) and not self.bloom.stuck_counters:
            assert self.bloom.fill_ratio == 0


TestCountingMachine = CountingMachine.TestCase
TestCountingMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_removed_keys_are_forgotten():
    online = CountingBloom(2000, 0.01)
    online.add_many(numbered(2000))
    for key in numbered(1000):
        online.remove(key)
    assert all(online.test_many(numbered(1000, start=1000)))
    assert sum(online.test_many(numbered(1000))) < 50
    assert online.count == 1000


def test_counters_that_overflow_stick_and_are_counted():
    online = CountingBloom(1000, bits_per_key=10)
    online.add_many([b"ant"] * 14)
    assert online.stuck_counters == 0
    online.add(b"ant")
    assert online.stuck_counters == online.k
    online.add_many([b"ant"] * 1000)
    assert online.stuck_counters == online.k
    for _ in range(1015):
        online.remove(b"ant")
    assert b"ant" in online and online.count == 0
    assert CountingBloom.from_bytes(online.to_bytes()).stuck_counters == online.k
    online.clear()
    assert b"ant" not in online and online.stuck_counters == 0


@given(st.lists(keys, max_size=60), st.lists(keys, max_size=60))
def test_counting_merge_is_the_sum(left, right):
    a, b, both = (CountingBloom(20, bits_per_key=8, seed=3) for _ in range(3))
    a.add_many(left)
    b.add_many(right)
    both.add_many(left + right)
    a.merge(b)
    assert a == both and a.count == both.count and a.stuck_counters == both.stuck_counters


def test_counting_is_a_bloom_filter_of_the_present_keys():
    online, plain = CountingBloom(500, 0.01, seed=8), BlockedBloom(500, 0.01, seed=8)
    online.add_many(numbered(500))
    plain.add_many(numbered(400))
    for key in numbered(100, start=400):
        online.remove(key)
    assert online.to_bloom() == plain
    assert online.nbytes == 4 * plain.nbytes
    plain.merge(online.to_bloom())


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=20)
def test_counting_works_on_all_counters_as_on_one(seed, times):
    """Merge, clear and the figures, where counters of every value lie side by side."""
    a, b, both = (CountingBloom(60, bits_per_key=8, seed=seed) for _ in range(3))
    left, right = numbered(150 * times), numbered(200, start=100)
    a.add_many(left)
    b.add_many(right)
    both.add_many(left + right)
    assert both.stuck_counters > 0 or times < 3
    a.merge(b)
    assert a == both and a.stuck_counters == both.stuck_counters
    bloom = both.to_bloom()
    assert (both.fill_ratio, both.approximate_count) == (bloom.fill_ratio, bloom.approximate_count)
    assert (both.expected_fpr, both.saturated) == (bloom.expected_fpr, bloom.saturated)
    plain = BlockedBloom(60, bits_per_key=8, seed=seed)
    plain.add_many(left + right)
    assert bloom == plain
    both.clear()
    assert both == CountingBloom(60, bits_per_key=8, seed=seed) and both.stuck_counters == both.count == 0


def test_counting_merges_and_clears_piece_by_piece():
    """Of a filter of several pieces, other threads change one that has been worked on or has not: nothing is lost."""
    a, b = (CountingBloom(300_000, bits_per_key=10) for _ in range(2))
    keys, removed, added = numbered(1000), numbered(1000, start=1000), numbered(1000, start=2000)
    a.add_many(removed)
    b.add_many(keys)
    merge = threading.Thread(target=a.merge, args=(b,))
    merge.start()
    for gone, new in zip(removed, added, strict=True):
        a.remove(gone)
        a.add(new)
    merge.join()
    both = CountingBloom(300_000, bits_per_key=10)
    both.add_many(keys + added)
    assert a == both and a.count == 2000
    a.clear()
    assert a == CountingBloom(300_000, bits_per_key=10)


@pytest.mark.parametrize("options", [{"seed": 1}, {"bits_per_key": 11}, {"capacity": 2000}])
def test_counting_merge_refuses_other_parameters(options):
    bloom = CountingBloom(1000, bits_per_key=10)
    with pytest.raises(ValueError, match="cannot merge"):
        bloom.merge(CountingBloom(**{"capacity": 1000, "bits_per_key": 10, **options}))
    with pytest.raises(TypeError):
        bloom.merge(BlockedBloom(1000))


# --- ScalableBloom --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.05, 0.01, 0.001])
def test_scalable_keeps_its_total_rate(rate):
    seen = ScalableBloom(100, rate)
    total = 0
    for step in (50, 500, 5000, 50_000):
        seen.add_many(numbered(step, start=total))
        total += step
        assert all(seen.test_many(numbered(total)))
        assert seen.expected_fpr <= rate and not seen.saturated
    assert seen.n_layers == 10 and seen.capacity >= total * 0.99
    assert wrong_rate(seen, 100_000) < rate * 1.1


def test_scalable_does_not_grow_by_keys_that_it_has():
    seen = ScalableBloom(1000, 0.01)
    for _ in range(5):
        seen.add_many(numbered(900))
        for key in numbered(900):
            seen.add(key)
    assert seen.n_layers == 1 and seen.count <= 900


def test_one_by_one_and_many_make_the_same_filter():
    one, many = ScalableBloom(10, 0.01), ScalableBloom(10, 0.01)
    for key in numbered(3000):
        one.add(key)
    for n in range(0, 3000, 500):
        many.add_many(numbered(500, start=n))
    assert one.n_layers == many.n_layers and abs(one.count - many.count) < 10


def test_scalable_blobs_with_other_layers_are_refused():
    seen = ScalableBloom(10, 0.01)
    seen.add_many(numbered(100))
    blob = family_format.decode(seen.to_bytes(), family_format.KIND_SCALABLE)
    head, *layers = (bytes(part) for part in family_format.unpack(blob.payload))

    def sealed(*parts):
        payload = family_format.pack(list(parts))
        return family_format.encode(family_format.KIND_SCALABLE, 0, blob.count, blob.seed, blob.fields, payload)

    assert ScalableBloom.from_bytes(sealed(head, *layers)) == seen
    for parts in ((head,), (), (head, *layers[1:]), (head, *layers[::-1]), (head[:-1], *layers), (head, *layers * 20)):
        with pytest.raises(CorruptionError, match="not a filter"):
            ScalableBloom.from_bytes(sealed(*parts))
    for capacity, rate in ((0, 0.01), (2**57, 0.01), (2**56, 0.01), (10, 0.0), (10, math.nan), (10, 1e-300)):
        with pytest.raises(CorruptionError, match="not a filter"):
            ScalableBloom.from_bytes(sealed(family_format.struct.pack("<Qd", capacity, rate), *layers))


# --- RotatingBloom --------------------------------------------------------------------------------------------------


class RotatingMachine(RuleBasedStateMachine):
    """Against the time at which each key was last added."""

    WINDOW = 10.0

    def __init__(self):
        super().__init__()
        self.now, self.last = 100.0, {}
        self.bloom = RotatingBloom(500, 0.0001, window=self.WINDOW, clock=lambda: self.now)

    @rule(key=st.integers(0, 30), many=st.booleans())
    def add(self, key, many):
        if many:
            self.bloom.add_many([b"%d" % key])
        else:
            self.bloom.add(b"%d" % key)
        self.last[key] = max(self.now, *self.last.values(), 0) if self.last else self.now

    @rule(seconds=st.floats(0, 25))
    def wait(self, seconds):
        self.now += seconds

    @rule(seconds=st.floats(0, 5))
    def clock_runs_back(self, seconds):
        before = self.now
        _ = self.bloom.count
        self.now -= seconds
        _ = b"x" in self.bloom
        self.now = before

    @rule()
    def save(self):
        self.bloom = RotatingBloom.from_bytes(self.bloom.to_bytes(), clock=lambda: self.now)

    @invariant()
    def never_forgets_within_the_window(self):
        for key, when in self.last.items():
            age = self.now - when
            if age < self.WINDOW - 1e-6:
                assert b"%d" % key in self.bloom

    @invariant()
    def forgets_after_two_windows(self):
        old = [key for key, when in self.last.items() if self.now - when > 2 * self.WINDOW + 1e-6]
        assert sum(b"%d" % key in self.bloom for key in old) <= 1  # a false positive, hardly ever


TestRotatingMachine = RotatingMachine.TestCase
TestRotatingMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("began", [0.0, 9.0, 9.999])
def test_a_key_is_remembered_for_one_to_two_windows(began):
    now = [100.0]
    bloom = RotatingBloom(500, 0.0001, window=10, clock=lambda: now[0])
    now[0] += began
    bloom.add(b"ada")
    for now[0] in (109.999, 119.999):
        assert b"ada" in bloom
    now[0] = 120.001
    assert b"ada" not in bloom


@given(st.lists(st.integers(0, 60), max_size=300), st.integers(1, 20))
def test_by_count_the_last_keys_are_remembered(numbers, capacity):
    bloom = RotatingBloom(capacity, 0.001)
    for i, number in enumerate(numbers):
        bloom.add(b"%d" % number)
        last = list(dict.fromkeys(reversed(numbers[: i + 1])))[:capacity]
        assert all(b"%d" % n in bloom for n in last)


def test_by_count_many_keys_at_once_rotate():
    bloom = RotatingBloom(100, 0.01)
    bloom.add_many(numbered(10_000))
    assert all(bloom.test_many(numbered(100, start=9900)))
    assert sum(bloom.test_many(numbered(9000))) < 300
    assert bloom.count <= 200


def test_a_full_window_rises_and_forgets_nothing():
    clock = lsmkv.ManualClock(0)
    bloom = RotatingBloom(100, 0.01, window=60, clock=clock)
    bloom.add_many(numbered(1000))
    assert all(bloom.test_many(numbered(1000))) and bloom.saturated and bloom.expected_fpr > 0.01
    clock.advance(120)
    assert bloom.count == 0 and not bloom.saturated


@pytest.mark.parametrize("window", [0, -1, math.inf, math.nan])
def test_impossible_windows(window):
    with pytest.raises(ValueError, match="window"):
        RotatingBloom(10, window=window)


def test_clocks():
    with pytest.raises(TypeError, match="clock"):
        RotatingBloom(10, window=1, clock=7)

    def broken():
        raise OSError("no clock")

    with pytest.raises(OSError, match="no clock"):
        RotatingBloom(10, window=1, clock=broken)


def test_a_clock_that_uses_the_filter():
    bloom = None

    def clock():
        if bloom is not None and depth[0] < 3:
            depth[0] += 1
            bloom.add(b"from the clock")
        return 1.0 + depth[0] * 100

    depth = [0]
    bloom = RotatingBloom(10, window=1, clock=clock)
    bloom.add(b"ant")
    assert b"ant" in bloom


def test_rotating_blobs_with_impossible_parameters_are_refused():
    seen = RotatingBloom(10, 0.01, window=5)
    blob = family_format.decode(seen.to_bytes(), family_format.KIND_ROTATING)
    head, *generations = (bytes(part) for part in family_format.unpack(blob.payload))

    def sealed(*parts):
        payload = family_format.pack(list(parts))
        return family_format.encode(family_format.KIND_ROTATING, 0, blob.count, blob.seed, blob.fields, payload)

    assert RotatingBloom.from_bytes(sealed(head, *generations)) == seen
    nan, inf = math.nan, math.inf
    for values in ((0, 0.01, 5, 0), (11_000, 0.01, 5, 0), (10, 2, 5, 0), (10, nan, 5, 0), (10, 0.01, inf, 0)):
        with pytest.raises(CorruptionError, match="not a filter"):
            RotatingBloom.from_bytes(sealed(family_format.struct.pack("<Qddd", *values), *generations))
    for values in ((10, 0.01, -5, 0), (10, 0.01, nan, 0), (10, 0.01, 5, -1), (10, 0.01, 5, nan), (10, 1e-300, 5, 0)):
        with pytest.raises(CorruptionError, match="not a filter"):
            RotatingBloom.from_bytes(sealed(family_format.struct.pack("<Qddd", *values), *generations))
    for parts in ((head,), (head, generations[0]), (head, *generations, generations[0])):
        with pytest.raises(CorruptionError, match="not a filter"):
            RotatingBloom.from_bytes(sealed(*parts))

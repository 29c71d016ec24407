"""Streams are functions of their seed; values and the ledger agree with a plain model."""

from __future__ import annotations

from array import array
from collections import Counter

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_bench.native.workload import KINDS, OPS, Ledger, Mix, Stream, Values, make_keys


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_stream_whatever_the_chunks(kind: str) -> None:
    whole = Stream(kind, 1000, 7).take(500)
    parts = Stream(kind, 1000, 7)
    assert parts.take(123) + parts.take(377) == whole
    assert all(number < 1000 for number in whole)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sequential"])
def test_another_seed_another_stream(kind: str) -> None:
    assert Stream(kind, 1000, 7).take(100) != Stream(kind, 1000, 8).take(100)


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_unique_is_a_permutation(num: int, seed: int) -> None:
    assert sorted(Stream("unique", num, seed).take(num)) == list(range(num))


def test_zipf_follows_its_law() -> None:
    """The i-th most frequent of n has probability i^-0.99 / zeta; the two first ones within 5 %."""
    counts = [count for _, count in Counter(Stream("zipf", 10000, 3).take(400_000)).most_common(2)]
    zeta = sum(i**-0.99 for i in range(1, 10001))
    assert counts[0] == pytest.approx(400_000 / zeta, rel=0.05)
    assert counts[1] == pytest.approx(400_000 / zeta * 2**-0.99, rel=0.05)


def test_latest_prefers_the_newest_and_follows_inserts() -> None:
    stream = Stream("latest", 1000, 3)
    assert Counter(stream.take(1000)).most_common(1)[0][0] == 999
    stream.limit = 2000
    assert Counter(stream.take(1000)).most_common(1)[0][0] == 1999


def test_refused_streams() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Stream("uniform", 0, 1)
    with pytest.raises(ValueError, match="exponent"):
        Stream("zipf", 10, 1, theta=1.5)
    with pytest.raises(KeyError):
        Stream("nonsense", 10, 1)


def test_mix_keeps_its_shares_and_inserts_new_records() -> None:
    stream = Stream("zipf", 1000, 5)
    codes, numbers, lengths = Mix(stream, {"get": 50, "scan": 45, "insert": 5}, 9).take(20000)
    counts = Counter(codes)
    assert counts[OPS["get"]] == pytest.approx(10000, rel=0.05)
    assert counts[OPS["scan"]] == pytest.approx(9000, rel=0.05)
    inserted = [n for code, n in zip(codes, numbers, strict=True) if code == OPS["put"]]
    assert inserted == list(range(1000, 1000 + len(inserted)))
    scans = [length for code, length in zip(codes, lengths, strict=True) if code == OPS["scan"]]
    assert (min(scans), max(scans)) == (1, 100)


def test_mix_refuses_unknown_operations() -> None:
    with pytest.raises(ValueError, match="weights"):
        Mix(Stream("uniform", 10, 1), {"fly": 1}, 1)


@given(st.lists(st.integers(0, 10**12 - 1), max_size=50))
def test_keys_are_padded_decimals(numbers: list[int]) -> None:
    assert make_keys(array("Q", numbers), 12, b".") == [b"%012d." % n for n in numbers]


def test_a_key_size_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        make_keys(array("Q", [1000]), 3)


def test_values_depend_on_record_and_generation_only() -> None:
    numbers = Stream("sequential", 200, 0).take(200)
    values = Values(1).make(numbers, 1)
    assert values == [Values(1).one(n, 1) for n in numbers]
    assert values != Values(1).make(numbers, 2)
    assert values != Values(2).make(numbers, 1)
    assert {len(v) for v in values} == {100}


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.5, 0.45, 0.75), (1.0, 0.85, 1.02), (0.1, 0.1, 0.35)])
def test_values_compress_as_asked(ratio: float, low: float, high: float) -> None:
    text = b"".join(Values(1, ("fixed", 100), ratio).make(Stream("sequential", 40, 0).take(40), 1))
    assert low <= len(lz4.block.compress(text, store_size=False)) / len(text) <= high


@pytest.mark.parametrize("sizes", [("uniform", 10, 20), ("normal", 10, 200), ("pareto", 0.0, 0.2615, 25.45)])
def test_value_sizes_vary_within_bounds(sizes: tuple[object, ...]) -> None:
    lengths = [len(v) for v in Values(1, sizes).make(Stream("sequential", 2000, 0).take(2000), 1)]
    assert len(set(lengths)) > 10
    if sizes[0] != "pareto":
        assert sizes[1] <= min(lengths) and max(lengths) <= sizes[2]  # type: ignore[operator]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "delete", "update"]), st.integers(0, 19)), max_size=60
)


@given(OPERATIONS)
def test_ledger_against_a_dict(operations: list[tuple[str, int]]) -> None:
    ledger, model = Ledger(20), dict[int, int]()
    half = len(operations) // 2
    for generation, part in ((1, operations[:half]), (2, operations[half:])):
        wanted = ledger.play(bytes(OPS[op] for op, _ in part), array("Q", [n for _, n in part]), generation)
        expected = []
        for op, number in part:
            expected.append(model.get(number, 0))
            if op in ("put", "update"):
                model[number] = generation
            elif op == "delete":
                model.pop(number, None)
        assert list(wanted) == expected
    assert ledger.present == len(model)
    for number in range(20):
        assert ledger.generation(number) == model.get(number, 0)
        assert ledger.following(number) == min((n for n in model if n >= number), default=None)
        assert ledger.following(number, -1) == max((n for n in model if n <= number), default=None)
    again = Ledger(1)
    again.load(ledger.to_bytes())
    assert (again.to_bytes(), again.present) == (ledger.to_bytes(), ledger.present)


def test_ledger_skip_and_bounds() -> None:
    ledger = Ledger(10)
    ledger.play(bytes([OPS["put"]]) * 3, array("Q", [2, 5, 9]), 1)
    assert [ledger.skip(2, i) for i in range(4)] == [2, 5, 9, None]
    assert [ledger.skip(9, i, -1) for i in range(4)] == [9, 5, 2, None]
    with pytest.raises(IndexError):
        ledger.play(bytes(1), array("Q", [10]), 1)

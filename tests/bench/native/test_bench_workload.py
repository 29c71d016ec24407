"""Generators are functions of their seed; values and the expected state agree with a model."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_bench.native.workload import (
    DISTRIBUTIONS,
    OPS,
    ExpectedState,
    KeyGenerator,
    OperationMix,
    ValueGenerator,
    make_keys,
)
from lsmkv_bench.settings import Settings
from lsmkv_bench.workloads.operations import value_generator
from lsmkv_bench.workloads.records import PIECE, json_pool


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_chunk_size_does_not_change_the_numbers(distribution: str) -> None:
    whole = KeyGenerator(distribution, 1000, 7).take(500)
    parts = KeyGenerator(distribution, 1000, 7)
    assert parts.take(123) + parts.take(377) == whole
    assert all(number < 1000 for number in whole)


@pytest.mark.parametrize("distribution", [name for name in DISTRIBUTIONS if name != "sequential"])
def test_another_seed_gives_other_numbers(distribution: str) -> None:
    assert KeyGenerator(distribution, 1000, 7).take(100) != KeyGenerator(distribution, 1000, 8).take(100)


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_unique_is_a_permutation(num: int, seed: int) -> None:
    assert sorted(KeyGenerator("unique", num, seed).take(num)) == list(range(num))


def test_zipf_distribution() -> None:
    """The i-th most frequent number has probability i^-0.99 / zeta; the first two are within 5 %."""
    counts = [count for _, count in Counter(KeyGenerator("zipf", 10000, 3).take(400_000)).most_common(2)]
    zeta = sum(i**-0.99 for i in range(1, 10001))
    assert counts[0] == pytest.approx(400_000 / zeta, rel=0.05)
    assert counts[1] == pytest.approx(400_000 / zeta * 2**-0.99, rel=0.05)


def test_latest_prefers_new_records() -> None:
    keys = KeyGenerator("latest", 1000, 3)
    assert Counter(keys.take(1000)).most_common(1)[0][0] == 999
    keys.limit = 2000
    assert Counter(keys.take(1000)).most_common(1)[0][0] == 1999


def test_bad_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        KeyGenerator("uniform", 0, 1)
    with pytest.raises(ValueError, match="exponent"):
        KeyGenerator("zipf", 10, 1, theta=1.5)
    with pytest.raises(KeyError):
        KeyGenerator("nonsense", 10, 1)


def test_mix_has_its_weights_and_inserts_new_records() -> None:
    keys = KeyGenerator("zipf", 1000, 5)
    codes, numbers, lengths = OperationMix(keys, {"get": 50, "scan": 45, "insert": 5}, 9).take(20000)
    counts = Counter(codes)
    assert counts[OPS["get"]] == pytest.approx(10000, rel=0.05)
    assert counts[OPS["scan"]] == pytest.approx(9000, rel=0.05)
    inserted = [n for code, n in zip(codes, numbers, strict=True) if code == OPS["put"]]
    assert inserted == list(range(1000, 1000 + len(inserted)))
    scans = [length for code, length in zip(codes, lengths, strict=True) if code == OPS["scan"]]
    assert (min(scans), max(scans)) == (1, 100)


def test_unknown_operation_is_rejected() -> None:
    with pytest.raises(ValueError, match="weights"):
        OperationMix(KeyGenerator("uniform", 10, 1), {"fly": 1}, 1)


@given(st.lists(st.integers(0, 10**12 - 1), max_size=50))
def test_keys_are_padded_decimals(numbers: list[int]) -> None:
    assert make_keys(array("Q", numbers), 12, b".") == [b"%012d." % n for n in numbers]


def test_too_small_key_size_is_rejected() -> None:
    with pytest.raises(ValueError, match="too small"):
        make_keys(array("Q", [1000]), 3)


def test_values_depend_on_seed_number_and_generation() -> None:
    numbers = KeyGenerator("sequential", 200, 0).take(200)
    values = ValueGenerator(1).values(numbers, 1)
    assert values == [ValueGenerator(1).value(n, 1) for n in numbers]
    assert values != ValueGenerator(1).values(numbers, 2)
    assert values != ValueGenerator(2).values(numbers, 1)
    assert {len(v) for v in values} == {100}


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.5, 0.45, 0.75), (1.0, 0.85, 1.02), (0.1, 0.1, 0.35)])
def test_compression_ratio_of_values(ratio: float, low: float, high: float) -> None:
    text = b"".join(ValueGenerator(1, ("fixed", 100), ratio).values(KeyGenerator("sequential", 40, 0).take(40), 1))
    assert low <= len(lz4.block.compress(text, store_size=False)) / len(text) <= high


def test_values_from_a_pool_start_at_a_piece() -> None:
    pool = b"".join(b"%09d." % i for i in range(100))
    values = ValueGenerator(1, ("fixed", 20), pool=pool, piece=10).values(
        KeyGenerator("sequential", 300, 0).take(300), 1
    )
    assert {len(value) for value in values} == {20} and len(set(values)) > 80
    assert all(int(value[10:19]) == int(value[:9]) + 1 for value in values)
    with pytest.raises(ValueError, match="too small"):
        ValueGenerator(1, ("fixed", 1000), pool=pool, piece=10)


def test_json_records() -> None:
    pool = json_pool(3, 200)
    records = [json.loads(pool[at : at + PIECE]) for at in range(0, len(pool), PIECE)]
    assert len({tuple(record) for record in records}) == 1
    assert json_pool(3, 200) == pool != json_pool(4, 200)
    values = value_generator(Settings(values="json", value_size=PIECE)).values(
        KeyGenerator("uniform", 50, 0).take(50), 1
    )
    assert all(json.loads(value)["id"] >= 0 for value in values) and len(set(values)) > 20
    assert 0.15 < len(zlib.compress(b"".join(values))) / 10_000 < 0.5


@pytest.mark.parametrize("sizes", [("uniform", 10, 20), ("normal", 10, 200), ("pareto", 0.0, 0.2615, 25.45)])
def test_value_sizes_are_within_bounds(sizes: tuple[object, ...]) -> None:
    lengths = [len(v) for v in ValueGenerator(1, sizes).values(KeyGenerator("sequential", 2000, 0).take(2000), 1)]
    assert len(set(lengths)) > 10
    if sizes[0] != "pareto":
        assert sizes[1] <= min(lengths) and max(lengths) <= sizes[2]  # type: ignore[operator]


OPERATIONS = st.lists(st.tuples(st.sampled_from(["get", "put", "delete", "update"]), st.integers(0, 19)), max_size=60)


@given(OPERATIONS)
def test_expected_state_against_a_dict(operations: list[tuple[str, int]]) -> None:
    state, model = ExpectedState(20), dict[int, int]()
    half = len(operations) // 2
    for generation, part in ((1, operations[:half]), (2, operations[half:])):
        found = state.apply(bytes(OPS[op] for op, _ in part), array("Q", [n for _, n in part]), generation)
        expected = []
        for op, number in part:
            expected.append(model.get(number, 0))
            if op in ("put", "update"):
                model[number] = generation
            elif op == "delete":
                model.pop(number, None)
        assert list(found) == expected
    assert state.present == len(model)
    for number in range(20):
        assert state.generation(number) == model.get(number, 0)
        assert state.next_present(number) == min((n for n in model if n >= number), default=None)
        assert state.next_present(number, -1) == max((n for n in model if n <= number), default=None)
    again = ExpectedState(1)
    again.load(state.to_bytes())
    assert (again.to_bytes(), again.present) == (state.to_bytes(), state.present)


def test_expected_state_advance_and_bounds() -> None:
    state = ExpectedState(10)
    state.apply(bytes([OPS["put"]]) * 3, array("Q", [2, 5, 9]), 1)
    assert [state.advance(2, i) for i in range(4)] == [2, 5, 9, None]
    assert [state.advance(9, i, -1) for i in range(4)] == [9, 5, 2, None]
    with pytest.raises(IndexError):
        state.apply(bytes(1), array("Q", [10]), 1)

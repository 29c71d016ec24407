"""The verifier accepts right answers and rejects wrong ones."""

from __future__ import annotations

from array import array

import pytest

from lsmkv_bench.native.workload import OPS, ExpectedState, ValueGenerator, make_keys
from lsmkv_bench.workloads.operations import GET, SCAN, Chunk
from lsmkv_bench.workloads.verify import Verifier, WrongAnswer

VALUES = ValueGenerator(1)


@pytest.fixture
def verifier() -> Verifier:
    """Records 2, 5 and 9 exist, all of generation 1."""
    state = ExpectedState(10)
    state.apply(bytes([OPS["put"]]) * 3, array("Q", [2, 5, 9]), 1)
    verifier = Verifier(state)
    verifier.generators[1] = VALUES
    return verifier


def pair(number: int) -> tuple[bytes, bytes]:
    return b"%016d" % number, VALUES.value(number, 1)


def chunk(op: int, number: int, expected: int, length: int = 1) -> Chunk:
    numbers = array("Q", [number])
    return Chunk(bytes([op]), numbers, make_keys(numbers, 16), None, array("I", [length]), bytes([expected]), 1)


def test_right_answers_pass(verifier: Verifier) -> None:
    verifier.chunk(chunk(GET, 2, 1), [(0, VALUES.value(2, 1))])
    verifier.chunk(chunk(GET, 3, 0), [(0, None)])
    verifier.chunk(chunk(SCAN, 3, 0, 5), [(0, [pair(5), pair(9)])])
    verifier.iteration([(0, pair(2)), (2, pair(9))], 0, reverse=False)
    verifier.iteration([(1, pair(5))], 0, reverse=True)
    assert verifier.checked == 7


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("got", [None, b"", b"other"])
def test_wrong_value_fails(verifier: Verifier, got: bytes | None, exact: bool) -> None:
    with pytest.raises(WrongAnswer):
        verifier.chunk(chunk(GET, 2, 1), [(0, got)], exact=exact)


def test_value_of_an_absent_key_fails(verifier: Verifier) -> None:
    with pytest.raises(WrongAnswer):
        verifier.chunk(chunk(GET, 3, 0), [(0, VALUES.value(3, 1))])


@pytest.mark.parametrize("got", [[pair(9)], [pair(5)], [pair(9), pair(5)], [(b"%016d" % 5, b"x")]])
def test_wrong_scan_fails(verifier: Verifier, got: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(WrongAnswer):
        verifier.chunk(chunk(SCAN, 3, 0, 5), [(0, got)])


def test_wrong_iteration_fails(verifier: Verifier) -> None:
    with pytest.raises(WrongAnswer):
        verifier.iteration([(1, pair(9))], 0, reverse=False)

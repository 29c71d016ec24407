"""The same operations under every option set give the answers of a sorted model."""

from __future__ import annotations

import pytest
from soak import figure, size

from .metamorphic import OPTION_SETS, Generator, Model, run

TOTAL = size(100_000, 10_000_000)


def test_there_are_at_least_twenty_option_sets():
    assert len(OPTION_SETS) >= 20


def test_a_seed_replays_exactly():
    first, second = (list(Generator("x").operations(3000)) for _ in range(2))
    assert first == second
    assert first != list(Generator("y").operations(3000))


def test_the_operations_notice_a_lost_write():
    """The comparison is sharp: most lost puts change a later answer (the others are overwritten unread)."""
    operations = list(Generator(3).operations(2000))
    puts = [i for i, op in enumerate(operations) if op[0] == "put"][::40]
    whole = Model()
    answers = [whole.do(op) for op in operations]
    noticed = 0
    for victim in puts:
        cut = Model()
        others = [None if i == victim else cut.do(op) for i, op in enumerate(operations)]
        noticed += others != answers or cut.data != whole.data
    assert noticed > len(puts) / 2


@pytest.mark.parametrize("name", OPTION_SETS)
@pytest.mark.timeout(0)
def test_same_answers_as_the_model(name, folder):
    share = -(-TOTAL // len(OPTION_SETS))
    runs = max(1, share // 50_000)
    for number in range(runs):
        assert run(f"{name}/{number}", name, share // runs, folder / str(number)) is None
        figure(f"metamorphic, {name}", "0 mismatches", operations=share // runs)

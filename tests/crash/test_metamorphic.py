"""The same operations under every option set give the answers of a sorted model."""

from __future__ import annotations

import pytest

from .metamorphic import OPTION_SETS, Generator, Model, run
from .sizes import figure, size

TOTAL = size(100_000, 10_000_000)


def test_there_are_at_least_twenty_option_sets():
    assert len(OPTION_SETS) >= 20


def test_a_seed_replays_exactly():
    first, second = (list(Generator("x").operations(3000)) for _ in range(2))
    assert first == second
    assert first != list(Generator("y").operations(3000))


def test_the_model_notices_a_changed_answer():
    """The comparison is sharp: dropping one put changes a later answer of the model itself."""
    operations = list(Generator(3).operations(2000))
    victim = next(i for i, op in enumerate(operations) if op[0] == "put")
    whole, cut = Model(), Model()
    answers = [whole.do(op) for op in operations]
    others = [cut.do(op) for i, op in enumerate(operations) if i != victim]
    assert answers[:victim] + answers[victim + 1 :] != others or whole.data != cut.data


@pytest.mark.parametrize("name", OPTION_SETS)
@pytest.mark.timeout(0)
def test_same_answers_as_the_model(name, folder):
    share = -(-TOTAL // len(OPTION_SETS))
    runs = max(1, share // 50_000)
    for number in range(runs):
        assert run(f"{name}/{number}", name, share // runs, folder / str(number)) is None
    figure(f"metamorphic, {name}", f"{runs * (share // runs)} operations, 0 mismatches")

"""The same operations under every option set give the answers of a sorted model."""

from __future__ import annotations

import pytest
from soak import figure, size

from lsmkv.options import MAX_LEVELS

from .metamorphic import OPTION_SETS, Generator, Model, Store, run

TOTAL = size(60_000, 10_000_000)
SHARE = -(-TOTAL // len(OPTION_SETS))


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


def test_the_set_for_every_level_uses_every_level(folder):
    store, used = Store(folder / "db", OPTION_SETS["every level"]), set()
    try:
        for operation in Generator("every level/0").operations(min(SHARE, 5000)):
            store.do(operation)
            used |= {level for level, files in enumerate(store.db._versions.default.current.levels) if files}
    finally:
        store.db.close()
    assert used == set(range(MAX_LEVELS))


@pytest.mark.parametrize("name", OPTION_SETS)
@pytest.mark.timeout(0)
def test_same_answers_as_the_model(name, folder):
    runs = max(1, SHARE // 50_000)
    for number in range(runs):
        assert run(f"{name}/{number}", name, SHARE // runs, folder / str(number)) is None
        figure(f"metamorphic, {name}", "0 mismatches", operations=SHARE // runs)

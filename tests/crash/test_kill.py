"""kill -9 at any moment: nothing acknowledged is lost, nothing is invented, every open succeeds."""

from __future__ import annotations

import random

import pytest

from .iofault import CHANGES, Action
from .load import LOG_MODES, TINY
from .oracle import times_opened
from .sizes import figure, size

CYCLES = size(150, 5000)  # for each log mode
CYCLES_PER_DATABASE = 25


def fault(rng: random.Random, reach: int) -> dict:
    action = rng.choice([Action.KILL, Action.KILL_AFTER])
    return {"ops": CHANGES, "nth": rng.randint(1, reach), "action": int(action)}


def one_cycle(lab, rng: random.Random, folder, books, options, sync_every: int, tally) -> None:
    """Write until killed, perhaps recover until killed, then check."""
    seed = f"{rng.random()}"
    call = {"folder": str(folder), "books": books, "options": options}
    write = {"seed": seed, "sync_every": sync_every, **call}
    if rng.random() < 0.5:
        outcome = lab.run("write_until_killed", fault=fault(rng, 200), **write)
        tally["at an I/O call"] += 1
    else:
        outcome = lab.run("write_until_killed", kill_after=rng.random() ** 2 * 0.12, **write)
        tally["at a random time"] += 1
    tally["without any sync"] += sync_every == 0
    assert outcome.signal == 9, outcome.words()
    while rng.random() < 0.4:
        recovery = {"folder": str(folder), "options": options, "fault": fault(rng, 20)}
        outcome = lab.run("open_until_killed", **recovery)
        assert outcome.signal == 9 or outcome.ok, outcome.words()
        tally["during recovery"] += outcome.signal == 9
    outcome = lab.run("check", **call)
    assert outcome.ok, outcome.words()
    assert outcome.value["problems"] == []


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_kill_loses_nothing_acknowledged(lab, folder, wal):
    tally = {"at an I/O call": 0, "at a random time": 0, "during recovery": 0, "without any sync": 0}
    opened = 0
    for number in range(-(-CYCLES // CYCLES_PER_DATABASE)):
        rng = random.Random(f"{wal}/{number}")
        place = folder / str(number)
        place.mkdir()
        books = [str(folder / f"{number}-{thread}") for thread in range(rng.choice([1, 1, 3]))]
        options = {**TINY, "wal": wal, "max_background_jobs": rng.choice([1, 2])}
        # Unsynced writes only, or mixed with synced ones.
        sync_every = (0, 8)[number % 2]
        for _ in range(min(CYCLES_PER_DATABASE, CYCLES)):
            one_cycle(lab, rng, place / "db", books, options, sync_every, tally)
        opened += times_opened(folder / f"{number}-0")
    assert opened > 0
    figure(f"kill -9, {wal} log", f"{tally}, 0 lost, 0 invented, 0 failed opens")

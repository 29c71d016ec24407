"""kill -9 at any moment: nothing acknowledged is lost, nothing is invented, every open succeeds."""

from __future__ import annotations

import random
import shutil

import pytest
from soak import figure, shards, share

import lsmkv

from .iofault import CHANGES, Action
from .load import LOG_MODES, PIECES, TINY
from .oracle import times_opened

SHARDS = shards(20)  # for each log mode
CYCLES = share(80, 5000, SHARDS)
CYCLES_PER_DATABASE = 25


def fault(rng: random.Random, reach: int) -> dict:
    action = rng.choice([Action.KILL, Action.KILL_AFTER])
    return {"ops": CHANGES, "nth": rng.randint(1, reach), "action": int(action)}


def one_cycle(lab, rng: random.Random, call: dict, sync_every: int, tally) -> None:
    """Write until killed, perhaps recover until killed, then check."""
    seed = f"{rng.random()}"
    write = {"seed": seed, "sync_every": sync_every, **call}
    tally["over keyspaces"] += call["options"]["keyspaces"] > 0
    if rng.random() < 0.5:
        outcome = lab.run("write_until_killed", fault=fault(rng, 200), **write)
        tally["kills at an I/O call"] += 1
    else:
        outcome = lab.run("write_until_killed", kill_after=rng.random() ** 2 * 0.12, **write)
        tally["at a random time"] += 1
    tally["without any sync"] += sync_every == 0
    assert outcome.signal == 9, outcome.words()
    while rng.random() < 0.4:
        recovery = {key: value for key, value in call.items() if key != "books"}
        outcome = lab.run("open_until_killed", fault=fault(rng, 30), **recovery)
        assert outcome.signal == 9 or outcome.ok, outcome.words()
        tally["during recovery"] += outcome.signal == 9
    outcome = lab.run("check", **call)
    assert outcome.ok, outcome.words()
    assert outcome.value["problems"] == []
    tally["recoveries in pieces"] += outcome.value["tables"] > 1


KINDS = (
    *("kills at an I/O call", "at a random time", "during recovery", "without any sync", "recoveries in pieces"),
    "over keyspaces",
)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_kill_loses_nothing_acknowledged(lab, folder, wal, shard):
    opened = in_pieces = 0
    for number in range(-(-CYCLES // CYCLES_PER_DATABASE)):
        rng = random.Random(f"{wal}/{shard}/{number}")
        place = folder / str(number)
        place.mkdir()
        books = [str(folder / f"{number}-{thread}") for thread in range(rng.choice([1, 1, 3]))]
        options = {**TINY, "wal": wal, "max_background_jobs": rng.choice([1, 2])}
        options["keyspaces"] = rng.choice([0, 3])
        options["large_value_threshold"] = rng.choice([None, 128])
        kind = shard + number
        call = {"folder": str(place / "db"), "books": books, "options": options, "slack": (None, PIECES)[kind % 2]}
        # Unsynced writes only, or mixed with synced ones.
        sync_every = (0, 8)[kind // 2 % 2]
        tally = dict.fromkeys(KINDS, 0)
        cycles = min(CYCLES_PER_DATABASE, CYCLES - number * CYCLES_PER_DATABASE)
        for _ in range(cycles):
            one_cycle(lab, rng, call, sync_every, tally)
        opened += times_opened(folder / f"{number}-0")
        in_pieces += tally["recoveries in pieces"]
        shutil.rmtree(place)
        figure(f"kill -9, {wal} log", "0 lost, 0 invented, 0 failed opens", cycles=cycles, **tally)
    assert opened > 0
    assert in_pieces > 0 or CYCLES < 2 * CYCLES_PER_DATABASE


def test_without_a_log_exactly_what_was_flushed_survives(lab, folder):
    options = {"wal": None}
    outcome = lab.run("flush_and_die", folder=str(folder / "db"), options=options, count=500)
    assert outcome.signal == 9, outcome.words()
    with lsmkv.open(folder / "db", **options) as db:
        assert list(db) == [b"%06d" % n for n in range(500)]

"""A database that fills its own disk: it reopens, and deletes get it out. Kills on the way lose nothing."""

from __future__ import annotations

import random
import shutil

import pytest
from soak import SOAK, figure, size

from .iofault import CHANGES, Action
from .load import LOG_MODES

SMALL = {"write_buffer_size": 256 << 10, "target_file_size": 256 << 10}
# Logs take up most of the disk, and no memtable fits into what is left.
LARGE = {"write_buffer_size": 12 << 20}


DISK_SIZE = "8m"  # of `small_disk`


@pytest.mark.timeout(0)
@pytest.mark.parametrize("reopen", [False, True], ids=["live", "reopened"])
@pytest.mark.parametrize("way", ["clear", "points", "half"])
def test_deletes_get_a_database_out_of_a_full_disk(lab, small_disk, way, reopen):
    cases = [(options, wal) for options in (SMALL, LARGE) for wal in (*LOG_MODES, None)]
    # What half of the keys take fits nowhere beside large logs; and without a log they are all in memory.
    cases = [case for case in cases if case[0] is SMALL or (way != "half" and case[1])]
    chosen = cases if SOAK else random.Random(f"{way} {reopen}").sample(cases, 1)
    for options, wal in chosen:
        call = {"root": str(small_disk), "options": {**options, "wal": wal}, "way": way, "reopen": reopen}
        outcome = lab.run("own_full_disk", timeout=300, **call)
        assert outcome.ok, (wal, options, outcome.words())
        said = outcome.value
        assert said["filled"] > 3000, said
        assert said["readable"] and said["live"] and said["reopened"], (wal, options, said)
        shutil.rmtree(small_disk / "db")
    figure("a database that filled its own disk", "reopened, deletes freed space", runs=len(chosen))


@pytest.mark.timeout(0)
def test_kills_of_a_database_on_its_full_disk_lose_nothing(lab, small_disk, folder):
    cycles = size(4, 400)
    rng = random.Random(7)
    deletes = 0
    for number in range(cycles):
        book = folder / f"book {number}"
        fault = {
            "ops": CHANGES,
            "nth": rng.randint(1, 300),
            "action": int(rng.choice([Action.KILL, Action.KILL_AFTER])),
        }
        options = {**rng.choice([SMALL, SMALL, LARGE]), "wal": rng.choice(LOG_MODES)}
        call = {"root": str(small_disk), "options": options, "book": str(book)}
        outcome = lab.run("fill_until_killed", timeout=300, fault=fault, **call)
        assert outcome.signal == 9 and not outcome.timed_out, outcome.words()
        outcome = lab.run("check_after_kill", timeout=300, **call)
        assert outcome.ok, (number, options, outcome.words())
        assert outcome.value["problems"] == [[], [], [], 0], (number, options)
        deletes += outcome.value["deletes"]
        shutil.rmtree(small_disk / "db")
        book.unlink()
    assert deletes
    figure("kill -9 on a full disk", "0 lost, 0 invented, 0 failed opens", cycles=cycles, deletes=deletes)

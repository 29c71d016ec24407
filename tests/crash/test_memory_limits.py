"""RLIMIT_AS at many sizes: calls raise, none waits forever, and a reopen finds every acknowledged write."""

from __future__ import annotations

import os
import random
import shutil

import pytest
from soak import figure, size

from .load import LOG_MODES, TINY

HANG_SECONDS = 60.0


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer reserves the address space")
@pytest.mark.timeout(0)
def test_a_limit_on_memory_hangs_and_loses_nothing(lab, folder):
    runs = size(12, 1000)
    refused = 0
    for number in range(runs):
        rng = random.Random(number)
        options = {**TINY, "wal": rng.choice(LOG_MODES), "write_buffer_size": rng.choice([64 << 10, 512 << 10])}
        call = {"folder": str(folder / "db"), "book": str(folder / "book"), "options": options}
        # From next to nothing, where not even a thread starts, to enough; most often near the edge.
        room = int(rng.choice([0, rng.uniform(0, 2 << 20), rng.uniform(0, 12 << 20), rng.uniform(0, 48 << 20)]))
        outcome = lab.run("write_within", timeout=HANG_SECONDS, room=room, seed=number, **call)
        assert not outcome.timed_out and outcome.ok, (number, room, options, outcome.words())
        refused += outcome.value["refused"]
        outcome = lab.run("check_written", **call)
        assert outcome.ok and outcome.value == [], (number, room, options, outcome.words(), outcome.value)
        shutil.rmtree(folder / "db")
        (folder / "book").unlink()
    assert refused
    figure("RLIMIT_AS", "0 hangs, 0 lost", runs=runs, **{"calls refused": refused})

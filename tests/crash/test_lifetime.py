"""Closing under threads, forking, running out of descriptors, running out of disk."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess

import pytest
from soak import figure, shards, share, size

import lsmkv

from .load import LOG_MODES, TINY

CLOSING = shards(10)
CLOSES = share(20, 1000, CLOSING)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", CLOSING)
def test_closing_under_eight_threads_gives_only_closed_errors(lab, folder, shard):
    rng = random.Random(f"close/{shard}")
    for number in range(shard * CLOSES, (shard + 1) * CLOSES):
        options = {**TINY, "wal": rng.choice(LOG_MODES)}
        call = {"seed": number, "delay": rng.random() * 0.05}
        outcome = lab.run("close_race", folder=str(folder / str(number)), options=options, **call)
        assert outcome.ok, f"run {number}: {outcome.words()}"
        assert outcome.value == [], f"run {number}"
        shutil.rmtree(folder / str(number))
    figure("close under 8 threads", "only ClosedError, 0 signals", runs=CLOSES)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_a_forked_child_is_told_and_disturbs_nothing(lab, folder, wal):
    runs = size(3, 50)
    for number in range(runs):
        options = {**TINY, "wal": wal}
        outcome = lab.run("fork_use", folder=str(folder / str(number)), options=options)
        assert outcome.ok, outcome.words()
        assert outcome.value == []
        shutil.rmtree(folder / str(number))
    figure(f"fork, {wal} log", "ForkError for every use, parent and lock untouched", runs=runs)


def test_a_second_open_for_writing_is_refused(folder):
    with lsmkv.open(folder / "db") as db:
        db[b"k"] = b"v"
        with pytest.raises(lsmkv.LockError):
            lsmkv.open(folder / "db")
        assert db[b"k"] == b"v"
    lsmkv.open(folder / "db").close()


def test_descriptors_and_threads_come_back(lab, folder):
    times = size(60, 1000)
    outcome = lab.run("open_and_close", folder=str(folder / "db"), options=TINY, times=times, timeout=600)
    assert outcome.ok, outcome.words()
    assert outcome.value["after"] == outcome.value["before"]
    figure("open and close", "descriptors and threads as before", times=times)


@pytest.mark.timeout(0)
def test_more_tables_than_descriptors(lab, folder):
    tables, limit = max(60, size(120, 1100)), 40
    options = {
        "write_buffer_size": 64 << 10,
        "l0_compaction_trigger": 1000,
        "l0_slowdown_trigger": 10_000,
        "l0_stop_trigger": 10_000,
    }
    call = {"folder": str(folder / "db"), "options": options, "tables": tables, "limit": limit}
    outcome = lab.run("many_tables", timeout=900, **call)
    assert outcome.ok, outcome.words()
    said = outcome.value
    assert said["files"] > tables * 0.9 > limit
    assert (said["wrong"], said["scanned"], said["again"]) == (0, tables, tables)
    figure("RLIMIT_NOFILE=40", "every key found", tables=said["files"])


DISK_SIZE = "24m"  # of `small_disk`


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_a_full_disk_heals_without_a_reopen(lab, small_disk, wal):
    runs = size(1, 25)
    for number in range(runs):
        for entry in small_disk.iterdir():
            subprocess.run(["rm", "-rf", entry], check=True)
        call = {"root": str(small_disk), "options": {**TINY, "wal": wal}, "seed": number}
        outcome = lab.run("full_disk", timeout=120, **call)
        assert outcome.ok, outcome.words()
        said = outcome.value
        assert len(said["refused"]) >= 5
        assert errno.ENOSPC in said["refused"], said
        assert said["readable"] and said["resumed"], said
        assert (said["wrong"], said["later"]) == (0, 500)
    figure(f"full disk, {wal} log", "reads went on, writes resumed without a reopen", runs=runs)

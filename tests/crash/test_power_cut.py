"""Power cuts: replayed from recorded I/O, and real ones on ext4. After each one the database opens, holds
everything that was synced, and is a prefix of the writes with no batch cut in half."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from . import ext4, oracle
from .load import LOG_MODES, TINY
from .sizes import figure, size

STATES = size(1500, 25_000)  # replayed crash states for each log mode
CUTS = size(20, 1000)  # real power cuts for each mount mode
BATCHES = 250


def record(lab, folder, name: str, options: dict, extra: bool = True, count: int = BATCHES) -> Path:
    path = folder / f"{name}.trace"
    outcome = lab.run(
        "record", folder=str(folder / name), trace_path=str(path), options=options, seed=name, count=count,
        extra=extra,
    )  # fmt: skip
    assert outcome.ok, outcome.words()
    return path


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_replayed_power_cuts_leave_a_prefix(lab, folder, wal):
    options = {**TINY, "wal": wal}
    total: dict[str, int] = {}
    number = 0
    while sum(total.values()) < STATES:
        path = record(lab, folder, f"{wal}{number}", options)
        call = {"trace_path": str(path), "folder": str(folder), "options": options, "seed": str(number)}
        outcome = lab.run("replay", **call, wanted=min(1700, STATES), timeout=1800)
        assert outcome.ok, outcome.words()
        assert outcome.value["problems"] == []
        for kind, count in outcome.value["tally"].items():
            total[kind] = total.get(kind, 0) + count
        shutil.rmtree(folder / f"{wal}{number}")
        path.unlink()
        number += 1
    figure(f"replayed power cuts, {wal} log", f"{sum(total.values())} distinct states {total}, 0 problems")


@pytest.fixture
def device(folder):
    why = ext4.missing()
    if why:
        pytest.skip(why)
    device = ext4.Device(folder)
    yield device
    device.unmount()


def test_the_rig_loses_what_was_not_synced(device):
    """Without this the power cuts below would prove nothing."""
    device.mount("data=ordered")
    with open(device.root / "synced", "wb") as file:
        file.write(b"x" * 10_000)
        file.flush()
        os.fsync(file.fileno())
    (device.root / "unsynced").write_bytes(b"y" * 10_000)
    ext4.cut_power(device.root)
    device.unmount()
    device.mount("data=ordered")
    assert (device.root / "synced").read_bytes() == b"x" * 10_000
    assert not (device.root / "unsynced").exists()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("mode", ext4.MODES)
def test_real_power_cuts_leave_a_prefix(lab, folder, device, mode):
    rng = random.Random(mode)
    lost = 0
    for number in range(CUTS):
        if number % 10 == 0:
            name = f"db{number}"
            books = [str(folder / f"{name}-{thread}") for thread in range(rng.choice([1, 1, 3]))]
            options = {**TINY, "wal": rng.choice(LOG_MODES)}
        call = {"folder": str(device.root / name), "books": books, "options": options}
        device.mount(mode)
        if number % 10 == 0:
            clear(device.root)
        cut = {"root": str(device.root), "delay": 0.01 + rng.random() ** 2 * 0.3}
        outcome = lab.run("write_until_power_cut", seed=f"{mode}{number}", **cut, **call)
        # A store into a mapping of the dead file system ends in SIGBUS before the kill gets there.
        assert outcome.signal in (signal.SIGKILL, signal.SIGBUS) or "Input/output error" in outcome.error
        device.unmount()
        device.mount(mode)
        outcome = lab.run("check", judge="settle_prefix", **call)
        assert outcome.ok, f"{mode}, cut {number}: {outcome.words()}"
        assert outcome.value["problems"] == [], f"{mode}, cut {number}"
        lost += sum(entry.status == oracle.ABSENT for book in books for entry in oracle.read(Path(book)))
        device.unmount()
    assert lost > 0, "no cut ever lost an unsynced write: the rig cuts nothing"
    figure(f"ext4 power cuts, {mode}", f"{CUTS}, {lost} unsynced batches gone, 0 problems")


def clear(root: Path) -> None:
    for entry in root.iterdir():
        if entry.name.startswith("db"):
            shutil.rmtree(entry)

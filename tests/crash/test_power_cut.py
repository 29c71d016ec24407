"""Power cuts: replayed from recorded I/O, and real ones on ext4. After each one the database opens, holds
everything that was synced, and is a prefix of the writes with no batch cut in half."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from soak import figure, shards, share

from lsmkv import filenames
from lsmkv.version import manifest
from lsmkv_ext.wal.reader import HEAD_SIZE

from . import ext4, oracle, trace
from .iofault import Op
from .load import LOG_MODES, TINY
from .monitor import Monitor, Needed

REPLAYS = shards(17)
STATES = share(250, 12_500, REPLAYS)  # replayed crash states, for each log mode, with and without keyspaces
UNFLUSHED = share(30, 2500, REPLAYS)  # the same with several logs that no flush has dropped
CUTTING = shards(10)
CUTS = share(12, 1000, CUTTING)  # real power cuts, for each mount mode
WATCHING = shards(10)
WATCHED = share(400, 20_000, WATCHING)  # batches whose syncs are watched, for each log mode
BATCHES = 250
SHAPES = [(0, None), (3, None), (3, 128)]  # keyspaces, and the size from which on values are in a value log
DEAD = (errno.EIO, errno.EROFS)  # what a file system that was shut down answers


def record(lab, folder, name: str, options: dict, extra: bool = True, count: int = BATCHES) -> Path:
    path = folder / f"{name}.trace"
    outcome = lab.run(
        "record", folder=str(folder / name), trace_path=str(path), options=options, seed=name, count=count,
        extra=extra, timeout=1800,
    )  # fmt: skip
    assert outcome.ok, outcome.words()
    return path


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", REPLAYS)
@pytest.mark.parametrize(("keyspaces", "large"), SHAPES)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_replayed_power_cuts_leave_a_prefix(lab, folder, wal, keyspaces, large, shard):
    options = {**TINY, "wal": wal, "keyspaces": keyspaces, "large_value_threshold": large}
    done = number = 0
    while done < STATES:
        name = f"{wal}{keyspaces}{large}{shard}-{number}"
        path = record(lab, folder, name, options)
        call = {"trace_path": str(path), "folder": str(folder), "options": options, "seed": name}
        outcome = lab.run("replay", **call, wanted=STATES - done, timeout=1800)
        assert outcome.ok, outcome.words()
        assert outcome.value["problems"] == []
        tally = outcome.value["tally"]
        counts = {"distinct states": sum(tally.values()), **tally}
        large_ones = "" if large is None else ", large values"
        figure(f"replayed power cuts, {wal} log, {keyspaces} keyspaces{large_ones}", "0 problems", **counts)
        shutil.rmtree(folder / name)
        path.unlink()
        done += counts["distinct states"]
        number += 1


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", REPLAYS)
@pytest.mark.parametrize(("keyspaces", "large"), SHAPES)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_power_cuts_before_any_flush_leave_a_prefix(lab, folder, wal, keyspaces, large, shard):
    """A flush syncs the directory and drops logs, and so hides a log that was not synced or whose name was not."""
    options = {**TINY, "wal": wal, "max_write_buffers": 8, "keyspaces": keyspaces, "large_value_threshold": large}
    name = f"unflushed-{wal}{keyspaces}{large}{shard}"
    path = folder / f"{name}.trace"
    recorded = {"folder": str(folder / name), "trace_path": str(path), "options": options, "seed": name}
    outcome = lab.run("record_unflushed", **recorded, count=700, timeout=1800)
    assert outcome.ok, outcome.words()
    assert outcome.value >= 3
    call = {"trace_path": str(path), "folder": str(folder), "options": options, "seed": name}
    outcome = lab.run("replay", **call, wanted=UNFLUSHED, timeout=1800)
    assert outcome.ok, outcome.words()
    assert outcome.value["problems"] == []
    counts = {"distinct states": sum(outcome.value["tally"].values()), **outcome.value["tally"]}
    figure(f"replayed power cuts before any flush, {wal} log", "0 problems", **counts)


def needed(data: bytes) -> Needed:
    """What a manifest asks for, by the project's own reader."""
    state = manifest.ManifestState(int.from_bytes(data[16:24], "little"))
    if len(data) >= manifest.HEAD_BYTES and data.strip(b"\0"):
        for _ in manifest.scan(data, state.number, "MANIFEST", state):
            pass
    names = frozenset(filenames.table_name(f.number) for f in state.files())
    return Needed(names, state.log_number)


@pytest.mark.parametrize("shard", WATCHING)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_syncs_come_in_the_order_that_keeps_data(lab, folder, wal, shard):
    path = record(lab, folder, f"order-{wal}-{shard}", {**TINY, "wal": wal}, count=WATCHED)
    monitor = Monitor(needed, manifest.HEAD_BYTES, HEAD_SIZE)
    assert monitor.watch(trace.read(path)) == []
    assert monitor.checks > WATCHED // 6
    figure(f"sync order, {wal} log", "0 out of order", checks=monitor.checks)


def test_the_monitor_sees_a_wrong_order(lab, folder):
    """The same trace with its directory syncs, or its file syncs, taken out must be found guilty."""
    path = record(lab, folder, "order", TINY)
    records = list(trace.read(path))
    without_directory = [r for r in records if not (r.op == Op.FSYNC and r.directory)]
    syncs = (Op.FSYNC, Op.FDATASYNC)
    without_tables = [r for r in records if not (r.op in syncs and r.path.endswith(".sst"))]
    without_manifest = [r for r in records if not (r.op == Op.FSYNC and r.path.startswith("MANIFEST"))]
    for guilty in (without_directory, without_tables, without_manifest):
        assert len(guilty) < len(records)
        assert Monitor(needed, manifest.HEAD_BYTES).watch(guilty) != []


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
@pytest.mark.parametrize("shard", CUTTING)
@pytest.mark.parametrize("mode", ext4.MODES)
def test_real_power_cuts_leave_a_prefix(lab, folder, device, mode, shard):
    rng = random.Random(f"{mode}/{shard}")
    lost = 0
    # Under a sanitizer many a database is still being opened when the power goes.
    enough = CUTS >= 20 and "LSMKV_SANITIZED" not in os.environ
    for number in itertools.count():
        # On a busy machine too: some more, with more time.
        late = number >= CUTS
        if late and (lost or not enough or number == 3 * CUTS):
            break
        if number % 10 == 0:
            name = f"db{number}"
            books = [str(folder / f"{name}-{thread}") for thread in range(rng.choice([1, 1, 3]))]
            options = {**TINY, "wal": rng.choice(LOG_MODES), "keyspaces": rng.choice([0, 3])}
        call = {"folder": str(device.root / name), "books": books, "options": options}
        device.mount(mode)
        if number % 10 == 0:
            clear(device.root)
        cut = {"root": str(device.root), "delay": 0.01 + rng.random() ** 2 * (1.5 if late else 0.15)}
        outcome = lab.run("write_until_power_cut", seed=f"{mode}{shard}-{number}", **cut, **call)
        # A store into a mapping of the dead file system ends in SIGBUS before the kill gets there.
        killed = outcome.signal in (signal.SIGKILL, signal.SIGBUS)
        assert killed or any(os.strerror(code) in outcome.error for code in DEAD), outcome.words()
        device.unmount()
        device.mount(mode)
        outcome = lab.run("check", judge="settle_prefix", **call)
        assert outcome.ok, f"{mode}, cut {number}: {outcome.words()}"
        assert outcome.value["problems"] == [], f"{mode}, cut {number}"
        lost += sum(entry.status == oracle.ABSENT for book in books for entry in oracle.read(Path(book)))
        device.unmount()
    assert lost > 0 or not enough, "no cut ever lost an unsynced write: the rig cuts nothing"
    counts = {"cuts": number, "unsynced batches gone": lost}
    figure(f"ext4 power cuts, {mode}", "0 problems", **counts)


def clear(root: Path) -> None:
    for entry in root.iterdir():
        if entry.name.startswith("db"):
            shutil.rmtree(entry)

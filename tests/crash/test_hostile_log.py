"""A log of tiny operations, whoever wrote it: opening, checking and repairing it take at most 64 MiB beyond its
size."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from soak import SOAK, size

import lsmkv
from lsmkv.recovery import replay
from lsmkv_ext.wal.reader import check_log
from lsmkv_ext.wal.writer import LogWriter

ALLOWANCE = 64 << 20
COUNT = 2_000_000

MEASURE = """
import sys
import lsmkv
from lsmkv.recovery import verify
from lsmkv_tool.cli import run

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

how, path, warm = sys.argv[1:]
def use(path):
    if how == "repair":
        return lsmkv.repair(path, apply=True)
    if how == "verify":
        return verify.verify(path)
    if how == "dump":
        stdout, sys.stdout = sys.stdout, open("/dev/null", "w")
        assert run(["wal", "dump", path]) == 0
        sys.stdout = stdout
        return None
    # A small cache, so that the tables' blocks are not what is measured.
    return lsmkv.open(path, how, block_cache_size=1 << 20)

first = use(warm)
if how in "rw":
    first.close()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts from here
before = status("VmRSS")
db = use(path)
print(status("VmHWM") - before)
if how in "rw":
    print(*(db.get(key) for key in (b"aaa", b"aab", b"zzz")), len(list(db.items(b"aaa", b"aaz"))))
"""


def number(n: int) -> bytes:
    return n.to_bytes(3, "big")


def varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def deletes(count: int) -> Iterator[bytes]:
    return (b"\x01\0" for _ in range(3 * count))


def puts(count: int) -> Iterator[bytes]:
    return (b"\0\x03" + number(n * 7919 & 0x3FFFFF) + b"\0" for n in range(count))


def range_tombstones(count: int) -> Iterator[bytes]:
    return (b"\x02\x03" + number(5 * n) + b"\x03" + number(5 * n + 1) for n in range(count))


def nested_range_tombstones(count: int) -> Iterator[bytes]:
    """Each within the one before: flattened they are twice as many."""
    return (b"\x02\x03" + number(n) + b"\x03" + number(0xFFFFFF - n) for n in range(count // 2))


def long_range_tombstones(count: int) -> Iterator[bytes]:
    """The same with long keys, each of which ends one range and begins the next one."""
    tail = random.Random(0).randbytes(197)
    head = b"\x02" + varint(200)
    return (head + number(n) + tail + varint(200) + number(0xFFFFFF - n) + tail for n in range(count // 10))


def expired_puts(count: int) -> Iterator[bytes]:
    """Their expiries take most of the log, and nothing of them is ever read."""
    return (b"\x04\x03" + number(n * 7919 & 0x3FFFFF) + (n + 1).to_bytes(8, "little") + b"\0" for n in range(count))


SHAPES = {
    "expired puts": expired_puts,
    "deletes": deletes,
    "puts": puts,
    "range tombstones": range_tombstones,
    "nested range tombstones": nested_range_tombstones,
    "long range tombstones": long_range_tombstones,
}
HOW = ("w", "r", "repair", "verify")
ONE_BATCH, SMALL_BATCHES = 1 << 24, 100
CASES = [(shape, how, ONE_BATCH) for shape in SHAPES for how in HOW if how != "verify" or shape in ("deletes", "puts")]
if not SOAK:
    # Each call meets puts, and each shape one call.
    CASES = [case for case in CASES if case[0] == "puts"]
    CASES += [(shape, HOW[n % 3], ONE_BATCH) for n, shape in enumerate(SHAPES) if shape != "puts"]
CASES += [("puts", "w", SMALL_BATCHES), ("puts", "r", SMALL_BATCHES), ("puts", "dump", ONE_BATCH)]


def image(folder: Path) -> tuple[Path, Path]:
    """A database as a kill would leave it, and its log."""
    with lsmkv.open(folder / "db") as db:
        db.put(b"warm", b"")
        shutil.copytree(folder / "db", folder / "image", ignore=shutil.ignore_patterns("*.tmp"))  # the next log
    (log,) = (folder / "image").glob("*.wal")
    return folder / "image", log


def write_log(path: Path, operations: Iterator[bytes], batch: int) -> None:
    path.unlink()
    writer = LogWriter(path, int(path.stem), mode="write", version=2)
    seq, part = 1, []

    def append() -> None:
        nonlocal seq, part
        writer.append(b"".join(part), seq, len(part))
        seq, part = seq + len(part), []

    for operation in operations:
        part.append(operation)
        if len(part) == batch:
            append()
    for key in (b"aaa", b"aab"):
        part.append(b"\0\x03%s\x01%s" % (key, key[-1:]))
    append()
    writer.sync()
    writer.close()


@pytest.fixture
def place(folder):
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    warm, _ = image(folder / "a")
    victim, log = image(folder / "b")
    return victim, log, warm


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}


def measure(how: str, path: Path, warm: Path) -> list[str]:
    command = [sys.executable, "-c", MEASURE, how, str(path), str(warm)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize(("shape", "how", "batch"), CASES)
def test_a_log_of_tiny_operations_is_replayed_in_bounded_memory(place, shape, how, batch):
    victim, log, warm = place
    # Printing takes ten times as long; a quarter is still far beyond the limit if it is gathered before it is printed.
    write_log(log, SHAPES[shape](COUNT // 4 if how == "dump" else COUNT), batch)
    size = log.stat().st_size
    if how == "repair":
        for path in (victim / "CURRENT", *victim.glob("MANIFEST*")):
            path.unlink()
    before = stamps(victim)
    peak, *answers = measure(how, victim, warm)
    assert int(peak) <= size + ALLOWANCE
    if answers:
        assert answers == ["b'a' b'b' None 2"]
    if how in ("r", "verify", "dump"):
        assert stamps(victim) == before


def deep_range_tombstones(count: int) -> Iterator[bytes]:
    """Nested like the others, with keys of four bytes."""
    return (b"\x02\x04" + n.to_bytes(4, "big") + b"\x04" + (0xFFFFFFFF - n).to_bytes(4, "big") for n in range(count))


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer takes memory of its own")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("how", ["w", "r", "repair"] if SOAK else ["w"])
def test_nested_range_tombstones_take_at_most_twice_their_log(place, how):
    """However many: with more than eight million of them, one log and the allowance would not do."""
    victim, log, warm = place
    write_log(log, deep_range_tombstones(size(500_000, 12_000_000)), ONE_BATCH)
    bound = 2 * log.stat().st_size + ALLOWANCE
    if how == "repair":
        for path in (victim / "CURRENT", *victim.glob("MANIFEST*")):
            path.unlink()
    peak, *answers = measure(how, victim, warm)
    assert int(peak) <= bound
    if answers:
        assert answers == ["b'a' b'b' None 2"]


def large_put(n: int, mebibytes: int) -> bytes:
    """Of a value that no compression makes smaller: then its compressed copy is as large."""
    value = random.Random(n).randbytes(mebibytes << 20)
    return b"\0\x04big%d" % n + varint(len(value)) + value


# Sizes around the one from which on a value is not compressed; one behind as many tiny operations as just fit into a
# piece.
LARGE: dict[str, tuple[int, tuple[int, ...]]] = {
    "one": (0, (96,)),
    "two": (0, (72, 72)),
    "compressed": (0, (23, 23, 23)),
    "not compressed": (0, (47, 25)),
    "behind tiny ones": (190_000, (23,)),
}


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize(
    ("case", "how"),
    [(case, how) for case in LARGE for how in ("w", "r", "repair") if SOAK or how == "w" or case == "two"],
)
def test_one_large_write_is_in_memory_once_during_recovery(place, case, how):
    victim, log, warm = place
    tiny, sizes = LARGE[case]
    write_log(log, chain(puts(tiny), (large_put(n, size) for n, size in enumerate(sizes))), ONE_BATCH)
    size_of_log = log.stat().st_size
    if how == "repair":
        for path in (victim / "CURRENT", *victim.glob("MANIFEST*")):
            path.unlink()
    peak, *answers = measure(how, victim, warm)
    assert int(peak) <= size_of_log + ALLOWANCE
    if answers:
        assert answers == ["b'a' b'b' None 2"]
    with lsmkv.open(victim) as db:
        for n, size in enumerate(sizes):
            assert db[b"big%d" % n] == random.Random(n).randbytes(size << 20)
        assert len(db) == len({number(n * 7919 & 0x3FFFFF) for n in range(tiny)}) + len(sizes) + 2


@pytest.mark.parametrize("slack", [20_000, 3 << 20, 32 << 20])
def test_values_that_move_piece_by_piece_arrive_whole(place, monkeypatch, slack):
    """In one record, so that what is still to come stands in the window that gives up what was taken."""
    victim, log, _ = place
    monkeypatch.setattr(replay, "SLACK", slack)
    sizes = [1 << 20, 5, (3 << 20) + 77, (1 << 20) - 1, 0, (2 << 20) + 4096]
    values = [random.Random(size).randbytes(size) for size in sizes]
    batch = [b"\0\x02k%d" % n + varint(len(value)) + value for n, value in enumerate(values)]
    write_log(log, chain(puts(50), *([operation, *range_tombstones(20)] for operation in batch)), ONE_BATCH)
    for flag in ("r", "w"):
        with lsmkv.open(victim, flag) as db:
            assert [db[b"k%d" % n] for n in range(len(values))] == values
            assert db[b"aaa"] == b"a" and number(0) not in db and len(db) == len(values) + 2 + 49


def test_a_log_that_claims_a_terabyte_is_not_read_to_its_end(place):
    """Holes are not read: a log is allocated far ahead, and its size proves nothing."""
    victim, log, _ = place
    os.truncate(log, 1 << 40)
    began = time.process_time()
    for flag in ("r", "w"):
        with lsmkv.open(victim, flag) as db:
            assert db[b"warm"] == b""
    assert time.process_time() - began < 5


def test_a_reader_keeps_what_does_not_fit_into_memory_outside_the_database(place, monkeypatch):
    """In tables that have no name any more: nothing is left behind, and `refresh` makes them anew."""
    victim, log, _ = place
    monkeypatch.setattr(replay, "SLACK", 20_000)
    write_log(log, puts(3000), SMALL_BATCHES)
    elsewhere = victim.with_name("elsewhere")
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    before = stamps(victim)
    with lsmkv.open(victim, "r") as db:
        assert len(db._versions.default.current.levels[0]) > 3
        for _ in range(2):
            assert len(db) == 3002 and db[number(7919)] == b"" and db[b"aaa"] == b"a"
            db.refresh()
    assert stamps(victim) == before
    assert list(elsewhere.iterdir()) == []


def test_a_batch_that_recovery_cut_in_two_is_whole(place, monkeypatch):
    victim, log, _ = place
    monkeypatch.setattr(replay, "SLACK", 20_000)
    write_log(log, puts(3000), ONE_BATCH)
    with lsmkv.open(victim) as db:
        assert len(db) == 3002 and db.recovery_report.records == 1 and db.recovery_report.entries == 3002
    with lsmkv.open(victim) as db:
        assert len(db) == 3002


def test_repair_copes_with_impossible_sequence_numbers(place):
    """The table that repair wants to write cannot hold them: the record is refused when the log is checked."""
    victim, log, _ = place
    log.unlink()
    writer = LogWriter(log, int(log.stem), mode="write")
    writer.append(b"\0\x01a\x01v", (1 << 62) - 2, 1)
    writer.append(b"\0\x01b\x01v" * 2, (1 << 62) - 1, 2)
    writer.sync()
    writer.close()
    for path in (victim / "CURRENT", *victim.glob("MANIFEST*")):
        path.unlink()
    assert "beyond their limit" in str(check_log(log, int(log.stem), salvage=True)["torn_reason"])
    assert lsmkv.repair(victim).rebuilt
    with lsmkv.open(victim) as db:
        assert dict(db.items()) == {b"a": b"v"}

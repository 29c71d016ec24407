"""Every I/O call fails once, or from some point on: nothing acknowledged is lost, a failed write raises."""

from __future__ import annotations

import errno
import random
import shutil

import pytest
from soak import CUT, SOAK, figure

import lsmkv
from lsmkv import CorruptionError
from lsmkv.version import manifest
from lsmkv_ext.wal.reader import HEAD_SIZE, check_log
from lsmkv_ext.wal.sync_watermark import NAME, read_watermark

from . import trace
from .iofault import CHANGES, SYNCS, WRITES, Action, Op, mask, run_python
from .load import LOG_MODES, TINY
from .monitor import Monitor, Needed

COUNT = 90  # batches per run
KEYSPACES = {"mmap": 0, "write": 2}  # besides the default one, by log mode
LARGE = {"mmap": None, "write": 128}  # from this size on, values are in a value log
SAMPLE = max(1, round(7 * CUT))  # runs per kind of failure and log mode in `make test`
# Calls that a signal may interrupt; the kernel never gives EINTR for a rename or an unlink.
INTERRUPTIBLE = WRITES | mask(Op.OPEN, Op.FTRUNCATE, Op.FALLOCATE)


def failing(ops: int, err: int, sticky: bool) -> dict:
    return {"ops": ops, "action": Action.FAIL, "err": err, "sticky": sticky}


CALLS = CHANGES & ~SYNCS
KINDS = {
    "EIO once": failing(CALLS, errno.EIO, False),
    "EIO from then on": failing(CALLS, errno.EIO, True),
    "ENOSPC once": failing(CALLS, errno.ENOSPC, False),
    "ENOSPC from then on": failing(CALLS, errno.ENOSPC, True),
    "EMFILE once": failing(mask(Op.OPEN), errno.EMFILE, False),
    "EMFILE from then on": failing(mask(Op.OPEN), errno.EMFILE, True),
    "reads fail once": failing(mask(Op.READ), errno.EIO, False),
    "reads fail from then on": failing(mask(Op.READ), errno.EIO, True),
    "sync fails once": failing(SYNCS, errno.EIO, False),
    "sync fails from then on": failing(SYNCS, errno.EIO, True),
}
INVISIBLE = {
    "EINTR": {"ops": INTERRUPTIBLE, "action": Action.FAIL, "err": errno.EINTR},
    "short writes": {"ops": WRITES, "action": Action.SHORT, "sticky": True},
    "short reads": {"ops": mask(Op.READ), "action": Action.SHORT},
}


def attempt(lab, folder, name: str, wal: str, fault: dict, *, large: bool = True) -> dict:
    """One run with a fault and the check after it; returns what the run said. Without `large` no value goes to a value
    log and no table is ingested.
    """
    options = {**TINY, "wal": wal, "keyspaces": KEYSPACES[wal], "large_value_threshold": LARGE[wal] if large else None}
    place, book = str(folder / name / "db"), str(folder / name / "book")
    (folder / name).mkdir()
    fault = {**fault, "action": int(fault["action"])}
    call = {"folder": place, "options": options}
    outcome = lab.run("write_with_fault", book_path=book, seed=name, count=COUNT, fault=fault, **call)
    assert outcome.ok, f"{fault}: {outcome.words()}"
    after = lab.run("check", books=[book], judge="settle_failed", **call)
    assert after.ok, f"{fault}: {after.words()}"
    assert after.value["problems"] == [], fault
    shutil.rmtree(folder / name)  # each has logs of some megabytes, and a soak makes hundreds
    return outcome.value


def count_calls(lab, folder, wal: str, ops: int) -> int:
    said = attempt(lab, folder, "count", wal, {"ops": ops, "nth": 0, "action": Action.COUNT})
    assert said["raised"] == [] and said["calls"] > 5
    return said["calls"]


def places(calls: int, name: str) -> list[int]:
    if SOAK:
        return list(range(1, calls + 1))
    return sorted(random.Random(name).sample(range(1, calls + 1), min(SAMPLE, calls)))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_call_corrupts_nothing(lab, folder, kind, wal):
    calls = count_calls(lab, folder, wal, KINDS[kind]["ops"])
    runs = hits = raised = 0
    for nth in places(calls, kind):
        said = attempt(lab, folder, f"n{nth}", wal, {**KINDS[kind], "nth": nth})
        runs += 1
        hits += said["hits"] > 0
        raised += len(said["raised"]) > 0
    assert hits > 0
    counts = {"runs": runs, "hit": hits, "told the caller": raised}
    figure(f"{kind}, {wal} log", "0 corrupt after a reopen", **counts)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
@pytest.mark.parametrize("kind", INVISIBLE)
def test_interrupted_and_short_calls_are_invisible(lab, folder, kind, wal):
    calls = count_calls(lab, folder, wal, INVISIBLE[kind]["ops"])
    chosen = places(calls, kind)
    for nth in chosen:
        said = attempt(lab, folder, f"n{nth}", wal, {**INVISIBLE[kind], "nth": nth})
        assert said["opened"] and said["raised"] == []
    figure(f"{kind}, {wal} log", "invisible", runs=len(chosen))


@pytest.mark.parametrize("err", [errno.EIO, errno.ENOSPC])
def test_a_failed_log_write_raises_in_the_caller(lab, folder, err):
    # Before the first rotation, and so without ingests, which rotate: it wakes the task that makes the next log, and no
    # caller waits for that log's head.
    for nth in (3, 10, 20):
        fault = {"ops": mask(Op.PWRITE), "nth": nth, "action": Action.FAIL, "err": err, "match": ".wal"}
        said = attempt(lab, folder, f"n{nth}", "write", fault, large=False)
        assert said["hits"] == 1
        assert said["raised"] != []


KILLED = """
import os, sys, lsmkv
db = lsmkv.open(sys.argv[1], large_value_threshold=128)
db.put(b"small", b"s")
db.put(b"large", b"l" * 5000)
os._exit(0)
"""


def test_an_open_syncs_the_values_it_takes_over(lab, folder):
    """Nobody synced them before the kill: a table may point to them only after that."""
    place = folder / "db"
    assert run_python(KILLED, str(place)).returncode == 0
    fault = {"ops": SYNCS, "nth": 1, "action": int(Action.FAIL), "err": errno.EIO, "match": ".vlog"}
    options = {"large_value_threshold": 128}
    said = lab.run("open_with_fault", folder=str(place), options=options, fault=fault)
    assert said.ok, said.words()
    assert said.value["hits"] == 1
    assert "value log" in said.value["raised"]
    with lsmkv.open(place, **options) as db:
        assert dict(db.items()) == {b"small": b"s", b"large": b"l" * 5000}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("wal", LOG_MODES)
def test_a_failed_fsync_is_final(lab, folder, wal):
    """The write raises, later writes are refused, no second fsync on that file, reads and the data go on."""
    options = {**TINY, "wal": wal, "large_value_threshold": LARGE[wal]}
    nth, read_only = 0, 0
    while True:
        nth += 1
        place = folder / str(nth)
        place.mkdir()
        call = {"folder": str(place / "db"), "options": options}
        paths = {"book_path": str(place / "book"), "trace_path": str(place / "trace")}
        outcome = lab.run("fsync_failure", nth=nth, **paths, **call)
        assert outcome.ok, f"fsync {nth}: {outcome.words()}"
        said = outcome.value
        if said["hits"] == 0:
            break
        monitor = Monitor(lambda _: Needed(), manifest.HEAD_BYTES)
        assert monitor.watch(trace.read(place / "trace")) == [], f"fsync {nth}"
        after = lab.run("check", books=[str(place / "book")], judge="settle_failed", **call)
        assert after.ok, f"fsync {nth}: {after.words()}"
        assert after.value["problems"] == [], f"fsync {nth}"
        shutil.rmtree(place)
        if "open" in said:
            continue
        read_only += 1
        assert len(said["raised"]) == 5, f"fsync {nth}: {said}"
        assert "acknowledged" not in said["raised"], f"fsync {nth}: {said}"
    assert read_only > 10
    counts = {"places": nth - 1, "made it read-only": read_only}
    figure(f"EIO at each fsync, {wal} log", "the others refused the open", **counts)


def test_a_failed_fsync_in_a_compact_range_is_final(lab, folder):
    options = {**TINY, "l0_compaction_trigger": 100, "l0_slowdown_trigger": 100, "l0_stop_trigger": 100}
    outcome = lab.run("fsync_failure_in_compact_range", folder=str(folder / "db"), options=options)
    assert outcome.ok, outcome.words()
    assert outcome.value == ["IOError", "ReadOnlyError", "none"]


READS = """
import errno, os, random, sys
import lsmkv
from crash.iofault import Action, Control, Op, mask

values = {b"%d" % n: random.Random(n).randbytes(n) for n in (200, 5_000, 70_000, 1_500_000)}
values |= {b"packed%d" % n: b"v" * n for n in (5_000, 70_000)}
control = Control()
reads = {"ops": mask(Op.READ), "match": ".vlog"}

def by_file(db, key):
    with db.open_value(key) as file:
        return file.read()

with lsmkv.open(sys.argv[1], large_value_threshold=100) as db:
    for key, value in values.items():
        db.put(key, value)
    db.flush()
    for read in (lsmkv.DB.get, by_file, lambda db, key: dict(db.items())[key], lambda db, key: db.multi_get([key])[0]):
        for key, value in values.items():
            control.arm(nth=1, action=Action.FAIL, err=errno.EIO, sticky=True, **reads)
            try:
                read(db, key)
            except lsmkv.IOError as error:
                assert error.errno == errno.EIO, error
            else:
                raise AssertionError(f"{key} was read")
            assert control.hits()
            for nth in (1, 2):
                control.arm(nth=nth, action=Action.FAIL, err=errno.EINTR, **reads)
                assert read(db, key) == value
            control.arm(nth=1, action=Action.SHORT, sticky=True, **reads)
            assert read(db, key) == value
            assert control.hits()
            control.disarm()
            assert read(db, key) == value
os._exit(0)
"""


def test_a_read_of_a_large_value_that_fails_raises(tmp_path):
    done = run_python(READS, str(tmp_path / "db"), IOFAULT_ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr


WITHOUT_MAPPINGS = """
import errno, os, sys
import lsmkv
from crash.iofault import Action, Control, Op, mask

control = Control()
control.arm(mask(Op.MMAP), 1, Action.FAIL, errno.ENODEV, True)
db = lsmkv.open(sys.argv[1], wal="write")
for i in range(5):
    db.put(b"%d" % i, b"v", sync=True)
assert control.hits()
os._exit(0)
"""


def test_where_nothing_can_be_mapped_the_log_notes_itself_what_is_synced(tmp_path):
    """The note was once required, so that such a file system could hold no database."""
    path = tmp_path / "db"
    done = run_python(WITHOUT_MAPPINGS, str(path), IOFAULT_ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert read_watermark(path / NAME) is None
    [log] = path.glob("*.wal")
    record = (check_log(log, int(log.stem))["known_synced"] - HEAD_SIZE) // 5
    with open(log, "r+b") as file:
        file.truncate(HEAD_SIZE + record * 2)
    with pytest.raises(CorruptionError, match="synced log records are missing"):
        lsmkv.open(path)

"""Background work: off the GIL, back pressure, errors."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref

import pytest
from treetext import tree

import lsmkv
from lsmkv.compaction import scheduler
from lsmkv.options import Options
from lsmkv.compaction.picker import l0_worth_merging
from lsmkv.compaction.stalls import LAST_DELAY_NS, pressure
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.table import Table
from lsmkv_ext.port.uninterruptible import uninterruptible


def make_table(path, count, step, value=b"v" * 40):
    with lsmkv.SSTWriter(path) as writer:
        for i in range(0, count, step):
            writer.put(b"%012d" % i, value)
    return Table(path, int(path.stem))


def test_a_job_needs_the_gil_neither_for_its_first_byte_nor_for_its_last(tmp_path):
    """While a job merges, this thread computes in pure Python and never lets the GIL go."""
    inputs = [
        make_table(tmp_path / "000001.sst", 300_000, 2),
        make_table(tmp_path / "000002.sst", 300_000, 3),
    ]
    job = Job(inputs, directory=str(tmp_path), numbers=FileNumbers(3), output_level=1, below=[])
    results = []
    worker = threading.Thread(target=lambda: results.append(job.run()))
    before = sys.getswitchinterval()
    worker.start()
    while not job.progress["entries_done"]:
        time.sleep(0)
    sys.setswitchinterval(1e6)
    try:
        began = job.progress["entries_done"]
        deadline = time.monotonic() + 60
        # The one output counts as written when it is finished and synced.
        while not job.progress["bytes_written"] and time.monotonic() < deadline:
            pass
        ended = job.progress
    finally:
        sys.setswitchinterval(before)
    worker.join()
    assert began < ended["entries_done"] == 200_000
    assert ended["bytes_written"] == results[0]["bytes_written"] > 0


def test_outputs_are_cut_where_they_overlap_much_of_the_level_after_next(tmp_path):
    """So that moving one of them on later does not rewrite half of that level."""
    source = make_table(tmp_path / "000001.sst", 40_000, 1)
    below = [(b"%012d" % i, b"%012d" % (i + 999), 1 << 20) for i in range(0, 40_000, 1000)]

    def outputs(numbers, **limits):
        job = Job([source], directory=str(tmp_path), numbers=numbers, output_level=1, below=[], **limits)
        return job.run()["outputs"]

    assert len(outputs(FileNumbers(10), target_file_size=256 << 10, grandparents=below)) == 1
    cut = outputs(
        FileNumbers(20), target_file_size=256 << 10, grandparents=below, max_grandparent_overlap=10 << 20
    )
    assert len(cut) > 1
    for output in cut:
        overlap = [g for g in below if g[0] <= output["largest"] and g[1] >= output["smallest"]]
        assert len(overlap) <= 13  # the ten, the one that is more than that, and both ends


@pytest.mark.parametrize(
    ("files", "stopped"), [(0, False), (19, False), (20, False), (35, False), (36, True)]
)
def test_the_stop_comes_only_at_the_limit(files, stopped):
    version = tree("L0: " + " ".join(f"{n}[a-z]" for n in range(1, files + 1)) if files else "")
    assert pressure(version, Options()).stopped == stopped


def test_writers_are_slowed_smoothly():
    options = Options()
    delays = []
    for files in range(1, 37):
        version = tree("L0: " + " ".join(f"{n}[a-z]" for n in range(1, files + 1)))
        delays.append(pressure(version, options).delay_ns)
    assert delays[:19] == [0] * 19
    slow = delays[19:]
    assert all(0 < a < b for a, b in itertools.pairwise(slow))
    assert all(b / a < 2 for a, b in itertools.pairwise(slow))
    assert slow[-1] == LAST_DELAY_NS


def test_debt_below_l0_slows_too():
    options = Options(write_buffer_size=4096, target_file_size=4096)
    assert pressure(tree("L1: 1[a-z]40000\nL2: 2[a-z]400000"), options).delay_ns == 0
    assert pressure(tree("L1: 1[a-z]900000\nL2: 2[a-z]900000"), options).delay_ns > 0


def test_a_corrupt_block_stops_its_compaction_and_nothing_else(tmp_path):
    path = tmp_path / "db"
    options = {"l0_compaction_trigger": 100, "l0_slowdown_trigger": 100, "l0_stop_trigger": 100}
    with lsmkv.open(path, **options) as db:
        for prefix in (b"a", b"m"):
            for i in range(300):
                db[prefix + b"%04d" % i] = os.urandom(50)
            db.flush()
    victim = min(path.glob("*.sst"))
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(bytes(data))
    with lsmkv.open(path, **options) as db:
        with pytest.raises(lsmkv.CorruptionError, match=victim.name) as raised:
            db.get(b"a0000")
        assert raised.value.file.endswith(victim.name)
        assert raised.value.offset is not None
        assert db.get(b"a0299") is not None
        for i in range(10):
            db[b"a%04d" % i] = b"new"
            db[b"m%04d" % i] = b"new"
        db.flush()
        with pytest.raises(lsmkv.CorruptionError):
            db.compact_range(b"a", b"b")
        assert victim.exists()
        assert db[b"a0000"] == b"new" and db[b"m0000"] == b"new" and len(db[b"m0299"]) == 50
        db[b"z"] = b"writes go on"
        db.flush()
    assert db.closed


def test_a_full_disk_heals(tmp_path):
    """A quota in the shape of a small file system: skipped where none can be mounted."""
    mount = tmp_path / "small"
    mount.mkdir()
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or os.system(f"mount -t tmpfs -o size=24m none {mount} 2>/dev/null")
    ):
        pytest.skip("needs to mount a small tmpfs")
    try:
        filler = mount / "filler"
        with lsmkv.open(mount / "db", write_buffer_size=65536) as db:
            db[b"before"] = b"1"
            db.flush()
            with open(filler, "wb", buffering=0) as file, pytest.raises(OSError):
                while file.write(b"x" * 4096):
                    pass
            acknowledged = {}
            with pytest.raises(lsmkv.IOError) as raised:
                for i in range(100_000):
                    key = b"%06d" % i
                    db[key] = os.urandom(100)
                    acknowledged[key] = db[key]
            assert raised.value.errno == 28
            assert db[b"before"] == b"1"
            assert all(db[key] == value for key, value in acknowledged.items())
            filler.unlink()
            db[b"after"] = b"2"
            db.flush()
            assert db[b"after"] == b"2"
            assert all(db[key] == value for key, value in acknowledged.items())
        with lsmkv.open(mount / "db") as db:
            assert db[b"after"] == b"2"
            assert all(db[key] == value for key, value in acknowledged.items())
    finally:
        # A closed database holds nothing: its note of what is synced once stayed mapped.
        subprocess.run(["umount", mount], check=True)


def test_writers_do_not_wait_for_a_compaction_that_cannot_be(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db[b"a"] = db[b"z"] = os.urandom(100)
        db.flush()
    victim = min(path.glob("*.sst"))
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(bytes(data))
    options = {"l0_compaction_trigger": 2, "l0_slowdown_trigger": 3, "l0_stop_trigger": 4}
    with lsmkv.open(path, **options) as db:
        for i in range(10):
            db[b"b%d" % i] = b"v"
            db.flush()
        assert len(db._versions.current.levels[0]) > 4
        assert db[b"b9"] == b"v"
        assert db.background.errors >= 1
        assert victim.name in db.background.last_error


def test_closing_ends_a_compaction_by_hand(tmp_path):
    db = lsmkv.open(tmp_path / "db", l0_compaction_trigger=100, l0_slowdown_trigger=100, l0_stop_trigger=100)
    for part in range(2):
        with db.write_batch() as batch:
            for i in range(100_000):
                batch.put(b"%08d" % (i * 2 + part), b"v" * 50)
        db.flush()
    outcome = []

    def compact():
        try:
            db.compact_range()
            outcome.append("done")
        except lsmkv.ClosedError:
            outcome.append("closed")

    thread = threading.Thread(target=compact)
    thread.start()
    while not db._jobs.progress() and thread.is_alive():
        time.sleep(0)
    db.close()
    thread.join()
    assert outcome in (["done"], ["closed"])
    assert lsmkv.verify(tmp_path / "db")


def test_an_interrupt_ends_the_wait_and_not_the_work(tmp_path):
    """Ctrl-C while compacting manually, again and again: nothing is left half done."""
    code = f"""
import lsmkv, signal

def ring(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
path = {str(tmp_path / "db")!r}
db = lsmkv.open(path, write_buffer_size=16384, target_file_size=16384)
interrupted = 0
for round_ in range(40):
    for i in range(300):
        db[b"%06d" % (i * 7919 % 1000)] = b"%d" % round_ * 20
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 * (round_ % 20 + 1))
        db.compact_range()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
expected = dict(db.items())
db.close()
with lsmkv.open(path) as db:
    assert dict(db.items()) == expected
print(interrupted, lsmkv.verify(path).findings)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] != "0"
    assert done.stdout.strip().endswith("[]")


def test_an_interrupt_during_writes_leaves_the_writer_slot_free(tmp_path):
    """Ctrl-C while writes rotate the memtable, in the main thread, at every step of it."""
    code = f"""
import lsmkv, signal

def ring(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
db = lsmkv.open({str(tmp_path / "db")!r}, write_buffer_size=16384, target_file_size=16384)
written = interrupted = 0
while interrupted < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00007 * (interrupted % 30))
        while True:
            # At the end of the loop it would be outside of the `try` for Python 3.14's compiler.
            if written % 50 == 0:
                db.flush()
            db[b"%09d" % written] = b"v" * 1000
            written += 1
    except KeyboardInterrupt:
        interrupted += 1
db.flush()
assert db._slot_queue == 0 and db._inflight == 0
# A write may be done and its interrupt come before it is counted.
assert [int(key) for key in db.keys()] in (list(range(written)), list(range(written + 1)))
db.close()
print(lsmkv.verify({str(tmp_path / "db")!r}).findings)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_an_interrupt_leaves_no_lock_taken(tmp_path):
    """Ctrl-C in the calls that take locks, at every step of them."""
    code = f"""
import lsmkv, signal
from lsmkv import lockfile

def ring(*_):
    raise KeyboardInterrupt

def other():
    try:
        lsmkv.open({str(tmp_path / "other")!r}).close()
    except lsmkv.LockError:  # what an interrupt left behind is still being opened and closed
        pass

signal.signal(signal.SIGALRM, ring)
db = lsmkv.open({str(tmp_path / "db")!r}, write_buffer_size=65536, target_file_size=32768)
for i in range(2000):
    db[b"%06d" % (i * 7919 % 4000)] = b"v" * 100
locks = [db._versions.lock, db._versions.commit]
calls = [
    db.stats, db.filter_debt, db.approximate_len, db.approximate_size, db.reset_stats, db._on_seek_debt, other,
    lambda: db.property("lsmkv.memory"), lambda: db.set_options(l0_stop_trigger=50),
    lambda: db.compact_range(wait=False),
]
interrupted = 0
for call in calls:
    for n in range(150):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00003 + 0.000002 * n)
            for _ in range(100):
                call()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        assert not any(lock._is_owned() for lock in locks), call
db._scheduler.wait_idle()
assert db._scheduler.claims.suspended == 0 and not db._scheduler.claims.wanted
db.close()
assert lockfile._guard.acquire(timeout=10)
print(interrupted)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


@pytest.mark.parametrize(("young", "merged"), [(2000, True), (20, False)])
def test_a_quiet_database_merges_the_last_table_of_l0_if_that_is_worth_it(tmp_path, monkeypatch, young, merged):
    monkeypatch.setattr(scheduler, "IDLE_SECONDS", 0.05)
    with lsmkv.open(tmp_path / "db", level_size_ratio=4) as db:
        for i in range(4000):
            db[b"%06d" % i] = b"old%d" % i
        db.compact_range()
        for i in range(0, 4000, 4000 // young):
            db[b"%06d" % i] = b"new%d" % i
        db.flush()
        assert merged or not l0_worth_merging(db._versions.current, db.options)
        deadline = time.monotonic() + 60
        while merged and db._versions.current.levels[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [len(files) for files in db._versions.current.levels[:2]] == ([0, 1] if merged else [1, 1])
        assert db[b"000000"] == b"new0"


def test_the_helper_thread_held_what_its_caller_had_let_go_of():
    """Its last steps may come late: what was handed over must not hang on them."""

    class Thing:
        pass

    for _ in range(200):
        thing = uninterruptible(Thing)
        gone = weakref.ref(thing)
        del thing
        assert gone() is None
        asked = Thing()
        uninterruptible(lambda asked=asked: None)
        gone = weakref.ref(asked)
        del asked
        assert gone() is None

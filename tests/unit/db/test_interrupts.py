"""Interrupts: they end waits, never work halfway."""

import subprocess
import sys
import threading
import weakref

import pytest

import lsmkv
from lsmkv_ext.port.finalization import RLock
from lsmkv_ext.port.uninterruptible import uninterruptible


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
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
assert db._engine.turn_queue == 0 and db._engine.inflight == 0
# A write may be done and its interrupt come before it is counted.
assert [int(key) for key in db.keys()] in (list(range(written)), list(range(written + 1)))
db.close()
print(lsmkv.verify({str(tmp_path / "db")!r}).findings)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
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
    db.stats, db.filter_debt, db.approximate_len, db.approximate_size, db.reset_stats, db._on_seek_debt,
    db._on_dead_debt, other, lambda: db.property("lsmkv.memory"), lambda: db.set_options(l0_stop_trigger=50),
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
assert db._work.claims.suspended == 0 and not db._work.claims.wanted
db.close()
assert lockfile._guard.acquire(timeout=10)
print(interrupted)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


def test_the_helper_thread_keeps_nothing_that_its_caller_released():
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


def test_a_wait_ends_although_its_thread_could_not_clean_up():
    """Memory runs out after the work: the caller that waits for it still returns."""
    code = """
import threading
from lsmkv_ext.port.uninterruptible import uninterruptible

class Full(dict):
    def pop(self, *_):
        raise MemoryError

threading._active = Full(threading._active)
print(uninterruptible(lambda: "done"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "done\n"


@pytest.mark.parametrize("name", [None, "users"])
def test_the_main_thread_takes_no_lock_itself(tmp_path, monkeypatch, name):
    """An interrupt could come between the lock and the block that releases it."""
    taken = []

    class Watched(RLock):
        def __enter__(self):
            if threading.current_thread() is threading.main_thread():
                taken.append(sys._getframe(1).f_code.co_qualname)
            return super().__enter__()

    monkeypatch.setattr("lsmkv.version.version_set.RLock", Watched)
    monkeypatch.setattr("lsmkv.version.version_set.CommitLock", Watched)
    with lsmkv.SSTWriter(tmp_path / "a.sst") as writer:
        writer.put(b"a", b"1")
    with lsmkv.open(tmp_path / "db") as db:
        space = db if name is None else db.keyspace(name)
        space[b"k"] = b"v"
        calls = [
            space.flush,
            space.stats,
            space.filter_debt,
            space.rebuild_filters,
            space.approximate_len,
            space.approximate_size,
            space._on_seek_debt,
            space._on_dead_debt,
            space.compact_range,
            space.sync,
            lambda: space.property("lsmkv.levels"),
            lambda: space.set_options(bits_per_key=12),
            lambda: space.ingest([tmp_path / "a.sst"]),
            lambda: space.explain(b"k"),
            lambda: db.keyspace("other", bits_per_key=12),
            lambda: db.drop_keyspace("other"),
            lambda: db.checkpoint(tmp_path / "checkpoint"),
            db.keyspaces,
            db.reset_stats,
            db.refresh,
            space.snapshot,
        ]
        for call in calls:
            call()
    assert taken == []

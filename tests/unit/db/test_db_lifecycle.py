"""Closing, collection, threads, exit and fork."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest
from databases import fill

import lsmkv
from lsmkv import log_supply
from lsmkv.compaction import subcompaction
from lsmkv.version.version_set import VersionSet


def test_close_is_final_and_idempotent(path):
    db = lsmkv.open(path)
    fill(db, 50)
    snapshot, cursor, iterator, batch = db.snapshot(), db.cursor(), db.iterator(), db.write_batch()
    next(iterator)
    db.close()
    db.close()
    assert db.closed
    for call in (
        lambda: db.get(b"a"),
        lambda: db.put(b"a", b"b"),
        lambda: list(db),
        lambda: db.flush(),
        lambda: db.stats(),
        lambda: snapshot.get(b"a"),
        lambda: cursor.seek(b"a"),
        lambda: next(iterator),
        lambda: batch.write(),
        lambda: db.__enter__(),
    ):
        with pytest.raises(lsmkv.ClosedError):
            call()


def test_a_database_that_nobody_holds_closes_itself(path):
    db = lsmkv.open(path)
    fill(db)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del db
        gc.collect()
    assert any(issubclass(w.category, ResourceWarning) for w in caught)
    with lsmkv.open(path) as db:
        assert len(db) == 500


@pytest.mark.parametrize(
    "holder", ["snapshot()", "prefixed_db(b'').snapshot()", "iterator()", "cursor()", "write_batch()"]
)
def test_releasing_the_last_dependent_of_a_database_is_safe(path, holder):
    """A snapshot that went was still among the children when the database, which it alone held, closed itself."""
    code = f"""
import lsmkv
for i in range(20):
    db = lsmkv.open({str(path)!r})
    db[b"%d" % i] = b"x"
    holder = db.{holder}
    del db
    del holder
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with lsmkv.open(path) as db:
        assert len(db) == 20


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_closing_creates_no_log(path, wal, monkeypatch):
    made = []
    new_log = log_supply.new_log
    monkeypatch.setattr(log_supply, "new_log", lambda *arguments: made.append(arguments) or new_log(*arguments))
    db = lsmkv.open(path, wal=wal)
    db[b"key"] = b"value"
    flush = db._scheduler.flusher._write

    def slow_flush(*arguments):
        time.sleep(0.1)  # in which the thread that makes logs ahead would make one
        return flush(*arguments)

    monkeypatch.setattr(db._scheduler.flusher, "_write", slow_flush)
    db.close()
    assert len(made) == 1  # the one that the next open finds


def test_threads_end_with_the_last_database(tmp_path):
    before = set(threading.enumerate())
    first, second = (lsmkv.open(tmp_path / name, stats_export=True) for name in "ab")
    for db in (first, second):
        fill(db)
        db.flush(wait=False)
        db._scheduler.wait_idle()
    started = set(threading.enumerate()) - before
    assert {"lsmkv-flush", "lsmkv-timer"} <= {thread.name for thread in started}
    first.close()
    second.flush(wait=False)
    second._scheduler.wait_idle()
    assert set(threading.enumerate()) - before
    second.close()
    assert set(threading.enumerate()) <= before


def test_an_idle_database_has_no_thread_of_its_own(tmp_path):
    before = set(threading.enumerate())
    with lsmkv.open(tmp_path / "db") as db:
        fill(db)
        assert list(db)
        assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("make", ["iterator", "cursor", "snapshot"])
def test_an_iterator_that_no_database_made_is_closed(db, make):
    made = type(getattr(db, make)())
    for call in ["next", "prev", "seek", "seek_to_first", "seek_to_start", "key", "get", "take", "skip", "__enter__"]:
        if hasattr(made, call):
            arguments = {"seek": [b"a"], "get": [b"a"], "take": [1], "skip": [1]}.get(call, [])
            with pytest.raises(lsmkv.ClosedError):
                getattr(made.__new__(made), call)(*arguments)
    made.__new__(made).close()


def test_the_thread_of_a_finished_compact_range_is_forgotten(db):
    for _ in range(10):
        db.compact_range(wait=False)
        while [thread for thread in threading.enumerate() if thread.name == "lsmkv-compact-range"]:
            time.sleep(0.001)
    assert len(db._scheduler.unattended.threads) <= 1


def allow_threads(monkeypatch, count):
    """After `count` threads no more can be started, as at a system limit or when the interpreter ends."""
    start, left = threading.Thread.start, iter(range(count))

    def start_or_not(thread):
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)


@pytest.mark.parametrize("options", [{"sync_interval_ms": 10}, {"stats_export": True}])
def test_an_open_without_the_timer_that_it_needs_fails_and_leaves_nothing_running(path, monkeypatch, options):
    with lsmkv.open(path) as db:
        fill(db, 50)
    before = set(threading.enumerate())
    with monkeypatch.context() as few:
        allow_threads(few, 0)
        with pytest.raises(RuntimeError, match="can't start") as caught:
            lsmkv.open(path, **options)
    assert set(threading.enumerate()) <= before
    with lsmkv.open(path, **options) as db:  # while the error still refers to the first one
        assert len(db) == 50
    del caught


@pytest.mark.parametrize("count", range(4))
def test_a_session_that_gets_few_threads_does_its_work(path, monkeypatch, count):
    before = set(threading.enumerate())
    with monkeypatch.context() as few:
        allow_threads(few, count)
        with lsmkv.open(path, max_background_jobs=4, write_buffer_size=8192, l0_compaction_trigger=2) as db:
            fill(db)
            db.flush()
            assert len(db) == 500
    assert set(threading.enumerate()) <= before
    assert lsmkv.verify(path)
    with lsmkv.open(path) as db:
        assert len(db) == 500


def test_manual_work_is_done_even_if_no_thread_can_be_started(path, monkeypatch):
    with lsmkv.open(path, bits_per_key=8, max_background_jobs=4) as db:
        allow_threads(monkeypatch, 0)
        monkeypatch.setattr(subcompaction, "MIN_BYTES", 1)
        for _ in range(2):  # one table alone would be moved, not cut
            fill(db, 1000)
            db.flush()
        db.compact_range()
        tables = db.stats().total.files
        assert tables > 1
        db.set_options(bits_per_key=16)
        assert db.rebuild_filters() == tables
        with pytest.raises(RuntimeError, match="can't start"):
            db.compact_range(wait=False)
    assert lsmkv.verify(path)


@pytest.mark.parametrize(
    "ending",
    ["pass", "raise SystemExit(3)", "1 / 0", "cycle = []; cycle.append((cycle, db)); del db, cycle"],
)
def test_interpreter_exit_with_an_open_database(path, ending):
    code = f"""
import lsmkv
db = lsmkv.open({str(path)!r}, write_buffer_size=65536)
it = iter(db.items())
for i in range(2000):
    db[b"%d" % i] = b"x" * 100
{ending}
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == {"raise SystemExit(3)": 3, "1 / 0": 1}.get(ending, 0), done.stderr
    assert time.monotonic() - began < 30
    with lsmkv.open(path) as db:
        assert len(db) == 2000


def test_fork_leaves_the_parent_alone(path):
    db = lsmkv.open(path)
    fill(db, 50)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                db.get(b"key000001")
            except lsmkv.ForkError:
                db.close()
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    db[b"after"] = b"1"
    with pytest.raises(lsmkv.LockError):
        lsmkv.open(path)
    db.close()
    with lsmkv.open(path) as again:
        assert len(again) == 51


def test_a_walk_keeps_its_database_open(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for i in range(2000):
            db.put(b"%04d" % i, b"v")
    assert [k for k, _ in lsmkv.open(tmp_path / "db").items()] == [b"%04d" % i for i in range(2000)]
    cursor = lsmkv.open(tmp_path / "db").cursor()
    assert cursor.seek(b"0007") and cursor.key() == b"0007"
    del cursor
    with lsmkv.open(tmp_path / "db") as db:  # nobody holds the lock any more
        assert len(db) == 2000


def test_a_close_that_failed_halfway_leaves_the_database_unlocked(path, monkeypatch):
    """Without memory the rest of the close failed, and the process could never open the database again."""
    db = lsmkv.open(path)
    db[b"a"] = b"1"

    def refuse():
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(db._logs, "close", refuse)
        with pytest.raises(MemoryError):
            db.close()
    assert db.closed
    with lsmkv.open(path) as again:
        assert dict(again) == {b"a": b"1"}


def test_a_database_that_is_gone_leaves_nothing_to_the_garbage_collector(path):
    """Its block cache and its open tables would stay until a collection."""
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        db.keyspace("users")[b"a"] = b"1"
        db.flush()
        db.stats()
    gc.collect()
    gc.disable()
    try:
        for mode in ("w", "r"):
            db = lsmkv.open(path, mode)
            db.stats()
            db.refresh()
            left = [weakref.ref(part) for part in (db, db._versions, db._scheduler)]
            db.close()
            del db
            assert [part() for part in left] == [None] * 3
    finally:
        gc.enable()


def test_a_database_in_a_cycle_is_flushed_when_it_is_collected(path):
    db = lsmkv.open(path, wal=None)
    db[b"a"] = b"1"
    db.keyspace("users")[b"a"] = b"2"
    db.itself = [db]
    del db
    with pytest.warns(ResourceWarning):
        gc.collect()
    with lsmkv.open(path) as db:
        assert dict(db) == {b"a": b"1"}
        assert dict(db.keyspace("users")) == {b"a": b"2"}


def test_a_failed_open_leaves_nothing_to_the_garbage_collector(path, monkeypatch):
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
    made = []

    class Watched(VersionSet):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(weakref.ref(self))

    def fail(*_):
        raise lsmkv.CorruptionError("injected")

    monkeypatch.setattr("lsmkv.recovery.stored_state.VersionSet", Watched)
    for mode, step in [("w", "open_writer._start"), ("w", "stored_state.open_table"), ("r", "open_reader._read_logs")]:
        gc.collect()
        gc.disable()
        try:
            with monkeypatch.context() as patch:
                patch.setattr(f"lsmkv.recovery.{step}", fail)
                with pytest.raises(lsmkv.CorruptionError):
                    lsmkv.open(path, mode)
            # The error may refer to itself, and then keeps the version set.
            assert made and not any(left.tables or left.trees for left in (ref() for ref in made) if left is not None)
        finally:
            gc.enable()

"""Closing a database or an iterator from inside one of its calls, and databases in reference cycles."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress

import pytest

import lsmkv
from lsmkv_ext.port.section import section


@pytest.fixture
def filled(db):
    for i in range(3000):
        db.put(b"%06d" % i, b"v" * 20)
    return db


class InCollection:
    """Within the block, a garbage collection at a chosen allocation calls `act` once."""

    def __init__(self, act, after=50):
        self.act, self.after, self.done = act, after, False

    def _called(self, phase, info):
        if not self.done:
            self.done = True
            self.act()

    def __enter__(self):
        self.thresholds = gc.get_threshold()
        gc.collect()
        gc.callbacks.append(self._called)
        gc.set_threshold(gc.get_count()[0] + self.after)
        return self

    def __exit__(self, *exc):
        gc.set_threshold(*self.thresholds)
        gc.callbacks.remove(self._called)


@pytest.mark.parametrize("what", ["database", "iterator"])
def test_a_collection_inside_take_closed_what_it_walks(filled, what):
    it = filled.iterator()
    collection = InCollection(filled.close if what == "database" else it.close)
    with collection:
        try:
            it.take(3000)
        except lsmkv.ClosedError:
            pass
        else:
            # From Python 3.12 on no collection runs inside a C function.
            assert not collection.done or sys.version_info >= (3, 12)


@pytest.mark.parametrize("after", range(1, 30))
def test_a_collection_inside_explain_closed_the_database(filled, after):
    with InCollection(filled.close, after), suppress(lsmkv.ClosedError):
        filled.explain(b"000001")


CALLS = {
    "put": lambda db, sync: db.put(b"k", b"v", sync=sync),
    "delete": lambda db, sync: db.delete(b"k", sync=sync),
    "delete_range": lambda db, sync: db.delete_range(b"a", b"b", sync=sync),
    "write": lambda db, sync: db.write(_batch(), sync=sync),
}


def _batch():
    batch = lsmkv.WriteBatch()
    batch.put(b"k", b"v")
    return batch


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_the_truth_of_sync_closed_the_database(db, call, answer):
    class Closing:
        def __bool__(self):
            db.close()
            return answer

    with pytest.raises(lsmkv.ClosedError):
        CALLS[call](db, Closing())


BUFFERS = {
    "put key": lambda db, key: db.put(key, b"v"),
    "put value": lambda db, key: db.put(b"k", key),
    "delete": lambda db, key: db.delete(key),
    "delete_range": lambda db, key: db.delete_range(key, b"z"),
    "get": lambda db, key: db.get(key),
    "multi_get": lambda db, key: db.multi_get([key]),
    "iterator": lambda db, key: db.iterator(start=key),
    "cursor": lambda db, key: db.cursor(prefix=key),
    "explain": lambda db, key: db.explain(key),
    "seek": lambda db, key: db.iterator().seek(key),
    "prefixed": lambda db, key: db.prefixed_db(b"p").put(key, b"v"),
}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python code cannot define a buffer")
@pytest.mark.parametrize("call", BUFFERS)
def test_a_buffer_closed_the_database(db, call):
    class Closing:
        def __buffer__(self, flags):
            db.close()
            return memoryview(b"x")

    with pytest.raises(lsmkv.ClosedError):
        BUFFERS[call](db, Closing())


def test_a_batch_and_a_cursor_of_a_closed_database_raise(db):
    db.put(b"k", b"v")
    batch, cursor, free = db.write_batch(), db.cursor(), lsmkv.WriteBatch()
    assert cursor.seek(b"k") and cursor.valid
    db.close()
    for call in (
        lambda: cursor.valid,
        lambda: batch.put(b"k", b"v"),
        lambda: batch.put(bytearray(b"k"), b"v"),
        lambda: batch.delete(b"k"),
        lambda: batch.delete_range(b"a", b"b"),
        lambda: batch.append(free),
        lambda: batch.write(),
    ):
        with pytest.raises(lsmkv.ClosedError):
            call()
    free.put(b"k", b"v")  # belongs to no database


def test_a_snapshot_is_made_once(db):
    snapshot = db.snapshot()
    with pytest.raises(TypeError):
        snapshot.__init__(db)
    with pytest.raises(TypeError, match="already"):
        snapshot.prefixed_db(b"a").snapshot()


class ClosingWhenDropped:
    def __init__(self, db):
        self.db = db

    def __del__(self):
        self.db.close()


def test_a_snapshot_that_is_being_deallocated_was_revived_by_a_close(db):
    db.put(b"k", b"v")
    snapshot = db.snapshot()
    snapshot.mine = ClosingWhenDropped(db)
    del snapshot
    assert db.closed


DEPENDENTS = {
    "iterator": lambda db: db.iterator(),
    "moved iterator": lambda db: (lambda it: (it.next(), it)[1])(db.iterator()),
    "cursor": lambda db: db.cursor(),
    "snapshot": lambda db: db.snapshot(),
    "iterator of a snapshot": lambda db: db.snapshot().iterator(),
    "batch": lambda db: db.write_batch(),
    "generator": lambda db: (key for key in db),
    "view": lambda db: db.items(),
    "prefixed": lambda db: db.prefixed_db(b"a").iterator(),
}


@pytest.mark.parametrize("kind", DEPENDENTS)
def test_a_database_that_holds_its_own_dependents_is_collected(path, kind):
    threads = threading.active_count()
    db = lsmkv.open(path)
    db.put(b"a", b"b")
    db.flush()
    db.mine = DEPENDENTS[kind](db)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del db
        gc.collect()
    assert threading.active_count() == threads
    with lsmkv.open(path) as db:
        assert db[b"a"] == b"b"


def test_a_table_iterator_in_a_cycle_outlived_its_table(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst") as writer:
        for i in range(1000):
            writer.put(b"%06d" % i, b"v" * 20)
    for _ in range(20):
        reader = lsmkv.SSTReader(tmp_path / "t.sst")
        entries = reader.table.entries()
        next(entries)
        cycle = [entries, reader]
        cycle.append(cycle)
        del reader, entries, cycle
        gc.collect()


def fill_memtable(db):
    """The next write rotates."""
    while db._engine.active.used_bytes < db._engine.capacity:
        db.put(b"fill", b"f" * 4000)


def test_a_signal_handler_closed_the_database_inside_a_rotation(path):
    """The writer waited for the rotation and ran the handler, whose close waited for the writer's turn."""
    db = lsmkv.open(path, write_buffer_size=64 << 10)
    fill_memtable(db)
    rotate = db._logs.rotate

    def rotate_and_signal():
        db._logs.rotate = rotate  # once: the close rotates too
        os.kill(os.getpid(), signal.SIGUSR1)
        rotate()

    db._logs.rotate = rotate_and_signal
    before = signal.signal(signal.SIGUSR1, lambda *_: db.close())
    try:
        db.put(b"k", b"v")
        assert threading.current_thread() is threading.main_thread()
    except lsmkv.ClosedError:
        pass
    finally:
        signal.signal(signal.SIGUSR1, before)
    db.close()
    assert db.closed


def test_inside_a_section_reads_and_short_writes_work_and_a_close_is_left_to_another_thread(db):
    def finalizer():
        db.put(b"k", b"v")
        assert db.get(b"k") == b"v"
        assert list(db.items()) == [(b"k", b"v")]
        for call in (db.flush, db.compact_range, db.stats, db.rebuild_filters):
            with pytest.raises(lsmkv.Error, match="in the middle of another call"):
                call()
        db.close()

    section(finalizer)
    for thread in threading.enumerate():
        if thread.name == "lsmkv-close":
            thread.join()
    assert db.closed


def test_a_finalizer_wrote_inside_a_rotation(path):
    """It waited for the turn that its own thread held."""
    db = lsmkv.open(path, write_buffer_size=64 << 10)
    fill_memtable(db)
    raised = []

    def write():
        try:
            db.put(b"inner", b"v" * 100_000)
            db.put(b"inner", b"v")
        except lsmkv.Error as error:
            raised.append(error)

    rotate = db._logs.rotate
    db._logs.rotate = lambda: (write(), rotate())[1]
    db.put(b"k", b"v")
    assert raised and db[b"k"] == b"v"
    db.close()


def test_without_a_log_no_write_is_acknowledged_after_the_last_flush(path):
    """It came after the last flush, by a signal handler or another thread."""
    db = lsmkv.open(path, wal=None)
    db.put(b"a", b"1")
    stop = db._scheduler.stop
    raised = []

    def stop_later():
        with pytest.raises(lsmkv.ClosedError) as caught:
            db.put(b"late", b"1")
        raised.append(caught)
        stop()

    db._scheduler.stop = stop_later
    db.close()
    assert raised
    with lsmkv.open(path) as db:
        assert dict(db.items()) == {b"a": b"1"}

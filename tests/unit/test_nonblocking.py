"""Calls that do their work at once or not at all (lsmkv_ext.nonblocking)."""

import os
import random
import threading

import lz4.block
import pytest
from databases import fill, keep_still

import lsmkv
from lsmkv_ext.nonblocking import (
    WOULD_BLOCK,
    reads_at_once,
    try_delete,
    try_get,
    try_multi_get,
    try_put,
    try_write,
)
from lsmkv_ext.port import codecs

ITEM = b"ada", b"1815"


def batch_of(db, *items):
    batch = db.write_batch()
    for item in items:
        batch.put(*item)
    return batch


def refuses_all(db):
    """Whether no write is made now."""
    made = try_put(db, *ITEM), try_delete(db, b"ada"), try_write(db, batch_of(db, ITEM))
    assert len(set(made)) == 1, "some, but not others"
    return not made[0]


@pytest.fixture
def ready(db):
    """A database whose log has room."""
    db.put(*ITEM)
    assert try_put(db, *ITEM)
    return db


# --- reads -----------------------------------------------------------------------------------------------------------


def test_reads_agree_with_the_ordinary_ones(on_disk):
    """Over memtables, tables, tombstones, expiries, range tombstones, value logs and snapshots."""
    rng = random.Random(7)
    clock = lsmkv.ManualClock()
    with lsmkv.open(on_disk / "db", clock=clock, large_value_threshold=500) as db:
        keys = [b"%03d" % i for i in range(300)]
        held = []
        for _ in range(6):
            for key in rng.sample(keys, 150):
                kind = rng.random()
                if kind < 0.6:
                    db.put(key, os.urandom(rng.choice((0, 10, 400, 2000))))
                elif kind < 0.8:
                    db.put(key, b"short-lived", ttl=rng.choice((5, 1000)))
                else:
                    db.delete(key)
            start = rng.randrange(290)
            db.delete_range(b"%03d" % start, b"%03d" % (start + 10))
            clock.advance(4)
            held.append(db.snapshot())
            if rng.random() < 0.7:
                db.flush()
        for reader in (db, *held):
            expected = [reader.get(key, 0) for key in keys]  # brings the blocks into memory
            assert [try_get(reader, key, 0) for key in keys] == expected
            assert try_multi_get(reader, keys, 0) == expected
            assert all(reads_at_once(reader, key) for key in keys)


def test_a_read_that_may_wait_reads_nothing(path):
    with lsmkv.open(path, block_size=32 << 10, compression=None) as db:
        for i in range(1000):
            db[b"%04d" % i] = os.urandom(100)
        db.flush()
        db.reset_stats()
        assert try_get(db, b"0500") is WOULD_BLOCK
        assert try_multi_get(db, [b"none", b"0500"]) is WOULD_BLOCK
        assert not reads_at_once(db, b"0500")
        stats = db.stats()
        assert (stats.reads.gets, stats.reads.disk_reads) == (0, 0)
        assert repr(WOULD_BLOCK) == "WOULD_BLOCK"
        value = db.get(b"0500")
        assert try_get(db, b"0500") == value
        assert db.stats().reads.gets == 2


def test_a_long_value_in_a_value_log_is_left_to_a_thread(db):
    db.put(b"long", os.urandom(100_000))
    assert db.get(b"long") is not None
    assert try_get(db, b"long") is WOULD_BLOCK


def test_blocks_in_the_page_cache_are_read_at_once(on_disk):
    with lsmkv.open(on_disk / "db", block_cache_size=0) as db:
        fill(db, 500)
        db.flush()
        expected = dict(db)
        assert {key: try_get(db, key) for key in expected} == expected


def test_a_damaged_block_raises(on_disk):
    path = on_disk / "db"
    with lsmkv.open(path, compression=None) as db:
        fill(db, 500)
    (table,) = path.glob("*.sst")
    with open(table, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 50)
    with lsmkv.open(path) as db, pytest.raises(lsmkv.CorruptionError):
        try_get(db, b"key000000")


def test_a_codec_that_lets_go_of_the_gil_leaves_no_old_row(on_disk, monkeypatch):
    """The Python functions of lz4 do, where the C functions are not found."""
    real = lz4.block.decompress
    with lsmkv.open(on_disk / "db", block_cache_size=0, row_cache_size=1 << 20) as db:
        keep_still(db)
        fill(db, 100)
        db.flush()
        key, new, begun = b"key000005", b"new", []

        def overwrite():
            db.put(key, new)
            db.flush()

        def decompress(*args, **options):
            if not begun:
                begun.append(threading.Thread(target=overwrite))
                begun[0].start()
                begun[0].join()
            return real(*args, **options)

        assert try_get(db, key) == b"000005" * 16  # the row cache keeps what it is offered twice
        codecs.use("python")
        try:
            monkeypatch.setattr(lz4.block, "decompress", decompress)
            assert try_get(db, key) == b"000005" * 16
            assert begun
        finally:
            monkeypatch.undo()
            codecs.use("c")
        assert try_get(db, key) == new
        assert db.get(key) == new


def test_hot_keys_come_from_the_row_cache(db):
    fill(db, 500)
    db.flush()
    value = db.get(b"key000007")
    for _ in range(20_000):
        assert try_get(db, b"key000007") == value
    assert db.stats().reads.row_hits > 10_000


# --- writes ----------------------------------------------------------------------------------------------------------


def test_writes_are_those_of_the_ordinary_calls(ready):
    assert try_put(ready, b"bob", b"1", ttl=100)
    assert 0 < ready.ttl(b"bob") <= 100
    assert try_put(ready, b"eve", b"2")
    assert try_delete(ready, b"eve")
    assert try_write(ready, batch_of(ready, (b"x", b"3"), (b"y", b"4")))
    assert dict(ready) == {b"ada": b"1815", b"bob": b"1", b"x": b"3", b"y": b"4"}
    path = ready.path
    ready.close()
    with lsmkv.open(path) as again:
        assert set(again) == {b"ada", b"bob", b"x", b"y"}


def test_a_write_without_room_in_the_log_is_left_to_a_thread(path):
    with lsmkv.open(path) as db:
        assert refuses_all(db)  # nothing is allocated yet
        db.put(*ITEM)
        assert not refuses_all(db)
        before = db.stats().log.bytes
        while try_put(db, b"k", b"v" * 500):
            pass
        assert db.stats().log.bytes - before < 1 << 20
        db.put(b"k", b"v" * 500)
        assert try_put(db, b"k", b"v" * 500)


def test_a_write_that_waits_for_its_turn_is_left_to_a_thread(ready):
    with ready._engine.exclusive():
        assert refuses_all(ready)
    assert not refuses_all(ready)


def test_a_write_under_back_pressure_is_left_to_a_thread(ready):
    engine = ready._engine
    for hold, release in (
        (lambda: engine.set_stopped(True), lambda: engine.set_stopped(False)),
        (lambda: engine.set_delay(1000), lambda: engine.set_delay(0)),
        (lambda: engine.set_reserve_used(True), lambda: engine.set_reserve_used(False)),
    ):
        hold()
        try:
            assert refuses_all(ready)
        finally:
            release()
        assert not refuses_all(ready)


def test_a_write_that_rotates_is_left_to_a_thread(path):
    with lsmkv.open(path, write_buffer_size=64 << 10) as db:
        keep_still(db)
        for i in range(2000):
            if not try_put(db, b"%04d" % i, b"v" * 100):
                assert db.background.flushes == 0 or db.stats().memtable.entries
                db.put(b"%04d" % i, b"v" * 100)
        db.flush()
        assert len(db) == 2000


def test_a_synced_write_is_left_to_a_thread(path):
    with lsmkv.open(path) as db:
        db.put(*ITEM)
        assert not try_put(db, *ITEM, sync=True)
        assert not try_delete(db, b"ada", sync=True)
        assert not try_write(db, batch_of(db, ITEM), sync=True)
    with lsmkv.open(path, sync=True) as db:
        db.put(*ITEM)
        assert refuses_all(db)
        assert try_put(db, *ITEM, sync=False)


def test_large_values_and_batches_are_left_to_a_thread(ready):
    large = ready.options.large_value_threshold
    assert not try_put(ready, b"large", b"v" * large)
    assert not try_write(ready, batch_of(ready, (b"large", b"v" * large)))
    assert not try_write(ready, batch_of(ready, *((b"%05d" % i, b"v" * 100) for i in range(1000))))
    assert not try_put(ready, b"k" * 70_000, b"")
    assert dict(ready) == dict([ITEM])


def test_another_log_is_left_to_a_thread(path):
    with lsmkv.open(path, wal="write") as db:
        db.put(*ITEM)
        assert refuses_all(db)
    with lsmkv.open(path, wal=None) as db:
        assert not refuses_all(db)


def test_a_batch_of_another_keyspace_is_left_to_the_ordinary_call(ready, tmp_path):
    users = ready.keyspace("users")
    assert not try_write(users, batch_of(ready, ITEM))
    assert try_write(users, batch_of(users, ITEM))
    with lsmkv.open(tmp_path / "other") as other:
        batch = other.write_batch()
        batch.put(*ITEM, keyspace=other.keyspace("users"))
        assert not try_write(ready, batch)


def test_closed_read_only_and_dropped(path):
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        users.put(*ITEM)
        db.drop_keyspace("users")
        db.put(*ITEM)
        for call in (lambda: try_get(users, b"ada"), lambda: try_put(users, *ITEM), lambda: try_delete(users, b"ada")):
            with pytest.raises(lsmkv.KeyspaceError):
                call()
        batch = batch_of(db, ITEM)
    for call in (
        lambda: try_get(db, b"ada"),
        lambda: try_multi_get(db, [b"ada"]),
        lambda: reads_at_once(db, b"ada"),
        lambda: try_put(db, *ITEM),
        lambda: try_delete(db, b"ada"),
        lambda: try_write(db, batch),
    ):
        with pytest.raises(lsmkv.ClosedError):
            call()
    with lsmkv.open(path, "r") as reader:
        assert reader.get(b"ada") == try_get(reader, b"ada") == b"1815"
        with pytest.raises(lsmkv.ReadOnlyError):
            try_put(reader, *ITEM)

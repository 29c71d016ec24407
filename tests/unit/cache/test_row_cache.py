"""The row cache: it answers for keys that are read again and again, and never with anything but the truth."""

from __future__ import annotations

import random
import sys

import pytest

import lsmkv


def row_hits(db):
    return db.stats().reads.row_hits


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for i in range(1000):
            db[b"%04d" % i] = b"first %d" % i
        db.flush()
        yield db


def read_often(db, key):
    for _ in range(4):
        last = db.get(key)
    return last


def test_a_key_read_often_is_answered_without_a_table(db):
    assert read_often(db, b"0007") == b"first 7"
    assert row_hits(db) == 2
    before = db.stats()
    assert db[b"0007"] == b"first 7" and b"0007" in db
    after = db.stats()
    assert after.reads.row_hits - before.reads.row_hits == 2
    assert after.reads.found - before.reads.found == 2
    assert sum(level.filter.checks for level in after.levels) == sum(level.filter.checks for level in before.levels)


def test_an_absent_key_never_has_a_row(db):
    assert read_often(db, b"absent") is None
    assert row_hits(db) == 0


def test_whatever_changes_a_key_is_seen(db, tmp_path):
    key = b"0007"
    read_often(db, key)
    snapshot = db.snapshot()
    db[key] = b"second"
    assert read_often(db, key) == b"second" and snapshot[key] == b"first 7"
    db.flush()
    assert read_often(db, key) == b"second" and snapshot[key] == b"first 7"
    del db[key]
    assert read_often(db, key) is None
    db.compact_range()
    assert read_often(db, key) is None
    with lsmkv.SSTWriter(tmp_path / "in.sst") as writer:
        writer.put(key, b"third")
    db.ingest([tmp_path / "in.sst"])
    assert read_often(db, key) == b"third"
    db.delete_range(b"0000", b"0010")
    assert read_often(db, key) is None
    db.flush()
    assert read_often(db, key) is None and snapshot[key] == b"first 7"


def test_a_snapshot_of_the_same_tables_may_use_the_rows(db):
    read_often(db, b"0007")
    before = row_hits(db)
    assert db.snapshot()[b"0007"] == b"first 7"
    assert row_hits(db) == before + 1


def test_rows_can_be_had_more_of_and_none(tmp_path):
    with lsmkv.open(tmp_path / "db", row_cache_size=0) as db:
        db[b"k"] = b"v"
        db.flush()
        read_often(db, b"k")
        assert row_hits(db) == 0
        db.set_options(row_cache_size=1 << 20)
        read_often(db, b"k")
        assert row_hits(db) > 0
        db.set_options(row_cache_size=0)
        before = row_hits(db)
        assert read_often(db, b"k") == b"v" and row_hits(db) == before
        assert db._engine.counters(db._live)["row_bytes"] == 0


def test_a_reader_that_fills_no_cache_fills_no_rows(db):
    for _ in range(4):
        db.get(b"0007", fill_cache=False)
    assert row_hits(db) == 0


def test_rows_stay_within_their_size_and_out_of_the_blocks(tmp_path):
    size = 64 << 10
    with lsmkv.open(tmp_path / "db", block_cache_size=16 * size) as db:
        assert db.options.row_bytes == size
        assert db.options.block_bytes == 15 * size
        for i in range(5000):
            db[b"%d" % i] = bytes(400)
        db.flush()
        rng = random.Random(1)
        for _ in range(30_000):
            assert db[b"%d" % rng.randrange(1000)] == bytes(400)
        assert 0 < db._engine.counters(db._live)["row_bytes"] <= size


def test_single_reads_drive_no_hot_key_out(db):
    db.set_options(row_cache_size=1024)
    hot = [b"0001", b"0002"]
    for _ in range(100):
        for key in hot:
            db.get(key)
    before = row_hits(db)
    cold = iter(range(100, 1000))
    for _ in range(300):
        db.get(b"%04d" % next(cold))
        for key in hot:
            db.get(key)
    assert row_hits(db) - before > 300


def test_values_are_released_by_close(tmp_path):
    db = lsmkv.open(tmp_path / "db")
    db[b"k"] = b"value of the row"
    db.flush()
    value = read_often(db, b"k")
    assert db.get(b"k") is value
    held = sys.getrefcount(value)
    db.close()
    assert sys.getrefcount(value) == held - 1


def test_rows_rest_where_no_key_comes_again(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        with db.write_batch() as batch:
            for i in range(40_000):
                batch.put(b"%05d" % i, b"v")
        db.flush()
        for i in range(4096):
            db.get(b"%05d" % i)
        # A rest: even a key asked for again and again has no row.
        for _ in range(3 * 4096):
            db.get(b"00007")
        assert row_hits(db) == 0
        # Then a trial, which pays.
        for _ in range(8192):
            db.get(b"00007")
        assert row_hits(db) == 8192 - 1


def test_hot_keys_find_room_where_there_is_room(tmp_path):
    """Half as many keys as rows: with two rows to a set and nowhere else to go, a fifth of them were turned away."""
    keys = [b"%016d" % n for n in range(10_000)]
    with lsmkv.open(tmp_path / "db", row_cache_size=4 << 20) as db:
        for key in keys:
            db[key] = b"v" * 100
        db.flush()
        for _ in range(6):
            for key in keys:
                db.get(key)
        before = row_hits(db)
        for key in keys:
            db.get(key)
        assert row_hits(db) - before > 0.95 * len(keys)
        assert db._engine.counters(db._live)["row_bytes"] <= 4 << 20

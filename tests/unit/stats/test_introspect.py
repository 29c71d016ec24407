"""Statistics, properties, explain and approximations of an open database."""

import os
import time

import pytest
from databases import fill

import lsmkv


def test_approximations(db):
    fill(db, 2000)
    db.flush()
    whole = db.approximate_size()
    half = db.approximate_size(b"key", b"key001000")
    assert 0.4 * whole < half < 0.6 * whole
    assert db.approximate_size(b"x", b"z") == 0
    assert db.approximate_len() == 2000


def test_properties(db):
    fill(db, 100)
    db.flush()
    assert db.property("lsmkv.num-files-at-level0") == "1"
    assert db.property("lsmkv.num-files-at-level9") is None
    assert db.property("no.such.thing") is None
    from lsmkv.stats.introspect import PROPERTIES

    for name in PROPERTIES:
        assert db.property(name)
    with pytest.raises(TypeError, match="a property's name is a str, not bytes"):
        db.property(b"lsmkv.levels")


def test_explain(db):
    fill(db, 100)
    db.flush()
    found = db.explain(b"key000050")
    assert found.found
    assert found.steps[-1].result == "found" and found.steps[-1].filter == "maybe"
    assert "L0" in str(found)
    assert found.to_dict()["ns"] == found.ns
    assert not db.explain(b"key0000505").found


def test_stats_follow_the_work_and_can_be_reset(db):
    fill(db, 100)
    db.flush()
    db.get(b"key000001")
    stats = db.stats()
    assert stats.writes.puts == 100
    assert stats.reads.gets == 1
    assert stats.flush.count == 1
    assert stats.total.files == 1
    db.reset_stats()
    stats = db.stats()
    assert stats.writes.puts == stats.reads.gets == stats.flush.count == 0
    assert stats.total.files == 1


def test_deletes_in_a_batch_count_as_deletes(db):
    with db.write_batch() as batch:
        batch.put(b"a", b"1")
        batch.delete(b"a")
        other = db.write_batch()
        other.delete_range(b"a", b"c")
        batch.append(other)
    db.delete_range(b"a", b"b")
    writes = db.stats().writes
    assert (writes.puts, writes.deletes, writes.batches) == (1, 3, 2)


def test_stats_export(path):
    import json

    with lsmkv.open(path, stats_export=True) as db:
        fill(db, 10)
        deadline = time.monotonic() + 30
        while not (path / "STATS").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert json.loads((path / "STATS").read_bytes())["pid"] == os.getpid()

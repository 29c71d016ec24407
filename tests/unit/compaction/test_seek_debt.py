"""Seeks that keep looking into several tables of L0 get them merged, below the usual trigger."""

import time

import lsmkv


def test_seeks_merge_l0(tmp_path):
    with lsmkv.open(tmp_path / "db", l0_compaction_trigger=20) as db:
        for part in range(3):
            for i in range(part, 300, 3):
                db.put(b"%04d" % i, b"v")
            db.flush()
        assert len(db._engine.state.levels[0]) == 3
        merged = False
        deadline = time.monotonic() + 60
        while not merged and time.monotonic() < deadline:
            for i in range(300):
                assert next(db.iterator(start=b"%04d" % i))[0] == b"%04d" % i
            merged = len(db._engine.state.levels[0]) == 0
        assert merged
        assert list(db) == [b"%04d" % i for i in range(300)]


def test_scans_count_what_they_read(tmp_path):
    with lsmkv.open(tmp_path / "db", block_cache_size=0) as db:
        for i in range(5000):
            db.put(b"%05d" % i, b"v" * 50)
        db.flush()
        db.reset_stats()
        assert sum(1 for _ in db.items()) == 5000
        counters = db._engine.counters(db._live)
        assert counters["disk_reads"] > 0
        assert counters["disk_bytes"] > 0
        assert counters["nexts"] == 5000
        assert counters["seeks"] == 1

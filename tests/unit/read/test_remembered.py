"""An absent key that passes a filter costs one wasted read of each table, however often it is asked for."""

import threading

import pytest

import lsmkv

N = 4000
# One bit per key: a third of the absent keys pass.
OPTIONS = {"bits_per_key": 1, "row_cache_size": 0, "l0_compaction_trigger": 20}


def key(i):
    return b"key%08d" % i


def absent(i):
    return b"key%08dx" % i


def keep_still(db):
    db._work.claims.suspended += 1


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db", **OPTIONS) as db:
        keep_still(db)
        for i in range(N):
            db[key(i)] = b"%d" % i
        db.flush()
        yield db


def false_positives(db, n=10):
    """Absent keys that pass the filter of the only table. So few have a place each, however they hash."""
    (table,) = db._tree.tables()
    return [k for k in map(absent, range(N)) if table.may_contain(k)][:n]


def reads(db):
    stats = db.stats()
    return stats.cache.hits + stats.reads.disk_reads


def test_a_hot_absent_key_costs_one_wasted_read(db):
    (hot,) = false_positives(db, 1)
    db.reset_stats()
    for _ in range(1000):
        assert db.get(hot) is None
    total = db.stats().total.filter
    assert reads(db) == 1
    assert (total.false_positives, total.remembered) == (1, 999)
    assert total.checks == total.lookups == total.positives == 1000
    assert total.blocks_skipped == 0


def test_batches_and_snapshots_remember_too(db):
    hot = false_positives(db)
    db.reset_stats()
    with db.snapshot() as snapshot:
        for _ in range(10):
            assert db.multi_get(hot) == [None] * len(hot)
            assert [snapshot.get(k) for k in hot] == [None] * len(hot)
            assert not any(k in db for k in hot)
    assert reads(db) == len(hot)
    assert db.stats().total.filter.remembered == 29 * len(hot)


def test_a_read_only_handle_remembers(tmp_path, db):
    hot = false_positives(db)
    with lsmkv.open(tmp_path / "db", "r", **OPTIONS) as reader:
        for _ in range(3):
            assert [reader.get(k) for k in hot] == [None] * len(hot)
        assert reads(reader) == len(hot)


def test_a_remembered_key_is_found_once_it_is_put(db):
    hot = false_positives(db)
    for _ in range(2):
        assert db.multi_get(hot) == [None] * len(hot)
    with db.snapshot() as before:
        for k in hot:
            db[k] = b"new"
        for _ in range(2):
            assert db.multi_get(hot) == [db.get(k) for k in hot] == [b"new"] * len(hot)
            assert [before.get(k) for k in hot] == [None] * len(hot)
            db.flush()
    db.compact_range()
    assert db.multi_get(hot) == [b"new"] * len(hot)


def test_range_tombstones_of_a_remembered_table_still_delete(tmp_path):
    with lsmkv.open(tmp_path / "db", **OPTIONS) as db:
        for i in range(0, N, 2):
            db[key(i)] = b"old"
        db.compact_range()
        keep_still(db)
        db.delete_range(key(0), key(N))
        for i in range(1, N, 2):
            db[key(i)] = b"new"
        db.flush()
        deleted = [key(i) for i in range(0, 40, 2)]
        for _ in range(3):
            assert [db.get(k) for k in deleted] == db.multi_get(deleted) == [None] * len(deleted)
        assert db.stats().total.filter.remembered > 0


def test_an_ingested_table_with_a_seed_of_its_own(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "in.sst", bits_per_key=1) as writer:
        for i in range(N):
            writer.put(key(i), b"in")
    with lsmkv.open(tmp_path / "db", **OPTIONS) as db:
        keep_still(db)
        db.ingest([tmp_path / "in.sst"])
        hot = false_positives(db)
        for _ in range(5):
            assert [db.get(k) for k in hot] == db.multi_get(hot) == [None] * len(hot)
        total = db.stats().total.filter
        assert (total.false_positives, total.remembered) == (len(hot), 9 * len(hot))
        assert [db.get(key(i)) for i in range(50)] == [b"in"] * 50


def test_lookups_that_skip_the_filter_are_not_remembered(db):
    (hot,) = false_positives(db, 1)
    db.compact_range()
    db.reset_stats()
    for _ in range(5):
        assert db.get(hot, expect="hit") is None
    total = db.stats().total.filter
    assert (total.unfiltered, total.remembered, total.remembered_bytes) == (5, 0, 0)


def test_explain_reads_the_table_again(db):
    (hot,) = false_positives(db, 1)
    for _ in range(2):
        db.get(hot)
    (step,) = [step for step in db.explain(hot).steps if step.source == "table"]
    assert step.false_positive


def test_memory_is_counted_bounded_and_given_back(tmp_path):
    with lsmkv.open(tmp_path / "db", **OPTIONS, cache_index_and_filter_blocks=True) as db:
        keep_still(db)
        for i in range(N):
            db[key(i)] = b"%d" % i
        db.flush()
        before = db._versions.cache.stats()["reserved"]
        assert db.stats().total.filter.remembered_bytes == 0
        for i in range(N):
            db.get(absent(i))
        remembered = db.stats().total.filter.remembered_bytes
        assert 64 * len(absent(0)) < remembered < 64 * (256 + 32)
        assert db._versions.cache.stats()["reserved"] == before + remembered
        db.delete_range(b"", b"z")
        db.compact_range()
        assert db.stats().total.filter.remembered_bytes == 0
        assert db._versions.cache.stats()["reserved"] < before


def test_threads_ask_for_the_same_keys(db):
    hot = false_positives(db, 200)
    wrong = []

    def ask(batches):
        for _ in range(20):
            found = db.multi_get(hot) if batches else [db.get(k) for k in hot]
            if any(found) or db.get(key(5)) != b"5":
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

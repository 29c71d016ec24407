"""Seeks and short scans of cached data keep the GIL, whatever the memtable has to sort."""

import sys
import threading
import time

import pytest
from databases import keep_still

import lsmkv


@pytest.fixture
def others():
    """How often another thread has had the GIL. It always waits for it, and gets it only if this one releases it."""
    counts = [0]
    over = threading.Event()

    def count():
        while not over.is_set():
            counts[0] += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(1e6)
    time.sleep(0.1)  # ends its last wait with the usual interval
    yield lambda: counts[0]
    sys.setswitchinterval(before)
    over.set()
    thread.join()


def test_a_seek_beside_a_writer_keeps_the_gil(path, others):
    with lsmkv.open(path, large_value_threshold=None) as db:
        keep_still(db)
        start = others()
        for i in range(200):
            for j in range(20):
                db.put(b"%06d" % (i * 7919 % 20_000 + j), b"v" * 20)
            assert next(db.iterator(start=b"0"))[1] == b"v" * 20
            assert len(db.iterator().take(40)) > 10
        assert others() == start


def test_a_seek_in_cached_tables_keeps_the_gil(path, others):
    with lsmkv.open(path) as db:
        keep_still(db)
        for i in range(5000):
            db.put(b"%06d" % i, b"v" * 20)
        db.flush()
        assert len(list(db.items())) == 5000
        start = others()
        for i in range(0, 4900, 7):
            assert db.iterator(start=b"%06d" % i).take(10)[0][0] == b"%06d" % i
        assert others() == start


def test_blocks_in_the_page_cache_are_read_with_the_gil(on_disk, others):
    with lsmkv.open(on_disk / "db", block_cache_size=0) as db:
        keep_still(db)
        for i in range(5000):
            db.put(b"%06d" % i, b"v" * 20)
        db.flush()
        list(db.items())
        misses = db.stats().cache.misses
        start = others()
        for i in range(0, 4900, 7):
            assert db.iterator(start=b"%06d" % i).take(10)[0][0] == b"%06d" % i
            assert db[b"%06d" % i]
        assert others() == start
        assert db.stats().cache.misses > misses + 500


def test_many_unsorted_entries_are_sorted_without_the_gil(path, others):
    with lsmkv.open(path, large_value_threshold=None) as db:
        keep_still(db)
        start = others()
        for round in range(20):  # the other thread may be slow to wake
            for i in range(40_000):
                db.put(b"%06d%02d" % (i * 7919 % 40_000, round), b"")
            start = others()
            assert next(db.iterator())[0] == b"0" * 8
            if others() > start:
                break
        assert others() > start

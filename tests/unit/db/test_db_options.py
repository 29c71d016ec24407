"""Options and their effect on an open database."""

import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from databases import fill, keep_still

import lsmkv


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory")
def test_a_scan_of_everything_needs_no_more_memory_than_one_of_a_part(path):
    with lsmkv.open(path, write_buffer_size=4 << 20, compression=None) as db:
        for i in range(60_000):
            db[b"%08d" % i] = b"%08d" % i * 128
    code = f"""
import sys
import lsmkv
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
with lsmkv.open({str(path)!r}, "r", block_cache_size=1 << 20) as db:
    steps = iter(db.items())
    for _ in range(10_000):
        next(steps)
    before, most = resident(), 0
    for n, _ in enumerate(steps):
        if n % 1000 == 0:
            most = max(most, resident())
    assert n == 49_999
    print(most - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 4096  # KiB, of 50 MiB that were read


def test_indexes_and_filters_are_charged_to_the_cache_if_told_so(path):
    for charged in (False, True):
        with lsmkv.open(path, "n", cache_index_and_filter_blocks=charged, bits_per_key=20) as db:
            fill(db, 2000)
            db.flush()
            (table,) = db._versions.tables.values()
            filter_bytes = table.filter_info["bytes"]
            assert filter_bytes > 2000
            assert (db.stats().cache.used >= filter_bytes) == charged
            assert db[b"key000007"]
            tables = weakref.ref(table)
            del table
            db.compact_range()
            db.delete_range(b"", b"z")
            db.compact_range()
            assert tables() is None and db.stats().cache.used == 0


def test_compression_is_chosen_per_level(path):
    with lsmkv.open(path, compression=[None, "lz4"]) as db:
        keep_still(db)
        fill(db, 2000)
        db.flush()
        (flushed,) = db._versions.tables.values()
        plain = flushed.properties["data_bytes"]
        db.compact_range()  # nothing is in the way, but a move would leave it as it is
        (packed,) = db._versions.tables.values()
        assert packed.properties["data_bytes"] < plain / 2


def test_set_options_takes_effect_on_new_tables(path):
    with lsmkv.open(path) as db:
        keep_still(db)
        fill(db, 100)
        db.flush()
        db.set_options(bits_per_key=20, block_cache_size=1 << 20)
        fill(db, 100)
        db.flush()
        assert [f.millibits for f in db._versions.default.current.levels[0]] == [20000, 10000]
        with pytest.raises(lsmkv.OptionError, match="wal"):
            db.set_options(wal=None)
        assert lsmkv.Options.decode((path / "OPTIONS").read_bytes()).bits_per_key == 20.0


def test_two_changes_of_options_at_once_both_apply(db):
    changes = [{"bits_per_key": 12}, {"l0_compaction_trigger": 7}]
    threads = [threading.Thread(target=db.set_options, kwargs=change) for change in changes]
    with db._versions.commit:
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert (db.options.bits_per_key, db.options.l0_compaction_trigger) == (12, 7)

"""Memory of cached blocks: the caches' budgets hold, and everything goes back.

The regions belong to the process, so each check runs in a process of its own: caches of other tests may be alive in
this one.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tables import write_table

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.port import slab
from lsmkv_ext.table.table import Table


def in_a_new_process(check, *args):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(check, *args).result()


def written_table(path):
    rows = {b"%08d" % i: (os.urandom(1000), i) for i in range(16_000)}
    write_table(path, rows)
    return rows


def read_third(path, rows, cache):
    table = Table(path, 1, cache)
    for k in sorted(rows)[::3]:
        assert table.get(k) == rows[k]
    return table


def test_large_caches_live_on_slabs(tmp_path):
    """Beyond a few MiB blocks come from 2 MiB regions; the budget holds, and closing gives the slots back."""
    in_a_new_process(check_slots, tmp_path / "t.sst")


def check_slots(path):
    rows = written_table(path)
    assert slab.stats()["slots"] == 0
    cache = BlockCache(8 << 20)
    table = Table(path, 1, cache)
    order = sorted(rows)
    for step in (1, 7, 3):
        for k in order[::step]:
            assert table.get(k) == rows[k]
        assert cache.used <= cache.capacity
    assert cache.stats()["evictions"] > 0
    assert cache.used > cache.capacity // 2
    assert 0 < slab.stats()["slots"] <= cache.stats()["main_blocks"]
    assert slab.stats()["region_bytes"] <= 3 * cache.capacity
    del table
    assert slab.stats()["slots"] == 0


def test_regions_are_kept_for_the_next_table_and_given_back_with_the_budget(tmp_path):
    """A compaction drops tables and all their blocks; those of their successors need the same memory again."""
    cache = BlockCache(32 << 20)
    read_third(tmp_path / "other.sst", written_table(tmp_path / "other.sst"), cache)
    assert slab.stats()["regions"] > 0  # of this process, and none of the check's
    in_a_new_process(check_regions, tmp_path / "t.sst")


def check_regions(path):
    rows = written_table(path)
    assert slab.stats()["regions"] == 0
    cache = BlockCache(32 << 20)
    table = read_third(path, rows, cache)
    full = slab.stats()["regions"]
    assert full >= 4
    del table
    assert slab.stats()["regions"] == full
    table = read_third(path, rows, cache)
    assert slab.stats()["regions"] == full
    del table
    cache.set_capacity(4 << 20)
    assert slab.stats()["regions"] < full
    del cache
    assert slab.stats()["regions"] <= 1

"""Memory of cached blocks: the caches' budgets hold, and everything goes back."""

import os

from tables import write_table

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.port import slab
from lsmkv_ext.table.table import Table


def test_large_caches_live_on_slabs(tmp_path):
    """Beyond a few MiB blocks come from 2 MiB regions; the budget holds, and closing gives the slots back."""
    rows = {b"%08d" % i: (os.urandom(1000), i) for i in range(16_000)}
    write_table(tmp_path / "t.sst", rows)
    before = slab.stats()["slots"]
    cache = BlockCache(8 << 20)
    table = Table(tmp_path / "t.sst", 1, cache)
    order = sorted(rows)
    for step in (1, 7, 3):
        for k in order[::step]:
            assert table.get(k) == rows[k]
        assert cache.used <= cache.capacity
    assert cache.stats()["evictions"] > 0
    assert cache.used > cache.capacity // 2
    held = slab.stats()["slots"] - before
    assert 0 < held <= cache.stats()["main_blocks"]
    regions = slab.stats()["region_bytes"]
    assert regions <= 3 * cache.capacity
    del table
    assert slab.stats()["slots"] == before


def test_regions_are_kept_for_the_next_table_and_given_back_with_the_budget(tmp_path):
    """A compaction drops tables and all their blocks; those of their successors need the same memory again."""
    rows = {b"%08d" % i: (os.urandom(1000), i) for i in range(16_000)}
    write_table(tmp_path / "t.sst", rows)
    empty = slab.stats()["regions"]
    cache = BlockCache(32 << 20)

    def read(cache):
        table = Table(tmp_path / "t.sst", 1, cache)
        for k in sorted(rows)[::3]:
            table.get(k)
        return table

    table = read(cache)
    full = slab.stats()["regions"]
    assert full >= empty + 4
    del table
    assert slab.stats()["regions"] == full
    table = read(cache)
    assert slab.stats()["regions"] == full
    del table
    cache.set_capacity(4 << 20)
    assert slab.stats()["regions"] < full
    del cache
    assert slab.stats()["regions"] <= empty + 1

"""The block cache: its byte budget, scan resistance, and readers that race."""

import os
import random

import pytest
from tables import numbered, write_table
from waiting import run_threads

from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.table.sst_reader import SSTReader
from lsmkv_ext.table.table import Table


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "t.sst"
    write_table(path, numbered(5000, 80), compression=None)
    return path


def key(i: int) -> bytes:
    return b"key%08d" % i


def block_bytes(path) -> int:
    return max(b["raw_size"] for b in Table(path).block_layout()) + 200


def cached(table: Table) -> set[int]:
    return {i for i, b in enumerate(table.block_layout()) if b["cached"]}


def test_hits_cost_no_read(path):
    cache = BlockCache(1 << 20)
    table = Table(path, 1, cache)
    table.get(key(10))
    inserts = cache.stats()["inserts"]
    for _ in range(5):
        table.get(key(10))
    assert cache.stats()["inserts"] == inserts == 1
    entries = table.entries(key(10), key(11))
    list(entries)
    assert (entries.counters["cache_hits"], entries.counters["disk_reads"]) == (1, 0)


def test_budget_is_never_exceeded(path):
    rng = random.Random(4)
    for capacity in (0, 3000, 10_000, 50_000):
        cache = BlockCache(capacity)
        tables = [Table(path, i, cache) for i in range(3)]
        for _ in range(400):
            table = rng.choice(tables)
            i = rng.randrange(5000)
            table.get(key(i))
            if rng.random() < 0.2:
                list(table.entries(key(i), key(i + 100), fill_cache=True))
            assert cache.used <= capacity
        stats = cache.stats()
        assert stats["main_bytes"] + stats["probation_bytes"] == stats["used"]
        if capacity >= 10_000:
            assert stats["used"] > capacity // 2


def test_capacity_zero_reads_everything_from_disk(path):
    cache = BlockCache(0)
    table = Table(path, 1, cache)
    rows = numbered(5000, 80)
    assert all(table.get(k) == rows[k] for k in list(rows)[::97])
    assert cache.stats()["inserts"] == 0
    assert cached(table) == set()


def test_fill_cache_false_leaves_no_trace(path):
    cache = BlockCache(1 << 20)
    table = Table(path, 1, cache)
    table.get(key(1), fill_cache=False)
    list(table.entries(fill_cache=False))
    list(table.entries(mode="compaction", fill_cache=True))
    assert cache.used == 0


def test_a_scan_does_not_push_out_what_gets_use(path):
    one = block_bytes(path)
    cache = BlockCache(40 * one)
    table = Table(path, 1, cache)
    hot = list(range(0, 900, 45))
    for _ in range(3):
        for i in hot:
            table.get(key(i))
    kept = cached(table)
    assert len(kept) == len({table.find_block(key(i)) for i in hot})
    other = Table(path, 2, cache)
    for _ in range(3):
        list(other.entries(fill_cache=True))
    assert kept <= cached(table)
    assert cache.stats()["probation_bytes"] > 0


def test_a_scanned_block_that_a_get_hits_is_promoted(path):
    one = block_bytes(path)
    cache = BlockCache(32 * one)
    table = Table(path, 1, cache)
    # The first blocks of a walk count as a seek's; what comes behind them is a scan's.
    wanted, end = (next(i for i in range(10_000) if table.find_block(key(i)) == block) for block in (6, 9))
    list(table.entries(key(0), key(end), fill_cache=True))
    block = table.find_block(key(wanted))
    assert block in cached(table)
    table.get(key(wanted))
    list(Table(path, 2, cache).entries(fill_cache=True))
    assert block in cached(table)
    assert cache.stats()["promotions"] >= 1


def test_blocks_used_often_outlive_blocks_used_once(path):
    one = block_bytes(path)
    cache = BlockCache(20 * one)
    table = Table(path, 1, cache)
    favourites = {table.find_block(key(i)) for i in (0, 1000, 2000)}
    for i in range(3000):
        table.get(key((i * 37) % 5000))
        for f in (0, 1000, 2000):
            table.get(key(f))
    assert favourites <= cached(table)


def test_closing_a_table_empties_its_part(path):
    cache = BlockCache(1 << 20)
    first, second = Table(path, 1, cache), Table(path, 2, cache)
    for i in range(0, 5000, 50):
        first.get(key(i))
        second.get(key(i))
    used = cache.used
    del first
    assert cache.used == used // 2
    assert second.get(key(50)) is not None
    del second
    assert cache.used == 0


def test_an_iterator_keeps_its_block_through_eviction(path):
    one = block_bytes(path)
    cache = BlockCache(4 * one)
    table = Table(path, 1, cache)
    entries = table.entries(fill_cache=True)
    got = [next(entries)]
    for row in entries:
        got.append(row)
        table.get(key(len(got) * 13 % 5000))
    assert [row[0] for row in got] == sorted(numbered(5000, 80))


def test_shrinking_and_growing(path):
    cache = BlockCache(1 << 20)
    table = Table(path, 1, cache)
    for i in range(0, 5000, 20):
        table.get(key(i))
    cache.set_capacity(20_000)
    assert 0 < cache.used <= 20_000
    cache.set_capacity(0)
    assert cache.used == 0
    cache.set_capacity(1 << 20)
    table.get(key(3))
    assert cache.used > 0


def test_resident_index_and_filter_are_charged(path):
    cache = BlockCache(1 << 20)
    table = Table(path, 1, cache, charge=True)
    assert cache.used == table.memory == cache.stats()["reserved"]
    for i in range(0, 5000, 20):
        table.get(key(i))
    full = cache.used
    other = Table(path, 2, cache, charge=True)
    cache.set_capacity(full)
    assert cache.used <= full
    reserved = other.memory
    del other
    assert cache.stats()["reserved"] == table.memory == reserved
    tiny = BlockCache(100)
    table = Table(path, 3, tiny, charge=True)
    assert table.get(key(0)) == numbered(1, 80)[key(0)]
    assert tiny.stats()["main_bytes"] == 0


def test_many_threads_on_a_small_cache(path):
    """Wrong bytes, a double free or a leak of pins would show here (all the more under a sanitizer)."""
    rows = numbered(5000, 80)
    cache = BlockCache(12_000)
    tables = [Table(path, i, cache) for i in range(2)]

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            table = rng.choice(tables)
            i = rng.randrange(5000)
            assert table.get(key(i)) == rows[key(i)]
            if rng.random() < 0.05:
                assert table.count(fill_cache=True, reverse=rng.random() < 0.5)[0] == 5000
            if rng.random() < 0.1:
                reverse = rng.random() < 0.5
                got = list(table.entries(key(i), key(i + 80), fill_cache=True, reverse=reverse))
                assert all(rows[k] == (v, s) for k, v, s in got)
                assert len(got) == min(80, 5000 - i)

    run_threads(6, work)
    cache.drain()
    assert cache.stats()["limbo_bytes"] == 0
    assert cache.used <= 12_000
    cache.set_capacity(0)
    assert cache.used == 0, "a block is still pinned"


def test_without_the_gil_evicted_blocks_wait_in_limbo(path):
    one = block_bytes(path)
    cache = BlockCache(4 * one)
    table = Table(path, 1, cache)
    assert table.count(fill_cache=True)[0] == 5000
    stats = cache.stats()
    assert stats["limbo_bytes"] > 0
    # ... but no more than a quarter of the budget and a MiB, whatever the length of the scan.
    assert stats["limbo_bytes"] <= cache.capacity // 4 + (1 << 20) + one
    assert cache.used <= cache.capacity
    table.get(key(4000))
    assert cache.stats()["limbo_bytes"] == 0


def test_a_pinned_block_stays_in_limbo_until_its_reader_moves_on(path):
    """A reader with the GIL pins without the lock: an eviction without the GIL may take a block just before."""
    rows = numbered(5000, 80)
    cache = BlockCache(1 << 20)
    table = Table(path, 1, cache)
    entries = table.entries(fill_cache=True)
    got = [next(entries)]
    table.evict_blocks()
    pinned = cache.stats()["limbo_bytes"]
    assert pinned > 0
    assert cache.used == 0
    cache.drain()
    assert cache.stats()["limbo_bytes"] == pinned
    got += entries
    assert {k: (v, s) for k, v, s in got} == rows
    cache.drain()
    assert cache.stats()["limbo_bytes"] == 0


def test_a_huge_block_is_not_cached(tmp_path):
    write_table(tmp_path / "t.sst", {b"k": (os.urandom(100_000), 1)})
    cache = BlockCache(150_000)
    table = Table(tmp_path / "t.sst", 1, cache)
    assert len(table.get(b"k")[0]) == 100_000
    assert cache.used == 0
    assert cache.stats()["rejected"] == 1


def test_reader_with_its_own_cache(path):
    with SSTReader(path, cache_size=0) as reader:
        assert reader[key(0)] == numbered(1, 80)[key(0)][0]


def test_blocks_of_short_walks_stay_like_those_of_gets(path):
    one = block_bytes(path)
    cache = BlockCache(64 * one)
    table = Table(path, 1, cache)
    list(table.entries(key(0), key(1), fill_cache=True))
    assert cache.stats()["main_blocks"] >= 1
    assert cache.stats()["probation_blocks"] == 0

"""Memory of filters: runs of pages that come and go."""

import itertools
import random

from tables import write_table

from lsmkv_ext.port import page_run
from lsmkv_ext.table.table import Table


def test_runs_never_overlap_and_all_go_back():
    """Filters of many sizes come and go; every region is given back with its last one."""
    before = page_run.stats()
    rng = random.Random(3)
    held = [page_run.PageRun(2 << 20)]  # beyond the first 64 KiB, which come from malloc
    for _ in range(600):
        if len(held) > 1 and rng.random() < 0.4:
            held.pop(rng.randrange(1, len(held)))
        held.append(page_run.PageRun(rng.choice((1, 64, 5000, 16384, 50_001, 200_000, 700_000))))
        places = sorted((run.address, run.n) for run in held)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(places))
        assert all(a % 64 == 0 for a, _ in places)
    during = page_run.stats()
    assert during["bytes"] - before["bytes"] == sum(run.n for run in held)
    assert during["regions"] > before["regions"] + 1
    # Nothing is far larger than what it holds.
    assert during["regions"] * (16 << 20) < 1.3 * during["bytes"] + (32 << 20)
    del held
    assert page_run.stats() == before


def test_a_large_run_comes_from_malloc():
    before = page_run.stats()
    run = page_run.PageRun(40 << 20)
    assert page_run.stats()["regions"] == before["regions"]
    del run
    assert page_run.stats() == before


def test_filters_of_a_large_database_live_on_huge_pages(tmp_path):
    rows = {b"key%08d" % i: (b"", i) for i in range(100_000)}
    write_table(tmp_path / "t.sst", rows)
    before = page_run.stats()
    tables = [Table(tmp_path / "t.sst", i, None, None) for i in range(20)]
    assert page_run.stats()["bytes"] - before["bytes"] == sum(t.filter_info["bytes"] for t in tables)
    assert page_run.stats()["regions"] > before["regions"]
    assert all(t.may_contain(b"key%08d" % i) for t in tables for i in range(0, 100_000, 999))
    del tables
    assert page_run.stats() == before

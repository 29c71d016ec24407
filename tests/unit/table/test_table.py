"""Tables on disk against a sorted dict: gets, seeks and scans both ways, through every way of reading."""

import bisect
import os
import random
import struct
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import keys, layouts, listed, numbered, rows_by_key, write_table
from waiting import run_threads

from lsmkv_ext.block.view import build_block
from lsmkv_ext.cache.block_cache import BlockCache
from lsmkv_ext.cache.fd_cache import FdCache
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.errors import IOError as LsmIOError
from lsmkv_ext.port import codecs
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table

SETTINGS = settings(max_examples=80, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@SETTINGS
@given(rows_by_key, layouts, st.lists(keys, max_size=15), st.sampled_from([None, 0, 2000, 1 << 20]))
def test_equals_a_sorted_dict(folder, rows, layout, probes, budget):
    summary = write_table(folder / "a.sst", rows, **layout)
    cache = None if budget is None else BlockCache(budget)
    table = Table(folder / "a.sst", 7, cache)
    order = sorted(rows)
    assert summary["n_entries"] == len(rows) == table.n_entries
    assert table.smallest == (order[0] if order else None)
    assert table.largest == (order[-1] if order else None)
    assert list(table.entries()) == listed(rows)
    assert list(table.entries(reverse=True)) == listed(rows)[::-1]
    assert list(table.entries(mode="compaction")) == listed(rows)
    for key in [*order, *probes]:
        assert table.get(key) == rows.get(key)
        assert table.may_contain(key) or key not in rows
    assert verify_table(table) == []
    if budget is not None:
        assert cache.used <= budget


@SETTINGS
@given(rows_by_key, layouts, st.lists(st.tuples(keys, keys), min_size=1, max_size=10), st.booleans())
def test_ranges_both_ways(folder, rows, layout, bounds, fill):
    write_table(folder / "b.sst", rows, **layout)
    table = Table(folder / "b.sst", 7, BlockCache(5000))
    everything = listed(rows)
    for start, stop in bounds:
        want = [row for row in everything if start <= row[0] < stop]
        assert list(table.entries(start, stop, fill_cache=fill)) == want
        assert list(table.entries(start, stop, reverse=True, fill_cache=fill, mode="get")) == want[::-1]
        assert list(table.entries(start, fill_cache=fill)) == [row for row in everything if start <= row[0]]
        assert list(table.entries(None, stop, reverse=True)) == [r for r in everything if r[0] < stop][::-1]


@SETTINGS
@given(rows_by_key, layouts, st.lists(keys, min_size=1, max_size=20))
def test_the_index_names_the_right_block(folder, rows, layout, probes):
    write_table(folder / "c.sst", rows, **layout)
    table = Table(folder / "c.sst")
    separators = table.separators()
    assert separators == sorted(set(separators))
    for key in [*rows, *probes, *separators]:
        at = bisect.bisect_left(separators, key)
        assert table.find_block(key) == (at if at < len(separators) else None)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 512, 513, 4097])
def test_index_tree_of_every_depth(tmp_path, n):
    """One entry per block; prefixes that tie (8 bytes shared after the common part) and that do not."""
    rows = {b"p" + b"%06d" % (i // 3) + b"ssssssss" + bytes([i % 3]): (b"", i) for i in range(n)}
    write_table(tmp_path / "t.sst", rows, block_size=1)
    table = Table(tmp_path / "t.sst")
    assert table.n_blocks == n
    for i, key in enumerate(sorted(rows)):
        assert table.find_block(key) == i
        assert table.get(key) == rows[key]
        assert table.get(key + b"\x00") is None
    assert table.find_block(b"a") == 0
    assert table.find_block(b"z") is None
    assert table.offset_of(b"a") == 0
    assert table.offset_of(b"z") == table.properties["data_bytes"]


def test_separators_are_short(tmp_path):
    rows = {b"%03d" % i + b"tail" * 50: (b"x" * 100, 1) for i in range(200)}
    write_table(tmp_path / "t.sst", rows, block_size=256)
    table = Table(tmp_path / "t.sst")
    assert max(map(len, table.separators()[:-1])) <= 3


def test_big_entries_stand_alone(tmp_path):
    rows = {b"a": (b"1", 1), b"b": (b"2" * 3_000_000, 2), b"c": (b"3", 3)}
    rows[b"d" * 65535] = (os.urandom(100_000), 4)
    write_table(tmp_path / "t.sst", rows)
    table = Table(tmp_path / "t.sst", 1, BlockCache(1 << 20))
    assert [b["n_entries"] for b in table.block_layout()] == [1, 1, 1, 1]
    assert {key: table.get(key) for key in rows} == rows
    assert list(table.entries()) == listed(rows)
    assert list(table.entries(reverse=True, mode="compaction")) == listed(rows)[::-1]
    assert verify_table(table) == []


@pytest.mark.parametrize("path", ["c", "python"])
def test_a_huge_value_is_stored_from_where_it_is(tmp_path, path):
    """Above 24 MiB a value is not copied into a block first: the block is the same, byte by byte."""
    huge = (24 << 20) + 1
    rows = numbered(50) | {b"key00000020": (b"v" * huge, 7), b"key00000033": (b"w" * (huge - 1), 8)}
    codecs.use(path)
    try:
        summary = write_table(tmp_path / "t.sst", rows, seed=5)
        table = Table(tmp_path / "t.sst")
        assert verify_table(table) == []
        assert list(table.entries()) == listed(rows)
        assert table.get(b"key00000020") == rows[b"key00000020"]
    finally:
        codecs.use("c")
    assert huge < summary["data_bytes"] < huge + (1 << 20)  # the other one was compressed
    block = build_block([(b"key00000020", b"v" * huge, 7, False, codecs.hash64(b"key00000020", 5))])
    raw = (tmp_path / "t.sst").read_bytes()
    assert block + struct.pack("<IB", len(block), 0) in raw


def test_properties_and_layout(tmp_path):
    rows = numbered(500)
    layout = {"block_size": 512, "restart_interval": 16}
    summary = write_table(tmp_path / "t.sst", rows, level=3, number=42, seed=99, **layout)
    table = Table(tmp_path / "t.sst", 42)
    props = table.properties
    assert props["n_deletes"] == sum(v is None for v, _ in rows.values())
    assert props["key_bytes"] == sum(map(len, rows))
    assert props["value_bytes"] == sum(len(v or b"") for v, _ in rows.values())
    assert (props["min_seq"], props["max_seq"]) == (1000, 1000 + 499 * 3)
    assert (props["level"], props["number"], props["seed"], props["restart_interval"]) == (3, 42, 99, 16)
    assert props["file_size"] == summary["file_size"] == (tmp_path / "t.sst").stat().st_size
    layout = table.block_layout()
    assert len(layout) == summary["n_blocks"]
    assert sum(b["n_entries"] for b in layout) == 500
    assert sum(b["size"] for b in layout) == props["data_bytes"] == layout[-1]["offset"] + layout[-1]["size"]
    info = table.filter_info
    assert info["usable"]
    assert (info["millibits"], info["k"], info["level"], info["n_keys"]) == (10000, 6, 3, 500)
    assert table.memory > info["bytes"]


def test_range_tombstones(tmp_path):
    tombstones = ((b"m", b"p", 9), (b"a", b"c", 5), (b"m", b"n", 20))
    write_table(tmp_path / "t.sst", {b"b": (b"1", 3), b"o": (b"2", 4)}, tombstones)
    table = Table(tmp_path / "t.sst")
    assert table.range_tombstones == [(b"a", b"c", 5), (b"m", b"n", 20), (b"m", b"p", 9)]
    assert (table.smallest, table.largest, table.largest_exclusive) == (b"a", b"p", True)
    assert (table.min_seq, table.max_seq) == (3, 20)
    assert verify_table(table) == []


def test_only_range_tombstones(tmp_path):
    write_table(tmp_path / "t.sst", {}, ((b"x", b"z", 2), (b"", b"y", 1)))
    table = Table(tmp_path / "t.sst")
    assert (table.smallest, table.largest, table.largest_exclusive) == (b"", b"z", True)
    assert table.n_blocks == 0
    assert list(table.entries()) == list(table.entries(reverse=True)) == []
    assert table.get(b"x") is None
    assert verify_table(table) == []


def test_a_range_tombstone_that_ends_at_the_last_key(tmp_path):
    write_table(tmp_path / "t.sst", {b"q": (b"1", 3)}, ((b"a", b"q", 5),))
    assert not Table(tmp_path / "t.sst").largest_exclusive


def test_global_sequence_number(tmp_path):
    write_table(tmp_path / "t.sst", {b"a": (b"1", 3), b"b": (None, 4)}, ((b"x", b"y", 2),))
    table = Table(tmp_path / "t.sst", 1, global_seq=777)
    assert table.get(b"a") == (b"1", 777)
    assert list(table.entries()) == [(b"a", b"1", 777), (b"b", None, 777)]
    assert list(table.entries(reverse=True)) == [(b"b", None, 777), (b"a", b"1", 777)]
    assert table.range_tombstones == [(b"x", b"y", 777)]
    assert (table.min_seq, table.max_seq) == (777, 777)
    assert verify_table(table) == []


def test_obsolete_once_the_last_reference_is_gone(tmp_path):
    write_table(tmp_path / "t.sst", numbered(10))
    table = Table(tmp_path / "t.sst", 12)
    gone: list[int] = []
    table.mark_obsolete(gone)
    entries = table.entries()
    next(entries)
    del table
    assert gone == []
    assert next(entries)[0] == b"key%08d" % 1
    del entries
    assert gone == [12]


def test_read_ahead_needs_few_reads(tmp_path):
    rng = random.Random("read ahead")
    rows = {rng.randbytes(16): (rng.randbytes(100), 1) for _ in range(20_000)}
    size = write_table(tmp_path / "t.sst", rows)["data_bytes"]
    table = Table(tmp_path / "t.sst", 1, BlockCache(0))
    for mode, window in (("scan", 256 << 10), ("compaction", 256 << 10)):
        for reverse in (False, True):
            entries = table.entries(mode=mode, reverse=reverse)
            assert sum(1 for _ in entries) == len(rows)
            # The first reads are small, and a window holds whole blocks only.
            assert entries.counters["disk_reads"] <= size / (window - 8192) + 7
            assert entries.counters["disk_bytes"] == size
    # A key that is there is in the first block that the index names; a gap might end only in the next one.
    middle = sorted(rows)[len(rows) // 2]
    entries = table.entries(middle)
    assert next(entries)[0] == middle
    assert entries.counters["disk_reads"] == 1
    assert entries.counters["disk_bytes"] < 8192


def test_a_missing_file_is_an_io_error(tmp_path):
    with pytest.raises(LsmIOError) as caught:
        Table(tmp_path / "nothing.sst")
    assert caught.value.errno == 2
    assert caught.value.filename == str(tmp_path / "nothing.sst")


def test_a_file_that_is_no_table(tmp_path):
    for content in (b"", b"short", os.urandom(5000)):
        (tmp_path / "t.sst").write_bytes(content)
        with pytest.raises(CorruptionError, match=r"t\.sst"):
            Table(tmp_path / "t.sst")


def test_descriptor_pool(tmp_path):
    pool = FdCache(3)
    tables = []
    for i in range(12):
        write_table(tmp_path / f"{i}.sst", {b"k": (b"%d" % i, i)})
        tables.append(Table(tmp_path / f"{i}.sst", i, None, pool))
        assert pool.n_open <= 3
    for _ in range(2):
        assert [t.get(b"k") for t in tables] == [(b"%d" % i, i) for i in range(12)]
        assert pool.n_open == 3
    tables.clear()
    assert pool.n_open == 0


@pytest.mark.parametrize("pool_knows_the_limit", [True, False])
def test_a_thousand_tables_under_forty_descriptors(tmp_path, pool_knows_the_limit):
    """The pool stays below the process's limit; where that sank later, EMFILE closes another one."""
    script = """
        import resource, sys
        from pathlib import Path
        from lsmkv_ext.cache.fd_cache import FdCache
        from lsmkv_ext.table.sst_writer import SSTWriter
        from lsmkv_ext.table.table import Table
        folder, known = Path(sys.argv[1]), sys.argv[2] == "True"
        if not known:
            pool = FdCache(100_000)
        for i in range(1000):
            with SSTWriter(folder / f"{i}.sst") as w:
                w.put(b"k", b"%d" % i)
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        if known:
            pool = FdCache(100_000)
        tables = [Table(folder / f"{i}.sst", i, None, pool) for i in range(1000)]
        for _ in range(2):
            assert all(t.get(b"k") == (b"%d" % i, 0) for i, t in enumerate(tables))
        print(pool.n_open)
        if known:
            SSTWriter(folder / "another").finish()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), tmp_path, str(pool_knows_the_limit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_open = int(done.stdout)
    assert n_open == 20 if pool_knows_the_limit else 20 < n_open < 40


def test_many_threads_on_few_descriptors(tmp_path):
    """Scans without the GIL, each read opening what another thread's read just closed."""
    pool = FdCache(2)
    tables = []
    for i in range(8):
        write_table(tmp_path / f"{i}.sst", numbered(300 + i), block_size=200)
        tables.append(Table(tmp_path / f"{i}.sst", i, None, pool))

    def work(first: int) -> None:
        for turn in range(40):
            i = (first + turn * 3) % 8
            assert tables[i].count(mode="get")[0] == 300 + i
            assert tables[i].get(b"key%08d" % 5) == numbered(6)[b"key%08d" % 5]

    run_threads(5, work)
    assert 1 <= pool.n_open <= 2

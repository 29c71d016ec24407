"""Range tombstones in tables: packed while a table is open, flattened when tables are merged."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import replay_log
from tables import write_table

import lsmkv
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.table.sst_writer import SSTWriter
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table
from lsmkv_ext.wal.writer import LogWriter

EDGES = st.integers(0, 40)
PAIRS = st.lists(st.tuples(EDGES, EDGES).filter(lambda pair: pair[0] != pair[1]), max_size=25)


def key(n):
    return b"%03d" % n


def memtable_of(folder, tombstones, first_seq):
    """The memtable that a log of these range tombstones becomes."""
    path = folder / "000001.wal"
    path.unlink(missing_ok=True)
    writer = LogWriter(path, 1, mode="write")
    batch = [b"\x02%c%b%c%b" % (len(start), start, len(stop), stop) for start, stop in tombstones]
    writer.append(b"".join(batch), first_seq, len(batch))
    writer.close()
    memtable = Memtable(1, 4096)
    replay_log(path, 1, memtable)
    return memtable


def newest_over(deletes, at):
    return max((seq for start, stop, seq in deletes if start <= at < stop), default=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tombstones")


@settings(max_examples=150, deadline=None)
@given(st.lists(PAIRS, max_size=5), PAIRS, st.booleans())
def test_a_merge_flattens_what_lies_over_each_other(folder, lists, newest, same_seq):
    """Lists of tables, which may overlap within one table, and of a memtable, which comes in any order."""
    inputs, deletes, seq = [], [], 1
    for n, pairs in enumerate(lists):
        tombstones = []
        for edges in pairs:
            tombstones.append((key(min(edges)), key(max(edges)), 7 if same_seq else seq))
            seq += 1
        random.Random(n).shuffle(tombstones)
        path = folder / f"in{n}.sst"
        write_table(path, {}, tuple(tombstones))
        inputs.append(Table(path))
        assert inputs[-1].range_tombstones == sorted(tombstones, key=lambda r: (r[0], -r[2]))
        deletes += tombstones
    if newest:
        bounds = [(key(min(edges)), key(max(edges))) for edges in newest]
        inputs.append(memtable_of(folder, bounds, seq))
        deletes += [(*pair, seq + n) for n, pair in enumerate(bounds)]
    outcome = Job(inputs, directory=folder, numbers=FileNumbers(100), single_output=True).run()
    flat = []
    for output in outcome["outputs"]:
        path = folder / f"{output.number:06d}.sst"
        flat += Table(path).range_tombstones
        path.unlink()
    assert bool(flat) == bool(deletes)
    for (_, stop, seq_before), (start, _, seq_behind) in pairwise(flat):
        assert stop < start or (stop == start and seq_before != seq_behind)
    for n in range(41):
        assert newest_over(flat, key(n)) == newest_over(deletes, key(n))


def wide(n, length):
    """Keys in the order of n, of a length that takes one or two bytes to tell."""
    return b"%07d" % n + b"." * (length - 7)


@pytest.mark.parametrize("length", [7, 126, 127, 300])
@pytest.mark.parametrize("count", [1, 2, 16, 17, 9000])
def test_lookups_between_many_range_tombstones(tmp_path, length, count):
    """Half of them begin where the one before ends. 9000 are more than a table knows every place of."""
    tombstones, at, rng = [], 0, random.Random(count)
    for n in range(count):
        at += rng.choice((0, 3))
        tombstones.append((wide(at, length), wide(at + 2, length), (1 << 40) + rng.randrange(1 << (n % 30))))
        at += 2
    with lsmkv.open(tmp_path / "db", compression=None) as db:
        step = max(1, at // 4000)
        edges = sorted({0, 1, at, at + 1, *range(0, at, step)})
        for n in edges:
            db.put(wide(n, length), b"v")
        db.put(b"", b"v")
        db.flush()
        path = tmp_path / "t.sst"
        write_table(path, {}, tuple(tombstones))
        assert Table(path).range_tombstones == tombstones and verify_table(Table(path)) == []
        assert count < 9000 or Table(path).memory < 0.9 * count * (2 * length + 10)
        db.ingest([path])
        gone = [n for n in edges if newest_over(tombstones, wide(n, length))] if count < 100 else None
        if gone is None:
            covered = {n for start, stop, _ in tombstones for n in range(int(start[:7]), int(stop[:7]))}
            gone = [n for n in edges if n in covered]
        left = [wide(n, length) for n in edges if n not in set(gone)]
        assert [n for n in edges if db.get(wide(n, length)) is None] == gone
        assert list(db.keys()) == [b"", *left]
        db.compact_range()
        assert list(db.keys()) == [b"", *left]
        assert [n for n in edges if db.get(wide(n, length)) is None] == gone


def test_range_tombstones_that_overlap_within_an_ingested_table_count(tmp_path):
    """A lookup asked only the last one that starts in front of the key; a walk asked all."""
    with SSTWriter(tmp_path / "t.sst") as writer:
        writer.delete_range(b"a", b"z")
        writer.delete_range(b"b", b"c")
    with lsmkv.open(tmp_path / "db") as db:
        db.put(b"d", b"")
        db.put(b"z", b"")
        db.flush()
        db.ingest([tmp_path / "t.sst"])
        assert db.get(b"d") is None and db.get(b"z") == b""
        assert list(db.keys()) == [b"z"]


def test_outputs_end_at_two_mebibytes_of_range_tombstones(tmp_path):
    """An open table keeps them in memory."""
    tombstones = tuple((wide(3 * n, 40), wide(3 * n + 2, 40), n + 1) for n in range(60_000))
    rows = {wide(3 * n + 2, 40): (b"v", 1) for n in range(0, 60_000, 20_000)}
    write_table(tmp_path / "in.sst", rows, tombstones)
    numbers = FileNumbers(1)
    outcome = Job([Table(tmp_path / "in.sst")], directory=tmp_path, numbers=numbers, output_level=1).run()
    tables = [Table(tmp_path / f"{output.number:06d}.sst") for output in outcome["outputs"]]
    assert len(tables) == 3
    assert tuple(r for table in tables for r in table.range_tombstones) == tombstones
    assert {k: (value, seq) for table in tables for k, value, seq in table.entries()} == rows
    assert all(before.largest <= behind.smallest for before, behind in pairwise(tables))
    assert all(verify_table(table) == [] for table in tables)

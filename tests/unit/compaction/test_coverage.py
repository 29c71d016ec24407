"""What range tombstones delete in tables, and the tables that are dropped for it."""

import contextlib
import os
import shutil

import pytest
from databases import keep_still
from tables import write_table
from waiting import wait_until

import lsmkv
from lsmkv.compaction import automatic
from lsmkv_ext.compaction.coverage import covered
from lsmkv_ext.table.table import Table


def key(i):
    return b"%06d" % i


@pytest.fixture
def table(tmp_path):
    """Makes tables: entries 100..199 with sequence number 5, unless told otherwise."""
    numbers = iter(range(1, 100))

    def make(tombstones=(), entries=range(100, 200), seq=5, global_seq=0):
        number = next(numbers)
        path = tmp_path / f"{number}.sst"
        rows = {key(i): (b"v" * 20, seq) for i in entries}
        write_table(path, rows, tuple((key(a), key(b), s) for a, b, s in tombstones), block_size=128, compression=None)
        return Table(path, number, global_seq=global_seq)

    return make


def whole(tables):
    return {number for number, (_, all_of_it) in covered(tables).items() if all_of_it}


@pytest.mark.parametrize(
    ("tombstones", "expected"),
    [
        ([(100, 200, 9)], True),
        ([(0, 900, 9)], True),
        ([(0, 900, 6)], True),
        ([(0, 900, 5)], False),
        ([(0, 900, 4)], False),
        ([(101, 900, 9)], False),
        ([(0, 199, 9)], False),
        ([(0, 150, 9), (150, 900, 7)], True),
        ([(0, 150, 9), (151, 900, 7)], False),
        ([(0, 150, 9), (150, 160, 5), (160, 900, 7)], False),
        ([(0, 900, 6), (120, 130, 9)], True),
        ([(0, 50, 9)], False),
        ([(300, 400, 9)], False),
    ],
)
def test_a_table_is_covered_whole_by_newer_range_tombstones(table, tombstones, expected):
    data, over = table(), table(tombstones, entries=())
    assert whole([over, data]) == ({1} if expected else set())


def test_range_tombstones_of_the_table_itself_must_be_covered(table):
    """They may hide older entries beyond its own."""
    inside, beyond = table([(120, 180, 5)]), table([(150, 300, 5)])
    over = table([(100, 200, 9)], entries=())
    assert whole([over, inside, beyond]) == {1}
    wider = table([(100, 300, 9)], entries=())
    assert whole([wider, inside, beyond]) == {1, 2}
    assert whole([wider, table([(150, 160, 10)])]) == set()


def test_an_ingested_table_is_as_new_as_its_sequence_number(table):
    ingested, over = table(global_seq=8), table([(0, 900, 8)], entries=())
    assert whole([over, ingested]) == set()
    assert whole([table([(0, 900, 9)], entries=()), ingested]) == {1}
    assert whole([table([(0, 900, 3)], global_seq=9), ingested]) == {1}


def test_a_table_does_not_cover_itself(table):
    assert covered([table([(0, 900, 5)])]) == {}
    assert covered([table([(0, 900, 5)], global_seq=7)]) == {}


def test_covered_bytes_come_from_the_index(table):
    data = table()
    half, _ = covered([table([(150, 900, 9)], entries=()), data])[1]
    total = data.properties["data_bytes"]
    assert 0.4 * total < half < 0.6 * total
    assert covered([table([(120, 130, 9), (150, 160, 9)], entries=()), data])[1][0] < 0.4 * total
    assert covered([table([(0, 900, 9)], entries=()), data])[1] == (total, True)


def test_very_many_range_tombstones_are_left_out(table):
    many = table([(2 * i, 2 * i + 1, 9) for i in range(20000)], entries=())
    assert whole([table([(0, 900, 9)], entries=()), many, table()]) == {3}
    assert whole([many, table([(0, 900, 9)], entries=()), table()]) == set()


# In a database -----------------------------------------------------------------------------------------------

OPTIONS = {"target_file_size": 8192, "block_size": 256, "compression": None, "write_buffer_size": 1 << 20}


def table_bytes(path):
    size = 0
    for name in os.listdir(path):
        with contextlib.suppress(FileNotFoundError):
            size += os.path.getsize(path / name) if name.endswith(".sst") else 0
    return size


def fill(db, n=5000, value=b"v"):
    for i in range(n):
        db[key(i)] = value * 20
    db.flush()
    db[key(0)] = value * 20  # a second table of L0: one alone would move down as it is
    db.flush()
    db.compact_range()
    assert len(db._versions.default.current.levels[1]) > 3


@pytest.fixture
def db(path):
    with lsmkv.open(path, **OPTIONS) as db:
        yield db


def test_clear_gives_its_space_back(db, path):
    fill(db)
    db.clear()
    db.flush()
    wait_until(lambda: table_bytes(path) == 0)
    assert not any(db._versions.default.current.levels)
    assert set(db.background.reasons) <= {"manual", "covered", "shrink"}
    assert list(db) == []


def test_a_database_reopened_after_clear_gives_its_space_back(path):
    with lsmkv.open(path, **OPTIONS) as db:
        fill(db)
        keep_still(db)
        db.clear()
        db.flush()
        assert table_bytes(path) > 100_000
    with lsmkv.open(path, **OPTIONS) as db:
        wait_until(lambda: table_bytes(path) == 0)
        assert list(db) == []


def test_a_deleted_range_gives_its_space_back(db, path, monkeypatch):
    """The tables at its ends are merged when the database is idle; its range tombstone goes with them."""
    monkeypatch.setattr(automatic, "IDLE_SECONDS", 0.01)
    fill(db)
    before = table_bytes(path)
    db.delete_range(key(100), key(4900))
    db.flush()
    wait_until(lambda: not any(f.range_tombstones for f in db._versions.default.current.files()))
    wait_until(lambda: table_bytes(path) < before // 10)
    assert list(db) == [key(i) for i in [*range(100), *range(4900, 5000)]]


def test_readers_keep_the_tables_that_are_dropped(db, path):
    fill(db)
    with db.snapshot() as snapshot, db.iterator(reverse=True) as it:
        next(it)
        db.clear()
        db.flush()
        wait_until(lambda: db.background.drops > 3)
        assert len(list(snapshot)) == 5000
        assert len(list(snapshot.keys(reverse=True))) == 5000
        assert len(list(it)) == 4999
        assert table_bytes(path) > 100_000
    wait_until(lambda: table_bytes(path) == 0)


def test_newer_entries_survive_a_clear(db, path):
    fill(db)
    db.clear()
    db[key(7)] = b"new"
    db.flush()
    wait_until(lambda: table_bytes(path) < 8192)
    assert dict(db.items()) == {key(7): b"new"}
    db.compact_range()
    assert dict(db.items()) == {key(7): b"new"}


def test_older_tables_stay_hidden_when_a_table_between_is_dropped(path, tmp_path):
    """The dropped table held the only other tombstones of keys that a deeper table still has."""
    with lsmkv.open(path, **OPTIONS) as db:
        fill(db, value=b"old")
        keep_still(db)
        for i in range(1000, 1010):
            db.delete(key(i))
        db.delete_range(key(1000), key(1500))
        db.flush()
        db.delete_range(key(900), key(1600))
        db.flush()
        assert [len(level) for level in db._versions.default.current.levels[:1]] == [2]
        db._work.claims.suspended -= 1
        db._scheduler.wake()
        wait_until(lambda: db.background.drops >= 2)
        keep_still(db)
        expected = [key(i) for i in [*range(900), *range(1600, 5000)]]
        assert list(db) == expected
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
    for folder in (path, copy):
        with lsmkv.open(folder, **OPTIONS) as db:
            assert list(db) == expected
            db.compact_range()
            assert list(db) == expected


def test_compact_range_beside_dropping(db):
    for _ in range(3):
        fill(db)
        db.clear()
        db.compact_range()
        assert list(db) == []
    db._scheduler.wait_idle()
    assert not any(db._versions.default.current.levels)


def test_a_merge_reads_nothing_of_what_it_drops(path):
    """A job skips covered blocks, even damaged ones."""
    with lsmkv.open(path, **OPTIONS) as db:
        fill(db)
        keep_still(db)
        (first, *_, last) = db._versions.default.current.levels[1]
        db.delete_range(key(50), key(4950))
        db.flush()
        for f in db._versions.default.current.levels[1]:
            if f not in (first, last):
                with open(path / f"{f.number:06d}.sst", "r+b") as file:
                    file.write(b"\xff" * (f.data_bytes // 2))
        db.compact_range()
        assert list(db) == [key(i) for i in [*range(50), *range(4950, 5000)]]

"""What a damaged table, filter or missing file means for the rest of the database."""

from __future__ import annotations

import shutil

import pytest

import lsmkv
from lsmkv_ext.table.table import Table

OPTIONS = {"write_buffer_size": 1 << 20, "block_size": 256, "compression": None, "l0_compaction_trigger": 16}
KEYS = [b"key%04d" % n for n in range(600)]


@pytest.fixture
def database(folder):
    """One table with many blocks, closed."""
    with lsmkv.open(folder / "db", **OPTIONS) as db:
        for key in KEYS:
            db.put(key, key * 3)
        db.flush()
    return folder / "db"


def only_table(path):
    (table,) = path.glob("*.sst")
    return table


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def state(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.name != "LOCK"}


def layout(path):
    return Table(path).block_layout()


def test_a_damaged_block_is_named_and_costs_only_itself(database):
    table = only_table(database)
    blocks = layout(table)
    victim = blocks[len(blocks) // 2]
    flip(table, victim["offset"] + 5)
    with lsmkv.open(database, **OPTIONS) as db:
        lost = []
        for key in KEYS:
            try:
                assert db.get(key) == key * 3
            except lsmkv.CorruptionError as error:
                lost.append(key)
                assert error.file == str(table)
                assert error.offset == victim["offset"]
        assert 0 < len(lost) <= victim["n_entries"]
        before = [key for key in KEYS if key < lost[0]]
        assert [key for key, _ in db.items(stop=before[-1])] == before[:-1]
        after = [key for key in KEYS if key > victim["separator"]]
        assert [key for key, _ in db.items(start=after[0])] == after
        with pytest.raises(lsmkv.CorruptionError):
            list(db.items())


def until_damage(step):
    """What `step` returns until it raises. It raises again: a second try must not look like the end."""
    out = []
    with pytest.raises(lsmkv.CorruptionError) as first:
        while True:
            out.append(step())
    for _ in range(2):
        with pytest.raises(lsmkv.CorruptionError) as again:
            step()
        assert (again.value.file, again.value.offset) == (first.value.file, first.value.offset)
    return out


def moved(cursor, move):
    assert move()
    return cursor.key()


@pytest.mark.parametrize("victim", [1, 2, 7, 60, -2])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_returns_the_entries_before_the_damage_first(database, victim, reverse):
    table = only_table(database)
    blocks = layout(table)
    below, victim = blocks[victim - 1]["separator"], blocks[victim]
    damaged = [key for key in KEYS if below < key <= victim["separator"]]
    assert damaged
    good = [key for key in KEYS[::-1] if key > damaged[-1]] if reverse else [key for key in KEYS if key < damaged[0]]
    flip(table, victim["offset"] + 5)
    with lsmkv.open(database, **OPTIONS) as db:
        it = db.iterator(reverse=reverse, include_value=False)
        assert until_damage(lambda: next(it)) == good
        with pytest.raises(lsmkv.CorruptionError):
            it.prev()
        it.seek_to_start()
        assert it.take(len(KEYS)) == good
        with pytest.raises(lsmkv.CorruptionError):
            it.take(1)
        it.seek(good[-1])
        assert next(it) == good[-1]
        assert it.prev() == good[-1]
        cursor = db.cursor()
        reached = [(cursor.seek_to_last if reverse else cursor.seek_to_first)() and cursor.key()]
        with pytest.raises(lsmkv.CorruptionError):
            while True:
                reached.append(moved(cursor, cursor.prev if reverse else cursor.next))
        assert reached == good
        assert not cursor.valid


def test_a_compaction_never_consumes_a_damaged_block(database):
    table = only_table(database)
    flip(table, layout(table)[3]["offset"] + 5)
    with lsmkv.open(database, **OPTIONS) as db:
        db.put(b"key0000", b"newer")
        db.flush()
        with pytest.raises(lsmkv.Error):
            db.compact_range()
        assert table.exists()
        assert db.get(b"key0000") == b"newer"
        assert db.get(KEYS[-1]) == KEYS[-1] * 3
        db.put(b"writes", b"go on", sync=True)
    with lsmkv.open(database, **OPTIONS) as db:
        assert db.get(b"writes") == b"go on"
        assert table.exists()


def test_a_damaged_filter_is_never_a_false_no(database):
    table = only_table(database)
    info = Table(table).filter_info
    data = table.read_bytes()
    assert info["usable"] and info["bytes"] > 0
    bits = Table(table).filter_bytes()[1]
    at = data.index(bits)
    for offset in range(at, at + len(bits), 97):
        flip(table, offset)
        assert not Table(table).filter_info["usable"]
        with lsmkv.open(database, **OPTIONS) as db:
            assert db.multi_get(KEYS) == [key * 3 for key in KEYS]
        table.write_bytes(data)


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_missing_file_refuses_the_open_and_changes_nothing(database, pattern):
    for path in database.glob(pattern):
        path.unlink()
    before = state(database)
    for flag in "cwr":
        with pytest.raises(lsmkv.CorruptionError):
            lsmkv.open(database, flag, **OPTIONS)
    assert state(database) == before


def test_another_database_s_table_under_the_right_name_is_refused(database, folder):
    with lsmkv.open(folder / "other", **OPTIONS) as db:
        for key in KEYS[:-1]:
            db.put(key, b"x" * 12)
        db.flush()
    shutil.copy(only_table(folder / "other"), only_table(database))
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(database, **OPTIONS)


def test_repair_is_a_separate_step_that_brings_back_what_is_readable(database):
    (database / "CURRENT").unlink()
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(database, **OPTIONS)
    lsmkv.repair(database)
    with lsmkv.open(database, **OPTIONS) as db:
        assert dict(db.items()) == {key: key * 3 for key in KEYS}

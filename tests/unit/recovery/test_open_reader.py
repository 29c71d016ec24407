"""Read-only handles beside a writer, and their refresh."""

import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from databases import TINY, fill_with
from waiting import run_elsewhere

import lsmkv
from lsmkv.recovery import stored_state


@pytest.fixture
def path(tmp_path):
    """An empty place, unlike the path of this directory's conftest."""
    return tmp_path / "db"


def test_a_reader_beside_the_writer_sees_newer_writes_after_refresh(path):
    with lsmkv.open(path, **TINY) as db, lsmkv.open(path, "r") as reader:
        assert len(reader) == 0
        fill_with(db)
        assert len(reader) == 0
        reader.refresh()
        assert len(reader) == 500
        snapshot = reader.snapshot()
        db.delete_range(b"key000100", b"key000200")
        db.compact_range()
        db[b"tail"] = b"only in the log"
        reader.refresh()
        assert len(reader) == 401 and reader[b"tail"] == b"only in the log"
        assert len(snapshot) == 500
        db.refresh()


def test_a_reader_in_another_process(path):
    code = f"""
import lsmkv, sys
with lsmkv.open({str(path)!r}, "r") as db:
    print(len(db), db[b"key000007"] == b"v" * 50, flush=True)
    sys.stdin.readline()
    db.refresh()
    print(len(db))
"""
    with lsmkv.open(path) as db:
        fill_with(db)
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "500 True\n"
        fill_with(db, 10, start=900)
        out, _ = child.communicate("go\n")
        assert out == "510\n"


def test_a_reader_changes_no_file(path):
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        db._shut(flush=False)
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    os.chmod(path, 0o500)
    try:
        with lsmkv.open(path, "r") as reader:
            assert len(reader) == 500
    finally:
        os.chmod(path, 0o700)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


def test_many_readers_and_no_lock(path):
    lsmkv.open(path).close()
    with lsmkv.open(path, "r"), lsmkv.open(path, "r"), lsmkv.open(path) as db:
        db[b"a"] = b"1"


@pytest.mark.parametrize("name", ["refresh while the writer compacts"])
def test_refresh_beside_a_busy_writer(path, name):
    with lsmkv.open(path, **TINY) as db, lsmkv.open(path, "r") as reader:
        for round_ in range(30):
            for i in range(100):
                db[b"key%06d" % i] = b"%d" % round_ * 30
            reader.refresh()
            assert len(reader) == 100
            assert set(reader.values()) == {b"%d" % round_ * 30}


def replaced_under(path, **options):
    """A reader whose tables the writer has removed since, and the writer."""
    db = lsmkv.open(path, l0_compaction_trigger=30, l0_slowdown_trigger=30)
    db._work.claims.suspended += 1  # an idle database would merge its L0 meanwhile
    for part in range(20):
        fill_with(db, 20, part * 20)
        db.flush()
    reader = lsmkv.open(path, "r", block_cache_size=0, **options)
    before = {name for name in os.listdir(path) if name.endswith(".sst")}
    fill_with(db, 400, value=b"w")
    db.compact_range()
    with db._versions.lock:
        db._versions.collect_garbage()
    assert before.isdisjoint(os.listdir(path))
    return reader, db


def test_a_reader_keeps_the_tables_that_the_writer_removed(path):
    reader, db = replaced_under(path)
    with reader, db:
        assert set(reader.values()) == {b"v" * 50}
        assert {reader[b"key%06d" % i] for i in range(400)} == {b"v" * 50}


def test_a_reader_with_too_few_descriptors_says_that_a_refresh_helps(path):
    """A descriptor that had to make room cannot be had again once the file is gone."""
    reader, db = replaced_under(path, max_open_files=8)
    with reader, db:
        with pytest.raises(lsmkv.IOError, match="refresh") as caught:
            list(reader.values())
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(lsmkv.IOError, match="refresh"):
            for i in range(400):
                reader.get(b"key%06d" % i)
        reader.refresh()
        assert list(reader.values()) == [b"w" * 50] * 400


@pytest.mark.parametrize("bits", [0, 10])
def test_a_reader_with_too_few_descriptors_never_reads_the_tables_of_another_database(path, bits):
    """A database recreated at the same path has files of the same names; a reader may reopen those."""
    options = {**TINY, "target_file_size": 4096, "compression": None, "bits_per_key": bits}
    with lsmkv.open(path, **options) as db:
        fill_with(db, 6000)
        db.compact_range()
    with lsmkv.open(path, "r", max_open_files=8, block_cache_size=0) as reader:
        assert len(reader._versions.tables) > 8
        with lsmkv.open(path, "n", **options) as db:
            fill_with(db, 6000, value=b"w")
            db.compact_range()
        found = set()
        for i in range(6000):
            try:
                found.add(reader.get(b"key%06d" % i))
            except lsmkv.IOError as error:
                assert error.errno == errno.ENOENT and "refresh" in str(error)
        assert found == {b"v" * 50}
        reader.refresh()
        assert set(reader.values()) == {b"w" * 50}


def put_in_place(path, how, flushed):
    """Another database takes the place of the one at `path`: 1000 keys, in tables or in the log."""
    if how == "destroyed":
        lsmkv.destroy(path)
    if how != "renamed":
        db = lsmkv.open(path, "n" if how == "flag n" else "c", **TINY)
    else:
        other = path.with_name("other")
        db = lsmkv.open(other, **TINY)
        os.rename(path, path.with_name("old"))
    fill_with(db, 1000, value=b"w")
    if flushed:
        db.compact_range()
    if how == "renamed":
        db.close()
        os.rename(other, path)
        db = lsmkv.open(path)
    return db


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("how", ["flag n", "destroyed", "renamed"])
def test_a_reader_refreshes_onto_another_database_in_the_same_place(path, how, flushed):
    keys = [b"key%06d" % i for i in range(1000)]
    with lsmkv.open(path, **TINY) as db:
        fill_with(db, 500)
        db.compact_range()
        fill_with(db, 100, start=500)
    with lsmkv.open(path, "r", filter_shadow_ratio=1.0) as reader:
        for _ in range(3):  # into the row cache
            assert reader.get(keys[0]) == b"v" * 50
        old, walk = reader.snapshot(), reader.iterator(include_value=False)
        assert next(walk) == keys[0]
        with put_in_place(path, how, flushed) as db:
            reader.refresh()
            assert reader.seed == db.seed
            assert list(reader.items()) == [(key, b"w" * 50) for key in keys]
            assert [reader.get(key) for key in keys] == [b"w" * 50] * 1000
            assert reader.multi_get(keys) == [b"w" * 50] * 1000
            assert all(key in reader and reader.explain(key).found for key in keys)
            assert b"key001000" not in reader
            assert reader.filter_debt() == {} and reader.stats().shadow.wrong == 0
            with reader.snapshot() as now:
                assert now.multi_get(keys) == [now[key] for key in keys] == [b"w" * 50] * 1000
            assert old.multi_get(keys) == [old.get(key) for key in keys]
            assert old.multi_get(keys) == [b"v" * 50] * 600 + [None] * 400
            assert list(old) == keys[:600] and list(walk) == keys[1:600]


def test_a_multi_get_whose_keys_refresh_the_reader_answers_from_one_state(path):
    keys = [b"key%06d" % i for i in range(10)]
    with lsmkv.open(path) as db:
        fill_with(db, 10)
    with lsmkv.open(path, "r") as reader:

        def keys_of_a_moment():
            with lsmkv.open(path, "n") as db:
                fill_with(db, 10, value=b"w")
            reader.refresh()
            yield from keys

        assert reader.multi_get(keys_of_a_moment()) == [b"w" * 50] * 10
        assert reader.multi_get(keys) == [b"w" * 50] * 10


def test_a_database_made_anew_in_the_middle_of_a_refresh_is_not_mixed_with_the_old_one(path, monkeypatch):
    """Its file numbers begin anew, and its first table looks like the old one's from outside."""

    def make(*values):
        with lsmkv.open(path, "n", wal=None) as db:
            db._work.claims.suspended += 1
            for value in values:
                fill_with(db, 10, value=value)
                db.flush()

    make(b"v")
    with lsmkv.open(path, "r") as reader:
        real, made = stored_state.check_logs, []

        def make_anew(*arguments):
            if not made:
                made.append(run_elsewhere(lambda: make(b"w", b"x")))
            return real(*arguments)

        monkeypatch.setattr(stored_state, "check_logs", make_anew)
        reader.refresh()
        assert made and set(reader.values()) == {b"x" * 50}


def test_a_refreshed_reader_releases_its_old_tables(path):
    with lsmkv.open(path) as db:
        fill_with(db, 100)
        db.flush()
        with lsmkv.open(path, "r") as reader:
            fill_with(db, 100, value=b"w")
            db.compact_range()
            with db._versions.lock:
                db._versions.collect_garbage()
            assert len(removed_but_open(path)) == 1
            reader.refresh()
            assert removed_but_open(path) == []


def removed_but_open(path):
    """Tables without a name that this process still has open."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in names if name.startswith(str(path)) and name.endswith(".sst (deleted)")]

"""A refresh of a database that has not changed reads nothing; one that has changed is always noticed."""

import os
import pickle

import pytest
from databases import TINY, fill_with

import lsmkv
from lsmkv.recovery import open_reader
from lsmkv.version import freshness


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """The time of a directory says nothing about the last second, which tests need not wait for: they set it back."""
    monkeypatch.setattr(freshness, "SETTLED_NS", 0)


def age(path):
    """Lets the directory look as if its last change was long ago."""
    os.utime(path, ns=(10**18, 10**18))


@pytest.mark.parametrize("wal", ["mmap", "write", None])
def test_every_kind_of_change_is_noticed(path, wal):
    with lsmkv.open(path, wal=wal, **TINY) as db:
        fill_with(db)
        db.flush()
        changes = [
            lambda: db.put(b"a", b"1") if wal else None,
            lambda: db.delete(b"a") if wal else None,
            lambda: db.keyspace("users"),
            lambda: db.keyspace("users").put(b"a", b"1") if wal else None,
            db.flush,
            db.compact_range,
            lambda: db.set_options(bits_per_key=12),
            lambda: db.clear() if wal else None,
            db.flush,
            lambda: db.drop_keyspace("users"),
        ]
        with lsmkv.open(path, "r") as reader:
            for change in changes:
                db._scheduler.status.quiesce()
                age(path)
                while reader.refresh():
                    age(path)
                assert not reader.refresh()
                change()
                reader.refresh()
                assert dict(reader) == dict(db)
                assert reader.keyspaces() == db.keyspaces()


def test_a_refresh_without_a_change_reads_no_file(path, monkeypatch):
    with lsmkv.open(path) as db:
        fill_with(db)
        with lsmkv.open(path, "r") as reader:
            age(path)
            while reader.refresh():
                pass
            with monkeypatch.context() as patched:
                patched.setattr(open_reader, "open_for_reading", None)
                assert not reader.refresh()
            db[b"a"] = b"1"
            assert reader.refresh() and reader[b"a"] == b"1"


def test_a_directory_that_has_just_changed_is_read_again(path, monkeypatch):
    """Its time is coarse: another change may come within the same tick."""
    monkeypatch.setattr(freshness, "SETTLED_NS", 1 << 62)
    with lsmkv.open(path), lsmkv.open(path, "r") as reader:
        assert reader.refresh() and reader.refresh()


def test_a_database_made_anew_and_one_that_is_gone(path):
    lsmkv.open(path).close()
    with lsmkv.open(path, "r") as reader:
        age(path)
        while reader.refresh():
            pass
        with lsmkv.open(path, "n") as db:
            db[b"a"] = b"1"
        age(path)
        assert reader.refresh() and dict(reader) == {b"a": b"1"}
        lsmkv.destroy(path)
        with pytest.raises(lsmkv.IOError):
            reader.refresh()


def test_a_writer_has_nothing_to_refresh(path):
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        assert db.refresh() is False


def test_a_read_only_handle_is_pickled(path):
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        db.keyspace("users")[b"b"] = b"2"
        with pytest.raises(TypeError, match="read-only"):
            pickle.dumps(db)
        with lsmkv.open(path, "r", block_cache_size=1 << 20) as reader:
            data = pickle.dumps((reader, reader.keyspace("users")))
            with pytest.raises(TypeError, match="read-only"):
                pickle.dumps(db.keyspace("users"))
    copy, users = pickle.loads(data)
    assert dict(copy) == {b"a": b"1"} and dict(users) == {b"b": b"2"} and users._database is copy
    assert copy.readonly and copy.options.block_cache_size == 1 << 20
    copy.close()
    with pytest.raises(lsmkv.ClosedError):
        pickle.dumps(copy)

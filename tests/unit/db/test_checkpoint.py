"""Checkpoints."""

import errno
import os
import subprocess
import sys

import pytest
from databases import TINY, fill_with
from waiting import wait_until

import lsmkv
from lsmkv import checkpoint, working_directory


def test_checkpoint_is_a_database_of_its_own(path, tmp_path):
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        db.checkpoint(tmp_path / "copy")
        tables = list((tmp_path / "copy").glob("*.sst"))
        assert tables and all(table.stat().st_nlink == 2 for table in tables)
        fill_with(db, value=b"w")
        db.compact_range()
        with lsmkv.open(tmp_path / "copy") as copy:
            assert copy.recovery_report.clean
            assert set(copy.values()) == {b"v" * 50}
            assert len(copy) == 500
            copy[b"mine"] = b"1"
        assert b"mine" not in db
        assert set(db.values()) == {b"w" * 50}
        with pytest.raises(lsmkv.IOError) as raised:
            db.checkpoint(tmp_path / "copy")
        assert raised.value.errno == 17
    assert lsmkv.verify(tmp_path / "copy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "db"]


def test_where_no_checkpoint_can_be(path, tmp_path):
    with lsmkv.open(path) as db:
        for dest in ("", tmp_path / "missing" / "copy", path):
            with pytest.raises(lsmkv.IOError):
                db.checkpoint(dest)
        db.checkpoint(os.fsencode(tmp_path / "copy"))
    lsmkv.open(tmp_path / "copy", "r").close()


def test_checkpoint_of_an_empty_database(path, tmp_path):
    with lsmkv.open(path) as db:
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy") as copy:
        assert len(copy) == 0


@pytest.mark.parametrize("moment", ["_link", "write_current", "sync_directory"])
def test_a_checkpoint_removes_the_remains_of_a_killed_one(path, tmp_path, moment):
    code = f"""
import os, lsmkv
from lsmkv import checkpoint, working_directory
checkpoint.{moment} = lambda *_: os.kill(os.getpid(), 9)
lsmkv.open({str(path)!r}).checkpoint({str(tmp_path / "copy")!r})
"""
    with lsmkv.open(path) as db:
        fill_with(db)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with lsmkv.open(path) as db:
        if moment == "sync_directory":  # renamed by then
            lsmkv.destroy(tmp_path / "copy")
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert len(copy) == 500
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "db"]


def test_a_checkpoint_touches_no_folder_that_is_not_its_own(path, tmp_path):
    """Where it would build lies another database, or a foreign file."""
    taken = tmp_path / "copy.checkpoint"
    with lsmkv.open(path) as db:
        db.checkpoint(taken)
        for _ in range(2):
            before = sorted(p.name for p in taken.iterdir())
            with pytest.raises(lsmkv.IOError, match=r"copy\.checkpoint"):
                db.checkpoint(tmp_path / "copy")
            assert sorted(p.name for p in taken.iterdir()) == before
            lsmkv.destroy(taken)
            (taken / "partial").mkdir(parents=True, exist_ok=True)
            (taken / "partial" / "notes").write_text("mine")
    assert (taken / "partial" / "notes").read_text() == "mine"


def test_of_two_checkpoints_at_once_to_one_place_the_second_is_refused(path, tmp_path, monkeypatch):
    with lsmkv.open(path) as db:
        fill_with(db)
        real, refused = checkpoint.write_current, []

        def second(*arguments):
            with pytest.raises(lsmkv.IOError, match="another process builds"):
                db.checkpoint(tmp_path / "copy")
            refused.append(True)
            real(*arguments)

        monkeypatch.setattr(checkpoint, "write_current", second)
        db.checkpoint(tmp_path / "copy")
        assert refused
    assert lsmkv.verify(tmp_path / "copy")


def test_a_checkpoint_without_memory_is_in_nobodys_way(path, tmp_path, monkeypatch):
    """Its lock stayed taken, and every later checkpoint to the same place was refused."""

    def refuse(*_):
        raise MemoryError

    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        with monkeypatch.context() as patched:
            patched.setattr(working_directory, "is_named", refuse)
            with pytest.raises(MemoryError) as _kept:  # with the frames that failed
                db.checkpoint(tmp_path / "copy")
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == {b"a": b"1"}


def of_keyspaces(db):
    return {name: dict(db.keyspace(name) if name else db) for name in ["", *db.keyspaces()]}


def test_a_checkpoint_of_a_reader_has_what_the_reader_sees(path, tmp_path):
    """Tables, what is only in the log, keyspaces, expiries, and values in a value log that the writer appends to."""
    with lsmkv.open(path, **TINY) as db:
        users = db.keyspace("users")
        fill_with(db)
        db.flush()
        db.delete_range(b"key000000", b"key000005")
        db.put(b"soon", b"1", expire_at=4_000_000_000)
        users[b"ada"] = b"1815"
        users[b"large"] = os.urandom(50_000)
        with lsmkv.open(path, "r") as reader:
            seen = of_keyspaces(reader)
            users[b"large"] = db[b"later"] = os.urandom(60_000)
            reader.checkpoint(tmp_path / "copy")
            assert of_keyspaces(reader) == seen != of_keyspaces(db)
    with lsmkv.open(tmp_path / "copy") as copy:
        assert copy.recovery_report.clean
        assert of_keyspaces(copy) == seen
        assert copy.ttl(b"soon") > 0
        copy.keyspace("users")[b"more"] = b"1"
    assert lsmkv.verify(tmp_path / "copy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "db"]


def test_a_checkpoint_of_a_reader_has_tables_that_the_writer_removed(path, tmp_path):
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        db[b"large"] = large = os.urandom(50_000)
        db.flush()
        with lsmkv.open(path, "r") as reader:
            db.clear()
            db.compact_range()
            wait_until(lambda: not list(path.glob("*.sst")))  # a background compaction may still hold some
            reader.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert len(copy) == 501 and copy[b"large"] == large


def test_a_checkpoint_of_a_reader_is_never_of_a_database_made_anew(path, tmp_path):
    """The new one has the same file numbers."""
    with lsmkv.open(path) as db:
        db[b"a"] = b"old"
    with lsmkv.open(path, "r") as reader:
        with lsmkv.open(path, "n") as db:
            db[b"a"] = b"new"
        assert list(path.glob("*.sst"))
        reader.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == {b"a": b"old"}


def test_where_files_cannot_be_linked_a_reader_copies_them(path, tmp_path, monkeypatch):
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        db.flush()

    def refuse(*_, **__):
        raise OSError(errno.EXDEV, "across file systems")

    monkeypatch.setattr(os, "link", refuse)
    with lsmkv.open(path, "r") as reader:
        reader.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert set(copy.values()) == {b"v" * 50} and len(copy) == 500

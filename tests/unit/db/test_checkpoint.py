"""Checkpoints."""

import os
import subprocess
import sys

import pytest
from databases import TINY, fill_with

import lsmkv
from lsmkv import checkpoint


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


@pytest.mark.parametrize("moment", ["link_or_copy", "write_current", "sync_directory"])
def test_a_checkpoint_removes_the_remains_of_a_killed_one(path, tmp_path, moment):
    code = f"""
import os, lsmkv
from lsmkv import checkpoint
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
            with pytest.raises(lsmkv.IOError, match="another checkpoint"):
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
            patched.setattr(checkpoint, "is_named", refuse)
            with pytest.raises(MemoryError) as _kept:  # with the frames that failed
                db.checkpoint(tmp_path / "copy")
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == {b"a": b"1"}

"""One writer per database."""

import fcntl
import os
import subprocess
import sys

import pytest
from databases import fill, names

import lsmkv
from lsmkv import lockfile
from lsmkv.lockfile import is_locked
from lsmkv.recovery import open_writer


def test_one_writer_per_process(path, tmp_path):
    with lsmkv.open(path):
        link = tmp_path / "link"
        link.symlink_to(path)
        for other in (path, link, str(path) + "/"):
            with pytest.raises(lsmkv.LockError, match="this process"):
                lsmkv.open(other)
    lsmkv.open(path).close()


def run_elsewhere(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def locked_elsewhere(path):
    """Whether another process is refused because of the lock."""
    code = f"""
import lsmkv
try:
    lsmkv.open({str(path)!r})
except lsmkv.LockError as error:
    assert isinstance(error, OSError)
    print("locked")
"""
    return run_elsewhere(code) == "locked\n"


def test_one_writer_across_processes(path):
    with lsmkv.open(path):
        assert locked_elsewhere(path)


def destroy_before_flock(path, monkeypatch):
    """Another process destroys the database between the open of LOCK and its flock."""
    real = fcntl.flock

    def flock(fd, operation):
        monkeypatch.setattr(fcntl, "flock", real)
        run_elsewhere(f"import lsmkv; lsmkv.destroy({str(path)!r})")
        real(fd, operation)

    lsmkv.open(path).close()
    (path / "notes").write_text("keeps the folder")
    monkeypatch.setattr(fcntl, "flock", flock)


def test_an_open_beside_a_destroy_holds_the_lock_that_others_see(path, monkeypatch):
    destroy_before_flock(path, monkeypatch)
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        assert locked_elsewhere(path)


def test_an_open_of_an_existing_database_beside_a_destroy_creates_none(path, monkeypatch):
    destroy_before_flock(path, monkeypatch)
    with pytest.raises(lsmkv.IOError, match="there is no database"):
        lsmkv.open(path, "w")
    assert names(path) == ["LOCK", "notes"]


def test_a_look_whether_the_database_is_locked_keeps_no_writer_out(path, monkeypatch):
    with lsmkv.open(path):
        assert is_locked(path)
    real, opened = os.close, []

    def open_first(fd):
        """In the middle of is_locked, which has its descriptor still open."""
        monkeypatch.setattr(os, "close", real)
        lsmkv.open(path).close()
        opened.append(True)
        real(fd)

    monkeypatch.setattr(os, "close", open_first)
    assert not is_locked(path)
    assert opened


def test_a_failed_open_gives_the_lock_back(path):
    with lsmkv.open(path) as db:
        fill(db)
    current = (path / "CURRENT").read_bytes()
    (path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(path)
    (path / "CURRENT").write_bytes(current)
    lsmkv.open(path).close()


def test_a_failed_open_without_memory_leaves_the_database_unlocked(path, monkeypatch):
    """The thread that releases the lock could not be started, and the process could never open the database again."""

    def refuse(*_, **__):
        raise MemoryError

    lsmkv.open(path).close()
    with monkeypatch.context() as patched:
        patched.setattr(open_writer, "open_for_writing", refuse)
        patched.setattr(lockfile, "uninterruptible", fail_after(1, lockfile.uninterruptible))
        with pytest.raises(MemoryError):
            lsmkv.open(path)
    lsmkv.open(path).close()


def fail_after(count, real):
    calls = iter(range(count))

    def call(*args, **kwargs):
        if next(calls, None) is None:
            raise MemoryError
        return real(*args, **kwargs)

    return call

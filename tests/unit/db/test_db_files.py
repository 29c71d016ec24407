"""The files of a database, and the flags of open."""

import os
import subprocess
import sys

import pytest
from databases import TINY, fill, names

import lsmkv
from lsmkv import filenames


def test_files_are_private_and_only_ours(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db)
        db.flush()
        assert os.stat(path).st_mode & 0o777 == 0o700
        for name in names(path):
            assert filenames.parse(name) is not None
            if not name.endswith(".tmp"):  # a log that is being made in advance gets its name meanwhile
                assert os.stat(path / name).st_mode & 0o777 == 0o600


def test_standard_streams_are_never_taken(tmp_path):
    code = f"""
import os, sys
for fd in (0, 1, 2):
    os.close(fd)
import lsmkv
db = lsmkv.open({str(tmp_path / "db")!r}, write_buffer_size=8192)
for i in range(500):
    db[b"%d" % i] = b"x" * 100
db.flush()
taken = []
for fd in (0, 1, 2):
    try:
        taken.append(os.readlink(f"/proc/self/fd/{{fd}}"))
    except OSError:
        pass
db.close()
os._exit(1 if any("db" in name for name in taken) else 0)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_foreign_files_in_the_directory_are_left_alone(path):
    lsmkv.open(path).close()
    (path / "notes.txt").write_text("mine")
    (path / "000099.sst").symlink_to(path / "notes.txt")
    lsmkv.open(path).close()
    lsmkv.destroy(path)
    assert names(path) == ["000099.sst", "notes.txt"]


def test_orphans_go_only_after_recovery_succeeded(path):
    with lsmkv.open(path) as db:
        fill(db)
    (path / "000099.sst").write_bytes(b"left behind")
    manifest = next(p for p in path.iterdir() if p.name.startswith("MANIFEST"))
    good = manifest.read_bytes()
    manifest.write_bytes(good[:-20])
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    with pytest.raises(lsmkv.CorruptionError, match="MANIFEST"):
        lsmkv.open(path)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    manifest.write_bytes(good)
    with lsmkv.open(path) as db:
        assert "000099.sst" in db.recovery_report.orphans_removed
        assert len(db) == 500
    assert not (path / "000099.sst").exists()


def test_missing_files_are_refused(path):
    with lsmkv.open(path) as db:
        fill(db)
    for pattern, message in (("*.sst", "table of the manifest is missing"), ("*.wal", "log of the manifest")):
        victim = next(path.glob(pattern))
        data = victim.read_bytes()
        victim.unlink()
        with pytest.raises(lsmkv.CorruptionError, match=message):
            lsmkv.open(path)
        victim.write_bytes(data)
    (path / "CURRENT").unlink()
    with pytest.raises(lsmkv.CorruptionError, match="CURRENT is missing"):
        lsmkv.open(path)


def test_a_creation_that_was_cut_short_is_finished(path):
    lsmkv.open(path).close()
    for p in path.iterdir():
        if not p.name.startswith("MANIFEST"):
            p.unlink()
    with lsmkv.open(path) as db:
        assert db.recovery_report.created


@pytest.mark.parametrize("call", [lsmkv.open, lsmkv.destroy, lsmkv.repair, lsmkv.verify])
def test_an_empty_path_is_refused(tmp_path, monkeypatch, call):
    lsmkv.open(tmp_path).close()
    before = names(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lsmkv.IOError, match="empty"):
        call("")
    assert names(tmp_path) == before


def test_flags(path):
    for flag in "rw":
        with pytest.raises(lsmkv.IOError) as raised:
            lsmkv.open(path, flag)
        assert isinstance(raised.value, FileNotFoundError) or raised.value.errno == 2
    assert not path.exists()
    with lsmkv.open(path, "c") as db:
        db[b"a"] = b"1"
    with lsmkv.open(path, "w") as db:
        assert db[b"a"] == b"1"
    with lsmkv.open(path, "r") as db:
        assert db.readonly
        with pytest.raises(lsmkv.ReadOnlyError):
            db[b"b"] = b"2"
        with pytest.raises(lsmkv.ReadOnlyError):
            db.flush()
    with lsmkv.open(path, "n") as db:
        assert len(db) == 0
    with pytest.raises(lsmkv.OptionError):
        lsmkv.open(path, "x")


def test_options_are_checked_at_open(path):
    with pytest.raises(lsmkv.OptionError, match="block_size"):
        lsmkv.open(path, blocksize=1)
    assert not path.exists()

"""Opening on a full disk: the replayed writes stay in memory and in their logs."""

import errno
import os
import shutil

import pytest

import lsmkv
from lsmkv.compaction.jobs import Jobs
from lsmkv.recovery import replay

OPTIONS = {"write_buffer_size": 64 << 10, "max_write_buffers": 4}


@pytest.fixture
def full_disk(monkeypatch):
    """No table can be written."""

    def no_room(*_, **__):
        raise lsmkv.IOError(errno.ENOSPC, "writing a table: No space left on device", "db")

    with monkeypatch.context() as patch:
        patch.setattr(Jobs, "_write_l0", no_room)
        yield patch


@pytest.fixture
def killed(tmp_path, full_disk):
    """A database as a kill leaves it, and what it holds: three logs, nothing flushed."""
    db = lsmkv.open(tmp_path / "db", **OPTIONS)
    expected = {}
    for part in range(3):
        for i in range(300):
            expected[b"%d-%04d" % (part, i)] = value = os.urandom(50)
            db[b"%d-%04d" % (part, i)] = value
        if part < 2:
            db.flush(wait=False)
    db.delete_range(b"0-0100", b"0-0200")
    kept = {k: v for k, v in expected.items() if not b"0-0100" <= k < b"0-0200"}
    path = tmp_path / "killed"
    shutil.copytree(db.path, path, ignore=shutil.ignore_patterns("*.tmp"))  # the next log
    db.close()
    return path, kept


def logs(path):
    return sorted(path.glob("*.wal"))


def test_it_opens_with_its_logs_and_flushes_once_there_is_room(killed, full_disk):
    path, expected = killed
    before = logs(path)
    with lsmkv.open(path, **OPTIONS) as db:
        assert dict(db.items()) == expected
        assert set(before[:3]) < set(logs(path)) and not list(path.glob("*.sst"))
        assert db.recovery_report.tables == 0
        db[b"new"] = b"1"
        with pytest.raises(lsmkv.IOError):
            db.flush()
        full_disk.undo()
        db.flush()
        assert dict(db.items()) == {**expected, b"new": b"1"}
        assert len(logs(path)) <= 2 and list(path.glob("*.sst"))
    with lsmkv.open(path, **OPTIONS) as db:
        assert db.recovery_report.clean
        assert dict(db.items()) == {**expected, b"new": b"1"}
    assert lsmkv.verify(path)


@pytest.mark.parametrize("slack", [32 << 20, 4000])
def test_kills_and_reopens_on_a_full_disk_lose_nothing(killed, full_disk, monkeypatch, slack):
    monkeypatch.setattr(replay, "SLACK", slack)
    path, expected = killed
    for number in range(4):
        db = lsmkv.open(path, **OPTIONS)
        assert dict(db.items()) == expected
        assert len(db._engine.immutables) > (slack == 4000)
        expected[b"round %d" % number] = b"v"
        db.put(b"round %d" % number, b"v", sync=True)
        copy = path.with_name(f"copy {number}")
        shutil.copytree(path, copy)
        db.close()
        path = copy
    full_disk.undo()
    with lsmkv.open(path, **OPTIONS) as db:
        assert dict(db.items()) == expected
        assert len(list(path.glob("*.sst"))) >= 1


def test_pieces_of_one_log_keep_it_until_all_are_flushed(killed, full_disk, monkeypatch):
    monkeypatch.setattr(replay, "SLACK", 4000)
    path, expected = killed
    db = lsmkv.open(path, **OPTIONS)
    pieces = db._engine.immutables
    assert len(pieces) > 3
    full_disk.undo()
    # One by one, as on a disk that has little room.
    while db._engine.immutables:
        db._scheduler.flusher._write(db._engine.unflushed[-1:])
        copy = path.with_name(f"copy {len(db._engine.immutables)}")
        shutil.copytree(path, copy)
        with lsmkv.open(copy, **OPTIONS) as again:
            assert dict(again.items()) == expected
    db.close()


def test_a_log_after_a_gap_does_not_come_back(killed, full_disk):
    """It was dropped with the writes before it; the next log follows without a gap."""
    path, expected = killed
    gone = logs(path)[1]
    os.truncate(gone, 4096 + 64)  # most of its records
    with lsmkv.open(path, **OPTIONS) as db:
        assert any("older log" in torn.reason for torn in db.recovery_report.torn)
        seen = dict(db.items())
        assert seen.items() < {**expected, **{k: db[k] for k in seen}}.items()
        db[b"new"] = b"1"
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
    with lsmkv.open(copy, **OPTIONS) as db:
        assert dict(db.items()) == {**seen, b"new": b"1"}
        assert not any("older log" in torn.reason for torn in db.recovery_report.torn)


def test_a_salvaged_log_is_not_kept(killed, full_disk):
    path, _ = killed
    log = logs(path)[2]
    data = bytearray(log.read_bytes())
    data[20] ^= 1  # the head
    log.write_bytes(bytes(data))
    with pytest.raises(lsmkv.IOError) as raised:
        lsmkv.open(path, recovery="salvage", **OPTIONS)
    assert raised.value.errno == errno.ENOSPC


def test_hostile_logs_do_not_fill_the_memory(tmp_path, full_disk, monkeypatch):
    db = lsmkv.open(tmp_path / "db")
    with db.write_batch() as batch:
        for i in range(20_000):
            batch.put(b"%05d" % i, b"")
    path = tmp_path / "killed"
    shutil.copytree(db.path, path, ignore=shutil.ignore_patterns("*.tmp"))  # the next log
    db.close()
    monkeypatch.setattr(replay, "SLACK", 4000)
    with pytest.raises(lsmkv.IOError) as raised:
        lsmkv.open(path, write_buffer_size=4096, max_write_buffers=2)
    assert raised.value.errno == errno.ENOSPC


def test_without_a_log_the_old_ones_stay_until_they_are_flushed(killed, full_disk):
    path, expected = killed
    with lsmkv.open(path, wal=None, **OPTIONS) as db:
        assert dict(db.items()) == expected
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        full_disk.undo()
    for each in (path, copy):
        with lsmkv.open(each, **OPTIONS) as db:
            assert dict(db.items()) == expected

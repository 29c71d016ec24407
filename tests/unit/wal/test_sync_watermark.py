"""The sync watermark, in a file beside the log."""

from __future__ import annotations

import shutil

import pytest

import lsmkv
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.wal.reader import HEAD_SIZE, check_log
from lsmkv_ext.wal.sync_watermark import NAME, SyncWatermark, damaged_offsets, read_watermark
from lsmkv_ext.wal.writer import LogWriter

RECORD = b"\0\x01k\x01v"  # one put
SLOT_APART = 64


def append(writer, sequence):
    writer.append(RECORD, sequence, 1)


@pytest.fixture
def logged(tmp_path):
    """A log in use with five synced records, its watermark, and the folder of both."""
    watermark = SyncWatermark(tmp_path / NAME)
    writer = LogWriter(tmp_path / "000007.wal", 7)
    writer.attach_watermark(watermark, None)
    for sequence in range(1, 6):
        append(writer, sequence)
        writer.sync()
    yield writer, watermark, tmp_path
    writer.close()


def head_of(writer):
    with open(writer.path, "rb") as file:
        return file.read(HEAD_SIZE)


def test_a_sync_is_stored_beside_the_log_and_leaves_its_head_alone(logged):
    writer, _, folder = logged
    before = head_of(writer)
    append(writer, 6)
    writer.sync()
    assert read_watermark(folder / NAME) == (7, writer.synced)
    assert head_of(writer) == before
    assert damaged_offsets(folder / NAME) == []


def test_synced_records_that_were_cut_off_are_missed(logged):
    writer, _, folder = logged
    path = folder / "cut" / "000007.wal"
    path.parent.mkdir()
    shutil.copy(writer.path, path)
    with open(path, "r+b") as file:
        file.truncate(HEAD_SIZE + 40 * 2)  # right behind the second record, where nothing looks torn
    assert check_log(path, 7)["torn_reason"] is None  # unknown without the watermark
    shutil.copy(folder / NAME, path.parent)
    with pytest.raises(CorruptionError, match="synced log records are missing"):
        check_log(path, 7)


def test_the_watermark_moves_on_and_the_old_log_keeps_its_own(logged):
    writer, watermark, folder = logged
    append(writer, 6)
    newer = LogWriter(folder / "000008.wal", 8, previous_last_seq=6)
    newer.attach_watermark(watermark, writer)
    assert check_log(writer.path, 7)["known_synced"] == writer.synced
    newer.append(RECORD, 7, 1)
    newer.sync()
    writer.sync()  # late: the watermark is not its own any more
    assert read_watermark(folder / NAME) == (8, newer.synced)
    assert check_log(writer.path, 7)["known_synced"] == writer.synced
    newer.close()


def test_a_watermark_of_another_log_says_nothing(logged):
    _, _, folder = logged
    other = LogWriter(folder / "000009.wal", 9)
    other.append(RECORD, 1, 1)
    assert check_log(other.path, 9)["known_synced"] == HEAD_SIZE
    other.close()


def test_one_damaged_slot_makes_the_watermark_lag_by_one(logged):
    _, _, folder = logged
    path = folder / NAME
    good = path.read_bytes()
    number, newest = read_watermark(path)
    lagging = set()
    for at in (0, SLOT_APART):
        for byte in range(32):
            bad = bytearray(good)
            bad[at + byte] ^= 0x10
            path.write_bytes(bad)
            lagging.add(read_watermark(path))
            assert damaged_offsets(path)
    assert lagging == {(number, newest), (number, newest - 40)}


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\xff" * 4096, b"\xff" * 100])
def test_a_useless_watermark_is_none_and_is_replaced(tmp_path, content):
    path = tmp_path / NAME
    path.write_bytes(content)
    assert read_watermark(path) is None
    writer = LogWriter(tmp_path / "000003.wal", 3)
    writer.attach_watermark(SyncWatermark(path), None)
    append(writer, 1)
    writer.sync()
    assert read_watermark(path) == (3, writer.synced)
    writer.close()


def test_a_missing_watermark_is_none(tmp_path):
    assert read_watermark(tmp_path / NAME) is None


def test_watermarks_of_a_reopened_file_are_newer(logged):
    writer, _, folder = logged
    writer.close()
    newer = LogWriter(folder / "000008.wal", 8)
    newer.attach_watermark(SyncWatermark(folder / NAME), None)
    newer.append(RECORD, 6, 1)
    newer.sync()
    assert read_watermark(folder / NAME) == (8, newer.synced)
    newer.close()


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_a_database_misses_synced_writes_that_were_cut_off(tmp_path, wal):
    with lsmkv.open(tmp_path / "db", wal=wal) as db:
        for n in range(20):
            db.put(b"key%d" % n, b"value", sync=True)
        shutil.copytree(tmp_path / "db", tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    [log] = (tmp_path / "copy").glob("*.wal")
    record = (read_watermark(tmp_path / "copy" / NAME)[1] - HEAD_SIZE) // 20
    with open(log, "r+b") as file:
        file.truncate(HEAD_SIZE + record * 10)
    with pytest.raises(CorruptionError, match="synced log records are missing"):
        lsmkv.open(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", recovery="salvage") as db:
        assert len(db) == 10


def test_a_new_database_in_the_place_of_a_lost_one_ignores_its_watermark(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        for n in range(1000):
            db.put(b"key%d" % n, b"value", sync=n == 999)
        watermark = (path / NAME).read_bytes()
    shutil.rmtree(path)
    path.mkdir()
    (path / NAME).write_bytes(watermark)
    with lsmkv.open(path) as db:
        db.put(b"a", b"1")
        shutil.copytree(path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.tmp"))
    with lsmkv.open(tmp_path / "copy") as db:
        assert dict(db.items()) == {b"a": b"1"}


def test_a_watermark_of_a_log_lost_in_a_repair_does_not_apply_to_a_new_log(tmp_path):
    path, kept = tmp_path / "db", tmp_path / "kept"
    with lsmkv.open(path) as db:
        pass
    shutil.copytree(path, kept, ignore=shutil.ignore_patterns("*.wal"))
    # What a log synced that was lost with all the others; the next open after the repair takes its number.
    watermark = SyncWatermark(kept / NAME)
    lsmkv.repair(kept)
    with lsmkv.open(shutil.copytree(kept, tmp_path / "trial")) as db:
        number = db._engine.active.number
    lost = LogWriter(tmp_path / "lost.wal", number)
    lost.attach_watermark(watermark, None)
    for sequence in range(1, 100):
        append(lost, sequence)
    lost.sync()
    lost.close()
    watermark.close()
    with lsmkv.open(kept) as db:
        assert db._engine.active.number == number
        db.put(b"a", b"1")
        shutil.copytree(kept, tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    with lsmkv.open(tmp_path / "killed") as db:
        assert dict(db.items()) == {b"a": b"1"}

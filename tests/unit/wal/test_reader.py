"""Reading a log: damage is a torn tail or corruption, never a wrong answer."""

import os

import pytest
from logs import NUMBER, make_log, put, replay_log

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.reader import HEAD_SIZE, LogReader, check_log
from lsmkv_ext.wal.writer import LogWriter

MODES = ["mmap", "write"]
SLOTS = (512, 1024)


@pytest.mark.parametrize("mode", MODES)
def test_round_trip(tmp_path, mode):
    path = tmp_path / "000007.wal"
    make_log(path, 50, mode)
    memtable = Memtable(1, 1 << 20)
    report = replay_log(path, NUMBER, memtable)
    assert report["records"] == report["entries"] == 50
    assert (report["first_seq"], report["last_seq"]) == (101, 150)
    assert report["previous_last_seq"] == 100
    assert report["torn_reason"] is None
    assert memtable.entries == 50


@pytest.mark.parametrize("mode", MODES)
def test_cut_anywhere_gives_a_prefix(tmp_path, mode):
    path = tmp_path / "000007.wal"
    make_log(path, 10, mode)
    whole = path.read_bytes()
    end = max(i for i, byte in enumerate(whole) if byte) + 1
    for cut in range(0, end, 3):
        path.write_bytes(whole[:cut])
        if cut < HEAD_SIZE:
            # The head was whole and synced before the log had its name: no crash explains this.
            with pytest.raises(CorruptionError):
                replay_log(path, NUMBER, Memtable(1, 4096))
            continue
        report = replay_log(path, NUMBER, Memtable(1, 4096))
        assert report["records"] <= 10
        if report["records"]:
            assert report["last_seq"] == 100 + report["records"]


@pytest.mark.parametrize("mode", MODES)
def test_flips_below_the_synced_offset_raise(tmp_path, mode):
    path = tmp_path / "000007.wal"
    synced = make_log(path, 12, mode, sync_after=8)
    whole = bytearray(path.read_bytes())
    for at in range(HEAD_SIZE, synced):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError) as caught:
            check_log(path, NUMBER)
        assert caught.value.file == str(path)
        assert HEAD_SIZE <= caught.value.offset <= at


def test_flips_above_the_synced_offset_are_a_torn_tail(tmp_path):
    path = tmp_path / "000007.wal"
    synced = make_log(path, 12, "mmap", sync_after=8)
    whole = bytearray(path.read_bytes())
    end = max(i for i, byte in enumerate(whole) if byte) + 1
    for at in range(synced, end):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        report = check_log(path, NUMBER)
        assert 9 <= report["records"] < 12
        assert report["torn_reason"]
        assert report["torn_offset"] >= synced


@pytest.mark.parametrize("slot", SLOTS)
def test_a_head_lives_with_one_damaged_slot(tmp_path, slot):
    path = tmp_path / "000007.wal"
    make_log(path, 12, "mmap", sync_after=8)
    assert check_log(path, NUMBER)["damaged_slot"] is None
    damaged = bytearray(path.read_bytes())
    damaged[slot + 3] ^= 1
    path.write_bytes(damaged)
    report = check_log(path, NUMBER)
    assert (report["damaged_slot"], report["records"]) == (slot, 12)


def test_a_head_without_a_good_slot_is_corrupt(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 12)
    damaged = bytearray(path.read_bytes())
    for slot in SLOTS:
        damaged[slot : slot + 24] = bytes(24)
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError, match="does not say what is synced"):
        check_log(path, NUMBER)


def test_a_later_record_tells_that_damage_lies_below_what_was_synced(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 12, "mmap", sync_after=8)
    damaged = bytearray(path.read_bytes())
    # The newest slot is lost: only record headers know.
    damaged[SLOTS[0] : SLOTS[0] + 24] = bytes(24)
    damaged[HEAD_SIZE + 40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError):
        check_log(path, NUMBER)


def test_salvage_keeps_what_is_before_the_damage(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 12, "mmap", sync_after=11)
    damaged = bytearray(path.read_bytes())
    damaged[HEAD_SIZE + 48 * 5 + 40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError):
        check_log(path, NUMBER)
    report = check_log(path, NUMBER, salvage=True)
    assert 0 < report["records"] < 12
    assert report["torn_reason"]


def test_salvage_keeps_what_is_before_a_malformed_batch(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER, mode="write")
    writer.append(put(b"k", b"v"), 1, 1)
    writer.append(b"\x09\x01k", 2, 1)  # no such operation, under a checksum that is right
    writer.append(b"\x01\x01k", 3, 1)
    writer.sync()
    writer.close()
    with pytest.raises(CorruptionError, match="unknown operation"):
        check_log(path, NUMBER)
    report = check_log(path, NUMBER, salvage=True)
    assert (report["records"], report["last_seq"]) == (1, 1)
    assert "unknown operation" in report["torn_reason"]


def test_a_moved_or_foreign_record_is_not_taken(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 4)
    whole = bytearray(path.read_bytes())
    records = [r for r in LogDump(path) if "size" in r]
    first, second = records[0], records[1]
    assert first["size"] == second["size"]
    swapped = bytearray(whole)
    a, b, n = first["offset"], second["offset"], first["size"]
    swapped[a : a + n], swapped[b : b + n] = whole[b : b + n], whole[a : a + n]
    path.write_bytes(swapped)
    assert check_log(path, NUMBER)["records"] == 0
    path.write_bytes(whole)
    with pytest.raises(CorruptionError, match="another log's number"):
        check_log(path, NUMBER + 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda: LogDump(7.5),
        LogDump,
        lambda: LogReader(7.5),
        lambda: LogReplay(7.5, 7, 4096),
        lambda: LogReplay("log", "seven", 4096),
    ],
)
def test_arguments_of_a_wrong_type_do_not_close_descriptor_0(read):
    """The reader that failed to start took the 0 it was born with for its own."""
    fd = os.dup(0)
    try:
        with pytest.raises(TypeError):
            read()
        os.fstat(0)
    finally:
        os.dup2(fd, 0)
        os.close(fd)

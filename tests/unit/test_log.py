"""The write-ahead log: what is appended comes back; damage is a torn tail or corruption, never a wrong answer."""

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.errors import IOError as LsmIOError
from lsmkv_ext.wal.log import LogDump, LogReader, LogWriter, check_log, decode_batch, replay_log
from lsmkv_ext.memtable.memtable import Memtable

MODES = ["mmap", "write"]


def put(key: bytes, value: bytes) -> bytes:
    return b"\0" + varint(len(key)) + key + varint(len(value)) + value


def varint(n: int) -> bytes:
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def make_log(path, n=20, mode="mmap", sync_after=None):
    writer = LogWriter(path, 7, mode=mode, previous_last_seq=100)
    for i in range(n):
        writer.append(put(b"key%d" % i, b"value%d" % i), 101 + i, 1)
        if sync_after == i:
            writer.sync()
    synced = writer.synced
    writer.close()
    return synced


@pytest.mark.parametrize("mode", MODES)
def test_round_trip(tmp_path, mode):
    path = tmp_path / "000007.wal"
    make_log(path, 50, mode)
    memtable = Memtable(1, 1 << 20)
    report = replay_log(path, 7, memtable)
    assert report["records"] == report["entries"] == 50
    assert (report["first_seq"], report["last_seq"]) == (101, 150)
    assert report["previous_last_seq"] == 100
    assert report["torn_reason"] is None
    assert memtable.entries == 50
    dump = LogDump(path)
    assert next(dump)["number"] == 7
    assert list(next(dump)["operations"]) == [("put", b"key0", b"value0", 101)]


@pytest.mark.parametrize("mode", MODES)
def test_cut_anywhere_gives_a_prefix(tmp_path, mode):
    path = tmp_path / "000007.wal"
    make_log(path, 10, mode)
    whole = path.read_bytes()
    end = max(i for i, byte in enumerate(whole) if byte) + 1
    for cut in range(0, end, 3):
        path.write_bytes(whole[:cut])
        if cut < 4096:
            # The head was whole and synced before the log had its name: no crash explains this.
            with pytest.raises(CorruptionError):
                replay_log(path, 7, Memtable(1, 4096))
            continue
        report = replay_log(path, 7, Memtable(1, 4096))
        assert report["records"] <= 10
        if report["records"]:
            assert report["last_seq"] == 100 + report["records"]


@pytest.mark.parametrize("mode", MODES)
def test_flips_below_the_synced_offset_raise(tmp_path, mode):
    path = tmp_path / "000007.wal"
    synced = make_log(path, 12, mode, sync_after=8)
    whole = bytearray(path.read_bytes())
    for at in range(4096, synced):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError) as caught:
            check_log(path, 7)
        assert caught.value.file == str(path)
        assert 4096 <= caught.value.offset <= at


def test_flips_above_the_synced_offset_are_a_torn_tail(tmp_path):
    path = tmp_path / "000007.wal"
    synced = make_log(path, 12, "mmap", sync_after=8)
    whole = bytearray(path.read_bytes())
    end = max(i for i, byte in enumerate(whole) if byte) + 1
    for at in range(synced, end):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        report = check_log(path, 7)
        assert 9 <= report["records"] < 12
        assert report["torn_reason"]
        assert report["torn_offset"] >= synced


def test_a_later_record_tells_that_damage_lies_below_what_was_synced(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 12, "mmap", sync_after=8)
    damaged = bytearray(path.read_bytes())
    damaged[512:536] = damaged[1024:1048] = bytes(24)  # both slots lost: only record headers know
    damaged[4096 + 40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError):
        check_log(path, 7)


def test_salvage_keeps_what_is_before_the_damage(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 12, "mmap", sync_after=11)
    damaged = bytearray(path.read_bytes())
    damaged[4096 + 48 * 5 + 40] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptionError):
        check_log(path, 7)
    report = check_log(path, 7, salvage=True)
    assert 0 < report["records"] < 12
    assert report["torn_reason"]


def test_salvage_lost_a_whole_log_for_one_malformed_batch(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, 7, mode="write")
    writer.append(put(b"k", b"v"), 1, 1)
    writer.append(b"\x09\x01k", 2, 1)  # no such operation, under a checksum that is right
    writer.append(b"\x01\x01k", 3, 1)
    writer.sync()
    writer.close()
    with pytest.raises(CorruptionError, match="malformed key"):
        check_log(path, 7)
    report = check_log(path, 7, salvage=True)
    assert (report["records"], report["last_seq"]) == (1, 1)
    assert "malformed key" in report["torn_reason"]


def test_a_log_goes_into_as_many_memtables_as_are_wanted(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, 7, mode="write")
    for n in range(40):
        ops = [put(b"%04d" % (n * 25 + i), b"v") for i in range(25)]
        writer.append(b"".join(ops), 1 + n * 25, 25)
    writer.close()
    found = check_log(path, 7)
    reader, taken, pieces = LogReader(path, 7, found["bytes"]), 0, []
    while not reader.done:
        pieces.append(Memtable(1, 4096))
        reader.fill(pieces[-1], 5000)
        assert reader.taken > taken
        taken = reader.taken
    assert len(pieces) > 5
    assert sum(piece.entries for piece in pieces) == 1000
    assert taken == found["bytes"]
    # One after another, and cut inside batches too.
    assert all(a.max_seq + 1 == b.min_seq for a, b in itertools.pairwise(pieces))
    assert any(piece.max_seq % 25 for piece in pieces)


def test_a_record_larger_than_the_window_is_read_like_any_other(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, 7, mode="write")
    values = [b"a" * 10, b"b" * (3 << 20), b"c" * 10]
    for n, value in enumerate(values):
        writer.append(put(b"%d" % n, value), n + 1, 1)
    writer.close()
    memtable = Memtable(1, 4096)
    assert replay_log(path, 7, memtable)["records"] == 3
    assert memtable.entries == 3
    assert [value for record in LogDump(path) for _, _, value, _ in record.get("operations", ())] == values


def test_operations_are_there_until_the_next_record(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, 7, mode="write")
    for n in range(2):
        writer.append(put(b"a", b"%d" % n) + put(b"b", b"%d" % n), 1 + 2 * n, 2)
    writer.close()
    dump = LogDump(path)
    next(dump)
    first = next(dump)["operations"]
    assert next(first) == ("put", b"a", b"0", 1)
    second = next(dump)["operations"]
    with pytest.raises(ValueError, match="before the next record"):
        next(first)
    assert list(second) == [("put", b"a", b"1", 3), ("put", b"b", b"1", 4)]
    assert list(dump) == []
    with pytest.raises(StopIteration):
        next(dump)
    assert list(second) == []


@pytest.mark.parametrize(
    "read",
    [lambda: LogDump(7.5), LogDump, lambda: LogReader(7.5, 7, 4096), lambda: LogReader("log", "seven", 4096)],
)
def test_arguments_of_a_wrong_type_closed_descriptor_0(read):
    """The reader that came to nothing took the 0 it was born with for its own."""
    fd = os.dup(0)
    try:
        with pytest.raises(TypeError):
            read()
        os.fstat(0)
    finally:
        os.dup2(fd, 0)
        os.close(fd)


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
    assert check_log(path, 7)["records"] == 0
    path.write_bytes(whole)
    with pytest.raises(CorruptionError, match="another log's number"):
        check_log(path, 8)


def test_record_larger_than_a_window(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, 7)
    value = os.urandom(9 << 20)
    payload = b"\0\x01k" + bytes([0x80 | (len(value) & 0x7F)])
    rest, out = len(value) >> 7, b""
    while rest >= 0x80:
        out += bytes([0x80 | (rest & 0x7F)])
        rest >>= 7
    payload += out + bytes([rest]) + value
    writer.append(put(b"a", b"1"), 1, 1)
    writer.append(payload, 2, 1)
    writer.append(put(b"z", b"1"), 3, 1)
    writer.close()
    report = check_log(path, 7)
    assert report["records"] == 3


def test_creating_over_an_existing_log_is_refused(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 1)
    with pytest.raises(LsmIOError):
        LogWriter(path, 7)
    assert check_log(path, 7)["records"] == 1


def test_file_mode_is_private(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 1)
    assert os.stat(path).st_mode & 0o777 == 0o600


@given(payload=st.binary(max_size=60), count=st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_decoding_a_batch_never_crashes(payload, count):
    try:
        operations = decode_batch(payload, count, 1)
    except CorruptionError:
        return
    assert len(operations) == count

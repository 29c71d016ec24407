"""Dumping a log: its head, its records and their operations."""

import pytest
from logs import NUMBER, make_log, put

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.reader import HEAD_SIZE
from lsmkv_ext.wal.writer import LogWriter


def test_head_and_records(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 50)
    head, *records = LogDump(path)
    assert (head["number"], head["previous_last_seq"], head["problem"]) == (NUMBER, 100, None)
    assert len(records) == 50
    assert records[0]["offset"] == HEAD_SIZE
    assert [record["first_seq"] for record in records] == list(range(101, 151))
    dump = LogDump(path)
    next(dump)
    assert list(next(dump)["operations"]) == [("put", b"key0", b"value0", 101, 0, 0)]


def test_a_torn_tail_is_the_last_thing_told(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 3)
    *_, last = LogDump(path)
    damaged = bytearray(path.read_bytes())
    damaged[last["offset"]] ^= 1
    path.write_bytes(damaged)
    *records, end = LogDump(path)
    assert len(records) == 3  # the head and two
    assert end == {"offset": last["offset"], "problem": "a record header does not match its checksum"}


def test_a_malformed_batch_is_corruption_with_its_place(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER, mode="write")
    writer.append(put(b"k", b"v"), 1, 1)
    offset = writer.size
    writer.append(b"\x09\x01k", 2, 1)  # no such operation, under a checksum that is right
    writer.close()
    with pytest.raises(CorruptionError, match="unknown operation") as caught:
        list(LogDump(path))
    assert (caught.value.file, caught.value.offset) == (str(path), offset)


def test_a_record_larger_than_the_window_is_dumped_like_any_other(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER, mode="write")
    values = [b"a" * 10, b"b" * (3 << 20), b"c" * 10]
    for n, value in enumerate(values):
        writer.append(put(b"%d" % n, value), n + 1, 1)
    writer.close()
    assert [value for record in LogDump(path) for _, _, value, *_ in record.get("operations", ())] == values


def test_operations_are_there_until_the_next_record(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER, mode="write")
    for n in range(2):
        writer.append(put(b"a", b"%d" % n) + put(b"b", b"%d" % n), 1 + 2 * n, 2)
    writer.close()
    dump = LogDump(path)
    next(dump)
    first = next(dump)["operations"]
    assert next(first) == ("put", b"a", b"0", 1, 0, 0)
    second = next(dump)["operations"]
    with pytest.raises(ValueError, match="before the next record"):
        next(first)
    assert list(second) == [("put", b"a", b"1", 3, 0, 0), ("put", b"b", b"1", 4, 0, 0)]
    assert list(dump) == []
    with pytest.raises(StopIteration):
        next(dump)
    assert list(second) == []

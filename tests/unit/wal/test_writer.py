"""Writing a log: records, syncs, the file itself."""

import os

import pytest
from logs import NUMBER, make_log, put

from lsmkv_ext.errors import IOError as LsmIOError
from lsmkv_ext.wal.dump import LogDump
from lsmkv_ext.wal.reader import HEAD_SIZE, check_log
from lsmkv_ext.wal.writer import LogWriter

MODES = ["mmap", "write"]


@pytest.mark.parametrize("mode", MODES)
def test_size_and_synced_follow_the_records(tmp_path, mode):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER, mode=mode)
    assert (writer.mode, writer.size, writer.synced, writer.syncs) == (mode, HEAD_SIZE, HEAD_SIZE, 0)
    writer.append(put(b"k", b"v"), 1, 1)
    assert writer.size == HEAD_SIZE + 40  # 32 of header, 5 of payload, 3 of padding
    assert writer.synced == HEAD_SIZE
    writer.sync()
    writer.sync()  # nothing left to do
    assert (writer.synced, writer.syncs) == (writer.size, 1)
    writer.append(put(b"l", b"v"), 2, 1)
    end = writer.size
    writer.close()
    _, first, second = LogDump(path)
    assert (first["synced"], second["synced"]) == (HEAD_SIZE, HEAD_SIZE + 40)
    found = check_log(path, NUMBER)
    assert (found["bytes"], found["known_synced"]) == (end, HEAD_SIZE + 40)


def test_a_closed_log_takes_no_records(tmp_path):
    writer = LogWriter(tmp_path / "000007.wal", NUMBER)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append(put(b"k", b"v"), 1, 1)
    with pytest.raises(ValueError, match="closed"):
        writer.sync()


def test_unknown_modes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="mode"):
        LogWriter(tmp_path / "000007.wal", NUMBER, mode="append")
    assert os.listdir(tmp_path) == []


def test_a_log_without_a_watermark_cannot_be_given_none(tmp_path):
    writer = LogWriter(tmp_path / "000007.wal", NUMBER)
    with pytest.raises(TypeError):
        writer.attach_watermark(None, None)
    writer.close()


def test_a_record_larger_than_the_window(tmp_path):
    path = tmp_path / "000007.wal"
    writer = LogWriter(path, NUMBER)
    writer.append(put(b"a", b"1"), 1, 1)
    writer.append(put(b"k", os.urandom(9 << 20)), 2, 1)
    writer.append(put(b"z", b"1"), 3, 1)
    writer.close()
    assert check_log(path, NUMBER)["records"] == 3


def test_creating_over_an_existing_log_is_refused(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 1)
    with pytest.raises(LsmIOError):
        LogWriter(path, NUMBER)
    assert check_log(path, NUMBER)["records"] == 1


def test_file_mode_is_private(tmp_path):
    path = tmp_path / "000007.wal"
    make_log(path, 1)
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [1000, 5000, 9000, 40_000])
def test_only_zeros_follow_the_last_record(tmp_path, size):
    """A step that was no power of two grew beyond the zeros that are written ahead: other memory followed them."""
    writer = LogWriter(tmp_path / "000007.wal", 7, mode="mmap")
    for seq in range(1, 60):
        writer.append(put(b"key", b"\xff" * size), seq, 1)
    data = (tmp_path / "000007.wal").read_bytes()
    assert data[writer.size :].strip(b"\0") == b""
    assert len(data) > writer.size
    writer.close()

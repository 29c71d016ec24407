"""A checked log goes into memtables, as many as it takes."""

import itertools

import pytest
from logs import NUMBER, delete, delete_range, put, replay_log

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.memtable.memtable import Memtable
from lsmkv_ext.memtable.replay import LogReplay
from lsmkv_ext.wal.reader import check_log
from lsmkv_ext.wal.writer import LogWriter


def write_log(path, batches):
    writer = LogWriter(path, NUMBER, mode="write")
    seq = 1
    for batch in batches:
        writer.append(b"".join(batch), seq, len(batch))
        seq += len(batch)
    writer.close()
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "000007.wal"


def test_every_kind_of_operation_is_applied(path):
    write_log(path, [[put(b"a", b"1"), put(b"b", b"2")], [delete(b"a"), delete_range(b"x", b"z")]])
    memtable = Memtable(1, 4096)
    replay_log(path, NUMBER, memtable)
    assert (memtable.entries, memtable.keys) == (3, 2)
    assert (memtable.min_seq, memtable.max_seq) == (1, 4)
    assert memtable.deletes == 1
    assert memtable.range_tombstones == [(b"x", b"z", 4)]


def test_a_log_goes_into_as_many_memtables_as_are_wanted(path):
    write_log(path, [[put(b"%04d" % (n * 25 + i), b"v") for i in range(25)] for n in range(40)])
    found = check_log(path, NUMBER)
    replay, taken, pieces = LogReplay(path, NUMBER, found["bytes"]), 0, []
    while not replay.done:
        pieces.append(Memtable(1, 4096))
        replay.fill({0: pieces[-1]}, 1, 5000)
        assert replay.taken > taken
        taken = replay.taken
    assert len(pieces) > 5
    assert sum(piece.entries for piece in pieces) == 1000
    assert taken == found["bytes"]
    # One after another, and cut inside batches too.
    assert all(a.max_seq + 1 == b.min_seq for a, b in itertools.pairwise(pieces))
    assert any(piece.max_seq % 25 for piece in pieces)


def test_a_record_larger_than_the_window_is_read_like_any_other(path):
    write_log(path, [[put(b"%d" % n, value)] for n, value in enumerate([b"a" * 10, b"b" * (3 << 20), b"c" * 10])])
    memtable = Memtable(1, 4096)
    assert replay_log(path, NUMBER, memtable)["records"] == 3
    assert memtable.entries == 3


def test_a_log_that_changed_since_its_check_is_corrupt(path):
    write_log(path, [[put(b"a", b"1")], [put(b"b", b"2")]])
    found = check_log(path, NUMBER)
    data = bytearray(path.read_bytes())
    data[found["bytes"] - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="changed while it was read"):
        LogReplay(path, NUMBER, found["bytes"]).fill({0: Memtable(1, 4096)}, 1, 1 << 20)

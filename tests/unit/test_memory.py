"""Where memory comes from: large pieces from the system itself, so that they go back to it."""

import ctypes
import sys

import pytest

import lsmkv
from lsmkv_ext.memtable import Memtable
from lsmkv_ext.table import Table


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "n1", "n2", "n3", "hblkhd", "n5", "n6", "uordblks", "fordblks", "keepcost")
    ]


def in_malloc():
    """Bytes in use that came from malloc, by any thread."""
    call = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if call is None:
        pytest.skip("mallinfo2 is glibc's")
    call.restype = Mallinfo2
    info = call()
    return info.uordblks + info.hblkhd


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_the_index_of_a_table_stayed_in_the_heap_of_the_thread_that_opened_it(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst", block_size=64) as writer:
        for i in range(40_000):
            writer.put(b"key%08d" % i, b"value" * 8)
    before = in_malloc()
    table = Table(str(tmp_path / "t.sst"))
    assert table.memory > 1 << 20
    assert in_malloc() - before < 128 << 10


def test_a_memtable_begins_with_the_index_that_the_last_one_needed(tmp_path):
    slots = lambda memtable: memtable.memory // 8  # noqa: E731  (an empty one is all index)
    assert slots(Memtable(1, 64 << 20)) == 4096
    assert slots(Memtable(1, 64 << 20, 100_000)) == 1 << 18
    assert slots(Memtable(1, 8192, 100_000)) == 4096, "more index than buffer"
    with lsmkv.open(tmp_path / "db", write_buffer_size=4 << 20) as db:
        first = db._versions.active
        for i in range(10_000):
            db.put(b"%d" % i, b"")
        assert first.keys == 10_000
        db.flush()
        assert db._versions.active is not first
        assert slots(db._versions.active) == 1 << 15
        assert len(db) == 10_000

"""An open table's memory: large pieces are mapped, so they go back to the system."""

import ctypes
import sys

import pytest

import lsmkv
from lsmkv_ext.table.table import Table


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
def test_the_index_of_a_table_is_not_in_the_heap_of_the_thread_that_opens_it(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst", block_size=64) as writer:
        for i in range(40_000):
            writer.put(b"key%08d" % i, b"value" * 8)
    before = in_malloc()
    table = Table(str(tmp_path / "t.sst"))
    assert table.memory > 1 << 20
    assert in_malloc() - before < 128 << 10

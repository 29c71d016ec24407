"""A section larger than half the output buffer was once written ahead of smaller ones still waiting in it."""

import os

from lsmkv_ext.table.sst_reader import SSTReader
from lsmkv_ext.table.sst_writer import SSTWriter


def test_large_value_behind_small_ones_keeps_file_order(tmp_path):
    path = tmp_path / "t.sst"
    big = os.urandom(300_000)
    items = [(b"%03d" % i, os.urandom(1000)) for i in range(50)]
    items.append((b"050", big))
    items += [(b"%03d" % i, os.urandom(1000)) for i in range(51, 100)]
    with SSTWriter(path, compression=None) as writer:
        for key, value in items:
            writer.put(key, value)
    with SSTReader(path) as reader:
        assert list(reader.items()) == items

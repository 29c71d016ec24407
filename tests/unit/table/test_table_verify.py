"""verify_table: what it reports, and where."""

from tables import numbered, write_table

from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table


def test_verify_lists_every_bad_block(tmp_path):
    rows = numbered(300)
    path = tmp_path / "t.sst"
    write_table(path, rows, block_size=300)
    layout = Table(path).block_layout()
    raw = bytearray(path.read_bytes())
    hit = [layout[i] for i in (0, 5, len(layout) - 1)]
    for block in hit:
        raw[block["offset"] + 3] ^= 4
    path.write_bytes(raw)
    table = Table(path)
    for deep in (False, True):
        assert [f["offset"] for f in verify_table(table, deep=deep)] == [b["offset"] for b in hit]
    # Blocks that are sound still answer.
    assert table.get(b"key%08d" % 100) == rows[b"key%08d" % 100]

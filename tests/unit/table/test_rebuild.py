"""A table copied with another filter: the same data blocks, or an error and no file."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import layouts, listed, numbered, rows_by_key, write_table

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table
from lsmkv_ext.table.verify import verify_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rebuilt")


@settings(max_examples=80, deadline=None)
@given(rows_by_key, layouts, st.sampled_from([0, 6000, 12000]))
def test_a_rebuilt_filter_keeps_the_data(folder, rows, layout, millibits):
    tombstones = ((b"a", b"b", 3),)
    write_table(folder / "old.sst", rows, tombstones, seed=5, **layout)
    (folder / "new.sst").unlink(missing_ok=True)
    old = Table(folder / "old.sst", 1)
    outcome = rebuild_table_filter(old, folder / "new.sst", millibits=millibits, level=4, number=2)
    new = Table(folder / "new.sst", 2)
    data = old.properties["data_bytes"]
    assert (folder / "new.sst").read_bytes()[:data] == (folder / "old.sst").read_bytes()[:data]
    assert list(new.entries()) == listed(rows)
    assert verify_table(new) == []
    same = (
        *("n_entries", "n_deletes", "n_range_tombstones", "n_blocks"),
        *("min_seq", "max_seq", "smallest", "largest"),
    )
    assert {k: new.properties[k] for k in same} == {k: old.properties[k] for k in same}
    assert new.range_tombstones == old.range_tombstones
    assert new.separators() == old.separators()
    (meta,) = outcome["outputs"]
    assert meta == new.meta
    assert meta.millibits == new.filter_info["millibits"] == (millibits if rows else 0)
    assert (new.filter_info["level"], new.properties["number"]) == (4, 2)


WINDOW = 256 << 10


@pytest.mark.parametrize("millibits", [0, 10_000])
@pytest.mark.parametrize(
    "sizes",
    [
        [300] * 4000,
        [WINDOW, 10, 3 * WINDOW + 5, 2 * WINDOW - 40, 7],
        [WINDOW - 100 - n for n in range(60)],
        [5 * WINDOW],
    ],
    ids=["small blocks", "blocks beyond a window", "blocks near a window", "one block"],
)
def test_blocks_that_a_window_cuts(tmp_path, sizes, millibits):
    rows = {b"key%06d" % i: (bytes([i % 251]) * size, i + 1) for i, size in enumerate(sizes)}
    write_table(tmp_path / "old.sst", rows, block_size=4096, compression=None)
    old = Table(tmp_path / "old.sst", 1)
    rebuild_table_filter(old, tmp_path / "new.sst", millibits=millibits, number=2)
    data = old.properties["data_bytes"]
    assert data > WINDOW
    assert (tmp_path / "new.sst").read_bytes()[:data] == (tmp_path / "old.sst").read_bytes()[:data]
    new = Table(tmp_path / "new.sst", 2)
    assert list(new.entries()) == listed(rows)
    assert verify_table(new) == []


def test_prefixes_in_the_filter(tmp_path):
    write_table(tmp_path / "old.sst", {b"user%03d:x" % i: (b"", 1) for i in range(300)})
    rebuild_table_filter(
        Table(tmp_path / "old.sst"), tmp_path / "new.sst", millibits=10000, prefix_kind=1, prefix_arg=7
    )
    info = Table(tmp_path / "new.sst").filter_info
    assert (info["prefix_kind"], info["prefix_arg"], info["n_keys"]) == (1, 7, 600)


def test_a_damaged_table_is_not_copied(tmp_path):
    path, out = tmp_path / "t.sst", tmp_path / "new.sst"
    write_table(path, numbered(100), block_size=300)
    raw = bytearray(path.read_bytes())
    raw[Table(path).block_layout()[4]["offset"]] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptionError):
        rebuild_table_filter(Table(path), out, millibits=10000)
    assert not out.exists()

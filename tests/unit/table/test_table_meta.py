"""TableMeta has the same values whether a builder, an open table or the manifest makes it."""

import dataclasses

import pytest
from tables import numbered, write_table

from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.meta import TableMeta
from lsmkv_ext.table.rebuild import rebuild_table_filter
from lsmkv_ext.table.table import Table

TOMBSTONES = ((b"key00000010", b"key00000020", 5000), (b"zz", b"zzz", 6000))


@pytest.mark.parametrize("tombstones", [(), TOMBSTONES])
@pytest.mark.parametrize("millibits", [0, 10_000])
def test_a_job_says_what_its_table_says(tmp_path, tombstones, millibits):
    write_table(tmp_path / "in.sst", numbered(300), tombstones)
    options = {"numbers": FileNumbers(7), "output_level": 2, "millibits": millibits}
    (meta,) = Job([Table(tmp_path / "in.sst")], directory=tmp_path, **options).run()["outputs"]
    path = tmp_path / f"{meta.number:06d}.sst"
    table = Table(path, meta.number)
    assert meta == table.meta
    assert (meta.number, meta.size, meta.filter_level) == (7, path.stat().st_size, 2)
    assert (meta.entries, meta.deletes) == (table.n_entries, table.n_deletes)
    assert meta.range_tombstones == len(table.range_tombstones)
    assert (meta.smallest, meta.largest, meta.largest_exclusive) == (
        table.smallest,
        table.largest,
        table.largest_exclusive,
    )
    assert meta.filter_keys == (meta.entries if millibits else 0)


def test_a_rebuilt_filter_keeps_the_sequence_number_of_an_ingest(tmp_path):
    write_table(tmp_path / "in.sst", numbered(300), TOMBSTONES)
    old = Table(tmp_path / "in.sst", 1, global_seq=77)
    (meta,) = rebuild_table_filter(old, tmp_path / "out.sst", millibits=8000, level=3, number=2)["outputs"]
    assert meta == Table(tmp_path / "out.sst", 2, global_seq=77).meta
    assert (meta.global_seq, meta.min_seq, meta.max_seq) == (77, 77, 77)
    filter_fields = {"number", "size", "filter_bytes", "filter_keys", "millibits", "k", "filter_level"}
    for field in dataclasses.fields(TableMeta):
        if field.name not in filter_fields:
            assert getattr(meta, field.name) == getattr(old.meta, field.name), field.name


def test_keys_out_of_order_are_refused():
    with pytest.raises(ValueError, match="file 3: smallest key above the largest"):
        TableMeta(number=3, size=0, entries=1, smallest=b"b", largest=b"a")

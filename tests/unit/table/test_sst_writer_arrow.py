"""`SSTWriter.put_arrow`: tables of keys and values."""

import pytest

import lsmkv

pyarrow = pytest.importorskip("pyarrow")


def rows(n, start=0, size=20):
    return {b"key%09d" % i: b"%d" % i * size for i in range(start, start + n)}


def table_of(pairs, kind=None):
    kind = kind or pyarrow.binary()
    return pyarrow.table({"key": pyarrow.array(list(pairs), kind), "value": pyarrow.array(list(pairs.values()), kind)})


def read(path):
    with lsmkv.SSTReader(path) as reader:
        return dict(reader.items())


@pytest.mark.parametrize("kind", [None, pyarrow.large_binary(), pyarrow.binary_view()])
def test_rows_of_several_chunks(tmp_path, kind):
    path = tmp_path / "rows.sst"
    parts = [rows(3000), {}, rows(1, 3000), rows(2500, 3001)]
    with lsmkv.SSTWriter(path) as writer:
        writer.put(b"a", b"before")
        writer.put_arrow(pyarrow.concat_tables([table_of(part, kind) for part in parts]), seq=5)
        writer.put(b"z", b"behind")
    expected = {b"a": b"before", **rows(5501), b"z": b"behind"}
    assert read(path) == expected
    assert writer.summary["n_entries"] == len(expected)
    with lsmkv.open(tmp_path / "db") as db:
        db.ingest([path])
        assert dict(db.items()) == expected


def test_text_and_one_batch(tmp_path):
    batch = pyarrow.record_batch({"k": ["ada", "grace"], "v": ["1815", ""]})
    with lsmkv.SSTWriter(tmp_path / "people.sst") as writer:
        writer.put_arrow(batch)
        writer.put_arrow(table_of({}))
    assert read(tmp_path / "people.sst") == {b"ada": b"1815", b"grace": b""}


def test_a_wrong_row_is_named_and_those_before_it_stay(tmp_path):
    pairs = rows(2000)
    keys, values = list(pairs), list(pairs.values())
    keys[1700] = keys[1699]
    path = tmp_path / "rows.sst"
    with lsmkv.SSTWriter(path) as writer:
        with pytest.raises(ValueError, match="row 1700: keys must be added in strictly increasing order"):
            writer.put_arrow(pyarrow.table({"key": keys, "value": values}))
        with pytest.raises(ValueError, match="row 0: keys must be added"):
            writer.put_arrow(table_of({keys[1699]: b"again"}))
        writer.put(keys[1701], b"behind")
    assert read(path) == {**dict(list(pairs.items())[:1700]), keys[1701]: b"behind"}


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"k": [b"a", None], "v": [b"", b""]}, ValueError, "row 1 is null"),
        ({"k": [b"a", b"b"], "v": [None, b""]}, ValueError, "row 0 is null"),
        ({"k": [b"a" * 65536], "v": [b""]}, ValueError, "row 0: key of 65536 bytes"),
        ({"k": [b"a"]}, TypeError, "1 columns where 2 are needed"),
        ({"k": [1], "v": [b""]}, TypeError, "not a column of bytes"),
    ],
)
def test_what_is_refused(tmp_path, table, error, message):
    with lsmkv.SSTWriter(tmp_path / "rows.sst") as writer:
        with pytest.raises(error, match=message):
            writer.put_arrow(pyarrow.table(table))
        writer.put(b"b", b"")
    assert b"b" in read(tmp_path / "rows.sst")


def test_what_is_no_table(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "rows.sst") as writer:
        for table in ([], 7, b"bytes", pyarrow.array([b"a"])):
            with pytest.raises(TypeError):
                writer.put_arrow(table)
    with pytest.raises(lsmkv.ClosedError):
        writer.put_arrow(table_of(rows(1)))

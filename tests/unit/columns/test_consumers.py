"""Libraries that read Arrow's C stream read a scan directly, and write their tables back."""

import pytest

import lsmkv


@pytest.fixture
def rows(db):
    db.put_many([b"key%05d" % i for i in range(5000)], [b"value %d" % (i % 7) for i in range(5000)])
    db.put(b"a long value", b"x" * 100)
    return list(db.items())


def test_pyarrow(db, rows):
    pyarrow = pytest.importorskip("pyarrow")
    compute = pytest.importorskip("pyarrow.compute")
    table = pyarrow.table(db.scan_arrow(batch_rows=1000))
    assert table["key"].num_chunks == 6
    assert compute.count_distinct(table["value"]).as_py() == 8
    reader = pyarrow.RecordBatchReader.from_stream(db.scan_arrow(batch_rows=1000))
    assert sum(batch.num_rows for batch in reader) == len(rows)
    db.clear()
    assert db.write_arrow(table) == len(rows)
    assert list(db.items()) == rows


def test_polars(db, rows):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(db.scan_arrow(batch_rows=1000))
    assert frame.rows() == rows
    text = polars.DataFrame(db.scan_arrow(value_type="string"))
    assert text["value"].str.len_bytes().max() == 100
    series = polars.Series(db.multi_get_arrow(frame["key"]))
    assert series.to_list() == [value for _, value in rows]
    db.clear()
    assert db.write_arrow(frame) == len(rows)
    assert list(db.items()) == rows


def test_pandas(db, rows):
    pandas = pytest.importorskip("pandas")
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("pandas 3 reads Arrow streams")
    frame = pandas.DataFrame.from_arrow(db.scan_arrow(batch_rows=1000))
    assert list(frame.itertuples(index=False, name=None)) == rows
    db.clear()
    assert db.write_arrow(frame) == len(rows)
    assert list(db.items()) == rows


def test_duckdb(db, rows):
    duckdb = pytest.importorskip("duckdb")
    scan = db.scan_arrow(value_type="string", batch_rows=1000)
    query = "select value, count(*) from scan where key >= 'key'::blob group by value order by value"
    with duckdb.connect() as connection:
        for _ in range(2):
            found = connection.execute(query).fetchall()
            assert found == [(f"value {i}", 715 if i < 2 else 714) for i in range(7)]
        people = db.keyspace("people")
        assert people.write_arrow(connection.sql("select key, value from scan")) == len(rows)
    assert scan is not None
    assert list(people.items()) == rows


def test_duckdb_reports_a_closed_database(path):
    duckdb = pytest.importorskip("duckdb")
    db = lsmkv.open(path)
    db.put(b"a", b"1")
    scan = db.scan_arrow()
    with duckdb.connect() as connection:
        relation = connection.sql("select count(*) from scan")
        db.close()
        with pytest.raises(Exception, match="closed") as raised:
            relation.fetchall()
    assert scan is not None and not isinstance(raised.value, AssertionError)

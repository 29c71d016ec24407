"""Bulk builds: what workers stage and a publisher ingests."""

import os
import pickle
import random
from bisect import bisect_right
from dataclasses import replace

import obstore.store
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsmkv
from lsmkv import bulk
from lsmkv.sorted_columns import cut, sorted_columns


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def staging(tmp_path):
    return tmp_path / "staging"


def rows(n, seed=0):
    draw = random.Random(seed)
    return [(b"%08d" % draw.randrange(n), b"%d" % i) for i in range(n)]


def build_all(writer, wanted):
    parts = [[] for _ in range(writer.partitions)]
    for key, value in wanted:
        parts[writer.partition_of(key)].append((key, value))
    return [writer.build(number, part) for number, part in enumerate(parts)]


def staged(staging):
    return [path for path in staging.rglob("*") if path.is_file()]


def test_the_database_has_the_rows_and_of_equal_keys_the_last(path, staging):
    wanted = rows(5000)
    with lsmkv.open(path) as db:
        db[wanted[0][0]] = b"older"
        db[b"other"] = b"stays"
        writer = lsmkv.BulkWriter(
            staging, [b"00001000", b"00003000", b"9"], seed=db.seed, target_file_size=4000, compression=None
        )
        results = pickle.loads(pickle.dumps(build_all(pickle.loads(pickle.dumps(writer)), wanted)))
        assert [len(result.tables) > 1 for result in results] == [True, True, True, False]
        assert writer.publish(db, results) == len(dict(wanted)) == sum(result.rows for result in results)
        assert dict(db) == dict(wanted) | {b"other": b"stays"}
        assert {table.number for table in db.tables()} and not staged(staging)
        assert not [reason for reason in db.filter_debt() if "seed" in str(reason)]
    assert lsmkv.verify(path)
    assert [p.name for p in path.parent.iterdir() if ".bulk-" in p.name] == []


def test_into_a_keyspace_and_through_an_object_store(path, tmp_path, monkeypatch):
    store = obstore.store.MemoryStore()
    real = bulk.open_store
    monkeypatch.setattr(bulk, "open_store", lambda url, options: real(store))
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        writer = lsmkv.BulkWriter("memory://bucket", [b"m"])
        writer.publish(users, build_all(writer, [(b"ada", b"1"), (b"zoe", b"2")]))
        assert dict(users) == {b"ada": b"1", b"zoe": b"2"} and dict(db) == {}
    assert not list(obstore.list(store))


def test_a_repeated_or_killed_attempt_is_harmless(path, staging):
    wanted = rows(500)
    writer = lsmkv.BulkWriter(staging, [b"00000250"])
    build_all(writer, wanted)  # killed: nobody got its results
    results = build_all(writer, wanted)
    twice = [*results, *build_all(writer, wanted)]
    other = lsmkv.BulkWriter(staging)
    waiting = other.build(0, wanted)
    with lsmkv.open(path) as db:
        assert writer.publish(db, twice) == len(dict(wanted))
        assert dict(db) == dict(wanted)
        assert len(db.tables()) == 2
        assert len(staged(staging)) == 1  # of the other job
        other.publish(db, [waiting])
    assert not staged(staging)


def test_a_publication_that_failed_can_be_repeated(path, staging, monkeypatch):
    wanted = rows(500)
    writer = lsmkv.BulkWriter(staging, [b"00000250"])
    results = build_all(writer, wanted)
    with lsmkv.open(path) as db:
        with monkeypatch.context() as patched:
            patched.setattr(lsmkv.DB, "ingest", lambda *_, **__: (_ for _ in ()).throw(lsmkv.IOError(5, "injected")))
            with pytest.raises(lsmkv.IOError, match="injected"):
                writer.publish(db, results)
        assert dict(db) == {} and not db.tables()
        writer.publish(db, results)
        assert dict(db) == dict(wanted)


def test_damaged_missing_and_foreign_tables_are_refused(path, staging):
    writer = lsmkv.BulkWriter(staging)
    result = writer.build(0, [(b"a", b"1")])
    (file,) = staged(staging)
    good = file.read_bytes()
    with lsmkv.open(path) as db:
        file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(lsmkv.CorruptionError, match="damaged"):
            writer.publish(db, [result])
        file.unlink()
        with pytest.raises(lsmkv.IOError, match="missing"):
            writer.publish(db, [result])
        for bad in (
            replace(result, partition=1),
            lsmkv.BulkWriter(staging).build(0, [(b"a", b"1")]),
            replace(result, tables=(replace(result.tables[0], name=f"bulk/{writer.job}/../x"),)),
        ):
            with pytest.raises(ValueError, match="another job"):
                writer.publish(db, [bad])
        file.write_bytes(good)
        assert writer.publish(db, [result]) == 1


def test_rows_of_another_partition_and_wrong_arguments(staging):
    writer = lsmkv.BulkWriter(staging, [b"m"])
    for partition, key in ((0, b"m"), (1, b"lzz"), (0, b"z")):
        with pytest.raises(ValueError, match="does not belong"):
            writer.build(partition, [(key, b"1")])
    for partition in (-1, 2):
        with pytest.raises(ValueError, match="partition"):
            writer.build(partition, [])
    for points in ([b"b", b"a"], [b"a", b"a"], [b""]):
        with pytest.raises(ValueError, match="split points"):
            lsmkv.BulkWriter(staging, points)
    with pytest.raises(ValueError, match="target_file_size"):
        lsmkv.BulkWriter(staging, target_file_size=0)
    assert not staged(staging)
    assert writer.build(0, []).tables == ()


def test_nothing_to_publish(path, staging):
    with lsmkv.open(path) as db:
        writer = lsmkv.BulkWriter(staging, [b"m"])
        assert writer.publish(db, build_all(writer, [])) == 0
        assert not db.tables()


@given(st.sets(st.binary(max_size=3)), st.integers(1, 9))
def test_split_points_are_ascending_and_few(keys, partitions):
    points = bulk.split_points(keys, partitions)
    assert points == sorted(set(points)) and len(points) < partitions and b"" not in points
    lsmkv.BulkWriter("staging", points)


def test_split_points_of_a_database_cut_it_into_equal_parts(path):
    with lsmkv.open(path, write_buffer_size=64 << 10, target_file_size=64 << 10) as db:
        assert db.split_points(4) == []
        for key, value in ((b"%06d" % i, os.urandom(100)) for i in range(8000)):
            db.put(key, value)
        db.flush()
        points = db.split_points(4)
        assert len(points) == 3
        ranges = zip([None, *points], [*points, None], strict=True)
        sizes = [len(list(db.keys(start=start, stop=stop))) for start, stop in ranges]
        assert sum(sizes) == 8000 and max(sizes) < 3000
        with pytest.raises(ValueError, match="at least 1"):
            db.split_points(0)
        infos = db.tables()
        assert {os.path.basename(info.path) for info in infos} == {p.name for p in path.glob("*.sst")}
        assert sum(info.entries for info in infos) == 8000


def columns(wanted):
    return pyarrow.table({"k": [key for key, _ in wanted], "v": [value for _, value in wanted]})


@pytest.mark.parametrize(
    "kind", [pyarrow.binary(), pyarrow.string(), pyarrow.large_string(), pyarrow.binary(8), "dict"]
)
def test_arrow_tables_are_sorted_cut_and_merged(path, staging, kind):
    wanted = rows(5000)
    writer = lsmkv.BulkWriter(staging, [b"00001000", b"00003000", b"9"], target_file_size=4000, compression=None)
    results = []
    for start in range(0, 5000, 1000):
        table = columns(wanted[start : start + 1000])
        keys = table["k"].dictionary_encode() if kind == "dict" else table["k"].cast(kind)
        results += writer.build_arrow(table.set_column(0, "k", keys))
    parts = [[each for each in results if each.partition == number] for number in range(writer.partitions)]
    assert [len(part) for part in parts] == [5, 5, 5, 0]
    merged = [writer.merge(part) for part in parts if part]
    assert all(len(each.tables) > 1 for each in merged)
    with lsmkv.open(path) as db:
        assert writer.publish(db, merged) == len(dict(wanted))
        assert dict(db) == dict(wanted)
    assert lsmkv.verify(path) and not staged(staging)


def test_an_arrow_table_fills_several_tables(path, staging):
    wanted = [(b"%08d" % i, b"x" * 100) for i in range(3 * bulk.ARROW_ROWS)]
    writer = lsmkv.BulkWriter(staging, target_file_size=1000, compression=None)
    (built,) = writer.build_arrow(columns(wanted))
    assert [table.entries for table in built.tables] == [bulk.ARROW_ROWS] * 3
    with lsmkv.open(path) as db:
        writer.publish(db, [built])
        assert dict(db) == dict(wanted)


def test_arrow_tables_and_merges_that_are_refused(staging):
    writer = lsmkv.BulkWriter(staging, [b"m"])
    assert (
        writer.build_arrow(columns([]).cast(pyarrow.schema([("k", pyarrow.binary()), ("v", pyarrow.binary())]))) == []
    )
    for table, error in (
        (pyarrow.table({"k": [b"a", None], "v": [b"1", b"2"]}), ValueError),
        (pyarrow.table({"k": [b"a"]}), TypeError),
        (pyarrow.table({"k": [1], "v": [b"1"]}), TypeError),
    ):
        with pytest.raises(error):
            writer.build_arrow(table)
    low, high = writer.build(0, [(b"a", b"1")]), writer.build(1, [(b"z", b"1")])
    for results in ([], [low, high]):
        with pytest.raises(ValueError, match="partitions"):
            writer.merge(results)
    with pytest.raises(ValueError, match="another job"):
        lsmkv.BulkWriter(staging).merge([low, low])
    assert writer.merge([low]) is low


@given(st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=3))), st.lists(st.binary(max_size=2)))
def test_columns_are_sorted_and_cut_as_rows_are(wanted, points):
    table = pyarrow.table({"k": pyarrow.array([k for k, _ in wanted], pyarrow.binary()), "v": [v for _, v in wanted]})
    table = table.set_column(1, "v", table["v"].cast(pyarrow.binary()))
    points = sorted(set(points))
    found = list(cut(sorted_columns(table), points))
    assert [tuple(row.values()) for _, part in found for row in part.to_pylist()] == sorted(dict(wanted).items())
    for partition, part in found:
        assert {bisect_right(points, key) for key in part["key"].to_pylist()} == {partition}

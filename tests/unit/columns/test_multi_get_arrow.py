"""multi_get_arrow: the answers of multi_get, as a column."""

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from arrow.capsules import Array, Made
from arrow.test_arrow_reader import HOSTILE, everything_is_released
from databases import fill
from hypothesis import given, settings
from hypothesis import strategies as st

import lsmkv
from lsmkv_ext.arrow.reader import column_list

from .streams import release, structure
from .test_write_arrow import Closing

pyarrow = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")


def values(column):
    found = pyarrow.array(column)
    found.validate(full=True)
    return found.to_pylist()


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.binary(max_size=2), st.binary(max_size=90), max_size=40),
    st.lists(st.binary(max_size=2), max_size=60),
    st.sets(st.binary(max_size=2), max_size=10),
)
def test_the_answers_are_those_of_multi_get(pairs, keys, deleted):
    folder = Path(tempfile.mkdtemp())
    try:
        with lsmkv.open(folder / "db", large_value_threshold=64) as db:
            db.put_many(pairs, pairs.values())
            db.flush()
            for key in deleted:
                db.delete(key)
            expected = db.multi_get(keys)
            assert values(db.multi_get_arrow(keys)) == expected
            with db.snapshot() as snapshot:
                db.clear()
                assert values(snapshot.multi_get_arrow(pyarrow.array(keys, "binary"))) == expected
            assert values(db.multi_get_arrow(keys)) == [None] * len(keys)
    finally:
        shutil.rmtree(folder)


def test_more_keys_than_are_looked_up_at_once(db):
    fill(db, 5000)
    db.flush()
    keys = [b"key%06d" % (i * 7 % 6000) for i in range(9000)]
    column = pyarrow.chunked_array([keys[:3], keys[3:2000], [], keys[2000:]], "binary")
    found = db.multi_get_arrow(column)
    assert values(found) == db.multi_get(keys)
    assert len(found) == 9000 and found.null_count == sum(db.get(key) is None for key in keys) > 0


def test_sources(db):
    db.put_many([b"a", b"bb"], [b"1", b"2"])
    for keys in (
        numpy.array([b"a", b"bb", b"c"]),
        (b"abbc", numpy.array([0, 1, 3, 4], "i4")),
        [b"a", bytearray(b"bb"), memoryview(b"c")],
        pyarrow.array(["a", "bb", "c"]),
        pyarrow.table({"key": [b"a", b"bb", b"c"]}),
    ):
        assert values(db.multi_get_arrow(keys)) == [b"1", b"2", None]
    assert values(db.multi_get_arrow([])) == []
    for wrong in ("a", b"a", 5, ["a"], pyarrow.array([1])):
        with pytest.raises(TypeError):
            db.multi_get_arrow(wrong)
    with pytest.raises(ValueError, match="row 1 is null"):
        db.multi_get_arrow(pyarrow.array([b"a", None]))


def test_large_values_and_expired_ones(path):
    clock = lsmkv.ManualClock()
    value = os.urandom(5000)
    with lsmkv.open(path, large_value_threshold=1000, clock=clock) as db:
        db.put(b"a", value)
        db.put(b"b", value, ttl=5)
        assert values(db.multi_get_arrow([b"a", b"b"])) == [value, value]
        clock.advance(6)
        db.flush()
        assert values(db.multi_get_arrow([b"a", b"b"])) == [value, None]


def test_types(db):
    db.put_many([b"a", b"b"], ["ä".encode(), b"\xff"])
    for name in ("binary", "large_binary", "string", "large_string"):
        found = pyarrow.array(db.multi_get_arrow([b"a", b"c"], value_type=name))
        assert found.type == getattr(pyarrow, name)() and found.null_count == 1
        assert pyarrow.field(db.multi_get_arrow([b"a"], value_type=name)).type == found.type
    with pytest.raises(ValueError, match="a value is not UTF-8"):
        db.multi_get_arrow([b"a", b"b"], value_type="string")
    with pytest.raises(ValueError, match="type of a column"):
        db.multi_get_arrow([b"a"], value_type="text")


def test_consumers_share_the_column(db):
    db.put(b"a", b"1")
    column = db.multi_get_arrow([b"a", b"b"])
    pairs = [column.__arrow_c_array__() for _ in range(3)]
    first = structure(pairs[0][1], Array)
    del column
    gc.collect()
    assert column_list(Lent(pairs[1]), nulls=True) == [b"1", None]
    release(first)
    assert column_list(Lent(pairs[2]), nulls=True) == [b"1", None]


class Lent:
    def __init__(self, pair):
        self.pair = pair

    def __arrow_c_array__(self, requested_schema=None):
        return self.pair


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_keys_are_refused_and_released_once(db, name):
    make, error, message = HOSTILE[name]
    made = Made()
    with pytest.raises(error, match=message):
        db.multi_get_arrow(make(made))
    everything_is_released(made)


class Keys(Closing):
    def batches(self, schema):
        for batch in super().batches(schema):
            yield batch.select(["key"])

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pyarrow.schema({"key": pyarrow.binary()})
        return pyarrow.RecordBatchReader.from_batches(schema, self.batches(two())).__arrow_c_stream__()


def two():
    return pyarrow.schema({"key": pyarrow.binary(), "value": pyarrow.binary()})


def test_a_source_may_close_the_database(db):
    with pytest.raises(lsmkv.ClosedError):
        db.multi_get_arrow(Keys(db))


def test_closed_and_dropped(db):
    people = db.keyspace("people")
    snapshot = db.snapshot()
    snapshot.close()
    db.drop_keyspace("people")
    with pytest.raises(lsmkv.KeyspaceError):
        people.multi_get_arrow([b"a"])
    for reader in (snapshot, db):
        db.close()
        with pytest.raises(lsmkv.ClosedError):
            reader.multi_get_arrow([b"a"])


def test_damage(path):
    with lsmkv.open(path, compression=None) as db:
        fill(db, 1000)
    (table,) = path.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 1
    table.write_bytes(content)
    with lsmkv.open(path) as db, pytest.raises(lsmkv.CorruptionError, match=table.name):
        db.multi_get_arrow([b"key%06d" % i for i in range(1000)])


def test_lookups_are_counted(db):
    fill(db, 100)
    db.flush()
    db.reset_stats()
    db.multi_get_arrow([b"key%06d" % i for i in range(150)])
    found = db._engine.counters(db._live)
    assert (found["gets"], found["gets_found"]) == (150, 100)

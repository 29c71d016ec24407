"""write_arrow and put_many: every source gives the rows of a loop over put; what is wrong is refused."""

import array
import gc
import math
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from arrow.capsules import Made, ManyArrays, OneArray
from arrow.test_arrow_reader import HOSTILE, everything_is_released, in_table, offsets
from databases import kill
from hypothesis import given, settings
from hypothesis import strategies as st

import lsmkv

pyarrow = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")

BATCH_ROWS = 8192
PAIRS = {b"ada": b"1815", b"alan": b"", b"": b"empty", b"grace\0": b"1906" * 20, b"zz": b"\0"}
TYPES = ["binary", "large_binary", "string", "large_string", "binary_view", "string_view"]


def table_of(pairs, key="binary", value="binary"):
    keys, values = list(pairs), list(pairs.values())
    as_type = {"key": pyarrow.array(keys, key), "value": pyarrow.array(values, value)}
    return pyarrow.table(as_type)


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", TYPES)
@pytest.mark.parametrize("key", TYPES)
def test_types(db, key, value):
    assert db.write_arrow(table_of(PAIRS, key, value)) == len(PAIRS)
    assert dict(db.items()) == PAIRS


def test_fixed_width(db):
    keys = pyarrow.array([b"%02d" % i for i in range(50)], pyarrow.binary(2))
    values = pyarrow.array([b"%03d" % i for i in range(50)], pyarrow.binary(3))
    assert db.write_arrow(pyarrow.table({"k": keys, "v": values})) == 50
    assert db[b"49"] == b"049" and len(db) == 50


def test_slices_and_chunks(db):
    whole = table_of(PAIRS)
    assert db.write_arrow(whole.slice(1, 3)) == 3
    assert dict(db.items()) == dict(list(PAIRS.items())[1:4])
    db.clear()
    pieces = pyarrow.concat_tables([whole.slice(0, 2), whole.slice(2, 0), whole.slice(2)])
    assert db.write_arrow(pieces) == len(PAIRS)
    assert dict(db.items()) == PAIRS
    db.clear()
    assert db.write_arrow(whole.to_batches()[0]) == len(PAIRS)
    assert dict(db.items()) == PAIRS


def test_columns_whose_chunks_differ(db):
    keys, values = list(PAIRS), list(PAIRS.values())
    assert db.put_many(pyarrow.chunked_array([keys[:1], [], keys[1:4], keys[4:]], "binary"), values) == 5
    assert dict(db.items()) == PAIRS
    db.clear()
    assert db.put_many(keys, pyarrow.chunked_array([values[:3], values[3:], []], "binary")) == 5
    assert dict(db.items()) == PAIRS


def test_numpy(db):
    rows = numpy.arange(12, dtype="u1").reshape(3, 4)
    assert db.put_many(numpy.array([b"a", b"bb", b"ccc"]), rows) == 3
    assert dict(db.items()) == dict(zip([b"a", b"bb", b"ccc"], map(bytes, rows), strict=True))
    assert db.put_many(rows[::-1], numpy.ascontiguousarray(rows).view("V4").ravel()) == 3
    assert db[bytes(rows[0])] == bytes(rows[2])


def test_data_and_offsets(db):
    assert db.put_many((b"abbccc", array.array("i", [0, 1, 3, 6])), (b"xyz", numpy.arange(4))) == 3
    assert dict(db.items()) == {b"a": b"x", b"bb": b"y", b"ccc": b"z"}


def test_sequences_of_anything_bytes_like(db):
    assert db.put_many((b"a", bytearray(b"b"), memoryview(b"c")), iter([b"1", b"2", array.array("b", [51])])) == 3
    assert dict(db.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert db.put_many({b"d": b"4"}, {b"d": b"4"}.values()) == 1
    assert db.put_many([], []) == 0
    for keys in (["a"], [1], [None], "a", b"a", bytearray(b"a")):
        with pytest.raises(TypeError):
            db.put_many(keys, [b"1"])
    with pytest.raises(TypeError):
        db.put_many(5, [b"1"])
    assert len(db) == 4


def test_the_scan_of_another_keyspace_is_a_source(db):
    db.put_many(PAIRS, PAIRS.values())
    copy = db.keyspace("copy")
    assert copy.write_arrow(db.scan_arrow(batch_rows=2)) == len(PAIRS)
    assert dict(copy.items()) == PAIRS


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=200)), max_size=60), st.integers(1, 9), st.booleans()
)
def test_the_last_of_equal_keys_counts_also_after_a_reopen(pairs, chunk, flush):
    folder = Path(tempfile.mkdtemp())
    try:
        with lsmkv.open(folder / "db", large_value_threshold=100) as db:
            keys, values = [key for key, _ in pairs], [value for _, value in pairs]
            pieces = [keys[i : i + chunk] for i in range(0, len(keys), chunk)]
            assert db.put_many(pyarrow.chunked_array(pieces, "binary"), values) == len(pairs)
            assert dict(db.items()) == dict(pairs)
            if flush:
                db.flush()
            else:
                kill(db)
        with lsmkv.open(folder / "db") as db:
            assert dict(db.items()) == dict(pairs)
    finally:
        shutil.rmtree(folder)


# --- batches ----------------------------------------------------------------------------------------------------------


def test_rows_go_in_batches_in_their_order(db):
    n = 2 * BATCH_ROWS + 10
    db.reset_stats()
    assert db.put_many([b"%06d" % i for i in range(n)], [b"v"] * n) == n
    writes = db.stats().writes
    assert (writes.batches, writes.puts) == (3, n)
    db.reset_stats()
    assert db.put_many([b"%06d" % i for i in range(16)], [b"x" * (128 << 10)] * 16) == 16
    assert db.stats().writes.batches == 4
    assert len(db) == n


def test_values_larger_than_a_batch(db):
    values = [bytes([i]) * (3 << 20) for i in range(3)]
    assert db.put_many([b"a", b"b", b"c"], values) == 3
    assert list(db.values()) == values


def test_large_values_go_to_a_value_log(path):
    with lsmkv.open(path, large_value_threshold=1000) as db:
        db.put_many([b"a", b"b"], [b"x" * 5000, b"y"])
        assert dict(db.items()) == {b"a": b"x" * 5000, b"b": b"y"}
        assert list(path.glob("*.vlog"))


def test_a_wrong_row_is_named_and_earlier_batches_stay(db):
    n = BATCH_ROWS + 100
    keys = [b"%06d" % i for i in range(n)]
    values = pyarrow.chunked_array([[b"v"] * (n - 5), [b"v", None, b"v", b"v", b"v"]], "binary")
    with pytest.raises(ValueError, match=f"row {n - 4} is null"):
        db.put_many(keys, values)
    assert len(db) == BATCH_ROWS
    with pytest.raises(ValueError, match="row 1: a key is at most 65535 bytes long, this one has 65536"):
        db.put_many([b"new", b"k" * 65536], [b"", b""])
    assert b"new" not in db


def test_columns_of_different_lengths_are_refused(db):
    with pytest.raises(ValueError, match="more keys than values: 1 rows have both"):
        db.put_many([b"a", b"b"], [b"1"])
    with pytest.raises(ValueError, match="fewer keys than values: 1 rows have both"):
        db.put_many([b"a"], [b"1", b"2"])
    assert len(db) == 0


def test_expiry(path):
    clock = lsmkv.ManualClock()
    with lsmkv.open(path, clock=clock) as db:
        db.put_many([b"a"], [b"1"], ttl=10)
        db.write_arrow(table_of({b"b": b"2"}), expire_at=clock.now + 20)
        db.put_many([b"c"], [b"3"], ttl=math.inf)
        assert 9 < db.ttl(b"a") <= 10 and 19 < db.ttl(b"b") <= 20 and db.ttl(b"c") is None
        clock.advance(11)
        assert list(db) == [b"b", b"c"]
        space = db.keyspace("short", default_ttl=5)
        space.put_many([b"d"], [b"4"])
        assert 4 < space.ttl(b"d") <= 5


# --- durability -------------------------------------------------------------------------------------------------------


def test_a_synced_write_is_synced_once(db):
    before = db._engine.counters(db._live)["log_syncs"]
    n = 3 * BATCH_ROWS
    db.put_many([b"%06d" % i for i in range(n)], [b"v"] * n, sync=True)
    assert db._engine.counters(db._live)["log_syncs"] == before + 1


def test_nothing_can_be_synced_without_a_log(path):
    with lsmkv.open(path, wal=None) as db:
        with pytest.raises(lsmkv.OptionError, match="no log to sync"):
            db.put_many([b"a"], [b"1"], sync=True)
        assert len(db) == 0
        db.put_many([b"a"], [b"1"])
        assert len(db) == 1


def test_who_cannot_write(db, path):
    people = db.keyspace("people")
    db.drop_keyspace("people")
    with pytest.raises(lsmkv.KeyspaceError):
        people.put_many([b"a"], [b"1"])
    with lsmkv.open(path, "r") as reader, pytest.raises(lsmkv.ReadOnlyError):
        reader.put_many([b"a"], [b"1"])
    db.close()
    with pytest.raises(lsmkv.ClosedError):
        db.put_many([b"a"], [b"1"])


class Closing:
    """Batches of rows; the database is closed before the second one."""

    def __init__(self, db):
        self.db = db

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pyarrow.schema({"key": pyarrow.binary(), "value": pyarrow.binary()})
        return pyarrow.RecordBatchReader.from_batches(schema, self.batches(schema)).__arrow_c_stream__()

    def batches(self, schema):
        for i in range(3):
            if i == 1:
                self.db.close()
            yield pyarrow.record_batch({"key": [b"%d" % i], "value": [b"v"]}, schema=schema)


def test_a_source_may_close_the_database(db, path):
    with pytest.raises(lsmkv.ClosedError):
        db.write_arrow(Closing(db))
    with lsmkv.open(path) as db:
        assert len(db) == 0  # the rows were one batch, which was not full


# --- hostile sources --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_columns_are_refused_and_released_once(db, name):
    make, error, message = HOSTILE[name]
    for keys_first in (True, False):
        made = Made()
        other = [b"%d" % i for i in range(5)]
        arguments = (make(made), other) if keys_first else (other, make(made))
        with pytest.raises(error, match=message):
            db.put_many(*arguments)
        del arguments
        everything_is_released(made)
    assert len(db) == 0


def hostile_table(made, **fields):
    return in_table(made, columns=2, **fields)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m: in_table(m, columns=1), TypeError, "1 columns where 2 are needed"),
        (lambda m: in_table(m, columns=3), TypeError, "3 columns where 2 are needed"),
        (lambda m: in_table(m, b"l", 2), TypeError, "Arrow format 'l'"),
        (lambda m: hostile_table(m, offset=2), ValueError, "7 are needed"),
        (lambda m: hostile_table(m, n_children=1), ValueError, "of 1 columns"),
        (lambda m: ManyArrays(m, None, []), ValueError, "the Arrow stream failed"),
        (lambda m: OneArray(m, m.schema(b"z"), m.array(0, [None] * 3)), TypeError, "one column where 2 are needed"),
    ],
)
def test_hostile_tables_are_refused_and_released_once(db, make, error, message):
    made = Made()
    with pytest.raises(error, match=message):
        db.write_arrow(make(made))
    everything_is_released(made)
    assert len(db) == 0


def test_offsets_are_checked_before_anything_of_their_batch_is_written(db):
    made = Made()
    ends = struct.pack("4i", 0, 1, 2, 1)
    child = [
        made.array(3, [None, offsets([b"a", b"b", b"c"]), b"abc"], child=True),
        made.array(3, [None, ends, b"abc"], child=True),
    ]
    schema = made.schema(b"+s", [made.child_schema(b"z"), made.child_schema(b"z")])
    with pytest.raises(ValueError, match="row 2: its offsets decrease"):
        db.write_arrow(OneArray(made, schema, made.array(3, [None], children=child)))
    gc.collect()
    assert len(db) == 0


@pytest.mark.parametrize("source", [None, 5, [], [(b"a", b"1")], {"key": [b"a"]}, b"bytes"])
def test_what_is_no_table_is_refused(db, source):
    with pytest.raises(TypeError, match="write_arrow takes a table of two columns"):
        db.write_arrow(source)

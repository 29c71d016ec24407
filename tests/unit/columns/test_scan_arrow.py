"""scan_arrow: the rows of items(), whatever holds them and whoever reads them."""

import gc
import os
import shutil
import tempfile
import threading
from errno import EBADF, EINVAL
from pathlib import Path

import pytest
from databases import keep_still, names
from hypothesis import given, settings
from hypothesis import strategies as st

import lsmkv

from .streams import RawStream, Schema, column, moved, release, rows, structure

pyarrow = pytest.importorskip("pyarrow")

TINY = {"write_buffer_size": 1 << 20, "block_size": 256, "large_value_threshold": 64}


def pairs(scan):
    """The rows of a scan, through pyarrow."""
    table = pyarrow.table(scan)
    table.validate(full=True)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


# --- the model --------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([b"", b"\0", b"a", b"a\xff", b"ab", b"b", b"ba", b"k1", b"k2", b"k2\0", b"\xff", b"\xff\xff"])
VALUES = st.one_of(st.binary(max_size=8), st.binary(min_size=60, max_size=80))
WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, VALUES),
        st.tuples(st.just("ttl"), KEYS, VALUES),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("delete_range"), KEYS, KEYS),
        st.tuples(st.just("flush")),
        st.tuples(st.just("compact_range")),
    ),
    max_size=30,
)
OPTIONAL = st.one_of(st.none(), KEYS)


def apply(db, operations):
    for name, *arguments in operations:
        if name == "ttl":
            db.put(*arguments, ttl=60)
        else:
            getattr(db, name)(*arguments)


@settings(max_examples=40, deadline=None)
@given(WRITES, WRITES, OPTIONAL, OPTIONAL, OPTIONAL, st.booleans(), st.integers(1, 5), st.sampled_from([0, 61]))
def test_a_scan_has_the_rows_of_items(before, after, start, stop, prefix, reverse, batch_rows, passed):
    folder = Path(tempfile.mkdtemp())
    clock = lsmkv.ManualClock()
    try:
        with lsmkv.open(folder / "db", clock=clock, **TINY) as db:
            apply(db, before)
            clock.advance(passed)
            span = {"start": start, "stop": stop, "prefix": prefix, "reverse": reverse}
            scan = db.scan_arrow(batch_rows=batch_rows, **span)
            expected = list(db.iterator(**span))
            with db.snapshot() as snapshot:
                apply(db, after)
                assert pairs(snapshot.scan_arrow(**span)) == expected
            assert pairs(scan) == expected
            assert pairs(db.scan_arrow(columns=["value"], **span)) == [(value,) for _, value in db.iterator(**span)]
    finally:
        shutil.rmtree(folder)


# --- what a scan reads ------------------------------------------------------------------------------------------------


def fill(db, n=1000):
    for i in range(n):
        db.put(b"key%06d" % i, b"value %d" % i)
    return list(db.items())


def test_a_scan_can_be_read_again_and_does_not_see_later_writes(db):
    expected = fill(db)
    scan = db.scan_arrow(batch_rows=100)
    db.clear()
    fill(db, 3)
    assert pairs(scan) == pairs(scan) == expected


def test_batches_have_the_rows_that_were_asked_for(db):
    fill(db, 250)
    batches = list(pyarrow.RecordBatchReader.from_stream(db.scan_arrow(batch_rows=100)))
    assert [batch.num_rows for batch in batches] == [100, 100, 50]


def test_a_batch_ends_at_8_mebibytes(db):
    value = os.urandom(1 << 20)
    for i in range(20):
        db.put(b"%02d" % i, value)
    batches = list(pyarrow.RecordBatchReader.from_stream(db.scan_arrow()))
    assert [batch.num_rows for batch in batches] == [8, 8, 4]


def test_large_values_come_out_of_their_value_logs(path):
    values = {b"%03d" % i: os.urandom(5000) * (1 + i % 2) for i in range(100)}
    with lsmkv.open(path, large_value_threshold=1024, large_value_compression="lz4") as db:
        db.put_many(values.keys(), values.values())
        db.put(b"small", b"x")
        assert len(pairs(db.scan_arrow())) == 101
        db.flush()
        assert dict(pairs(db.scan_arrow(batch_rows=7))) == {**values, b"small": b"x"}
        assert any(name.endswith(".vlog") for name in names(path))


def test_expired_entries_never_appear_and_one_moment_counts(path):
    clock = lsmkv.ManualClock()
    with lsmkv.open(path, clock=clock) as db:
        db.put(b"a", b"1", ttl=10)
        db.put(b"b", b"2")
        scan = db.scan_arrow()
        with db.snapshot() as snapshot:
            clock.advance(11)
            assert pairs(db.scan_arrow()) == [(b"b", b"2")]
            assert pairs(scan) == pairs(snapshot.scan_arrow()) == [(b"a", b"1"), (b"b", b"2")]


def test_keyspaces_and_snapshots_of_them(db):
    people = db.keyspace("people")
    people.put(b"ada", b"1815")
    db.put(b"other", b"1")
    with db.snapshot() as snapshot:
        people.clear()
        assert pairs(people.scan_arrow()) == []
        assert pairs(snapshot.keyspace(people).scan_arrow()) == [(b"ada", b"1815")]
    db.drop_keyspace("people")
    with pytest.raises(lsmkv.KeyspaceError):
        people.scan_arrow()


def test_a_read_only_handle_scans(path):
    with lsmkv.open(path) as db:
        expected = fill(db, 10)
    with lsmkv.open(path, "r") as db:
        assert pairs(db.scan_arrow()) == expected


def test_a_scan_counts_as_a_seek_and_its_rows_as_steps(db):
    fill(db, 100)
    db.reset_stats()
    pairs(db.scan_arrow(batch_rows=30))
    found = db._engine.counters(db._live)
    assert (found["seeks"], found["nexts"]) == (1, 100)


def test_a_scan_over_tombstones_leaves_a_dead_span(db):
    fill(db, 200)
    for i in range(150):
        db.delete(b"key%06d" % i)
    assert len(pairs(db.scan_arrow(batch_rows=20))) == 50
    assert len(pairs(db.scan_arrow(batch_rows=20))) == 50
    assert db._engine.counters(db._live)["spans_jumped"] >= 1


# --- columns and types ------------------------------------------------------------------------------------------------


def test_columns_are_selected_and_ordered(db):
    db.put(b"ada", b"1815")
    assert pyarrow.table(db.scan_arrow(columns=("value", "key"))).to_pylist() == [{"value": b"1815", "key": b"ada"}]
    assert pyarrow.table(db.scan_arrow(columns=["key"])).to_pylist() == [{"key": b"ada"}]
    for wrong in ([], ["name"], ["key", "key"], ["key", "value", "key"]):
        with pytest.raises(ValueError, match="column"):
            db.scan_arrow(columns=wrong)
    with pytest.raises(TypeError, match="sequence"):
        db.scan_arrow(columns="key")


@pytest.mark.parametrize("wrong", [0, -1, 1 << 25])
def test_the_rows_of_a_batch_have_limits(db, wrong):
    with pytest.raises(ValueError, match="a batch has from 1 to"):
        db.scan_arrow(batch_rows=wrong)


@pytest.mark.parametrize("name", ["binary", "large_binary", "string", "large_string"])
def test_types(db, name):
    db.put_many(["ä".encode(), b"b"], [b"", "köln €, 𝄞".encode()])
    table = pyarrow.table(db.scan_arrow(key_type=name, value_type=name, batch_rows=1))
    table.validate(full=True)
    assert table.schema.types == [getattr(pyarrow, name)()] * 2
    assert table.cast(pyarrow.schema({"key": "binary", "value": "binary"})).to_pylist() == [
        {"key": b"b", "value": "köln €, 𝄞".encode()},
        {"key": "ä".encode(), "value": b""},
    ]
    with pytest.raises(ValueError, match="type of a column"):
        db.scan_arrow(key_type="utf8")


def test_a_consumer_may_ask_for_other_types(db):
    db.put(b"ada", b"1815")
    wanted = pyarrow.schema({"key": pyarrow.string(), "value": pyarrow.large_binary()})
    assert pyarrow.RecordBatchReader.from_stream(db.scan_arrow(), schema=wanted).schema.types == wanted.types
    assert pyarrow.table(db.scan_arrow(), schema=wanted).to_pylist() == [{"key": "ada", "value": b"1815"}]
    # Wishes that we have no answer to: the consumer sees the schema.
    for other in ({"key": "int32", "value": "binary"}, {"key": "binary"}):
        stream = RawStream(db.scan_arrow(), pyarrow.schema(other).__arrow_c_schema__())
        schema = stream.schema()
        assert schema.n_children == 2
        release(schema)


def is_text(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One database for many small examples."""
    with lsmkv.open(tmp_path_factory.mktemp("columns") / "db") as db:
        yield db


@settings(max_examples=200)
@given(st.lists(st.one_of(st.text(max_size=5).map(str.encode), st.binary(max_size=5)), min_size=1, max_size=5))
def test_text_is_checked_row_by_row(shared, values):
    check_text(shared, values)


@pytest.mark.parametrize(
    "value",
    [
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        *(b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"a\xff", b"12345678\x80", b"\xe2\x82(", b"\xf0\x9f(\x80"),
    ],
)
def test_what_is_not_text(shared, value):
    check_text(shared, [value])
    check_text(shared, [value[:1], value[1:]])


def check_text(db, values):
    db.clear()
    db.put_many([b"%d" % i for i in range(len(values))], values)
    scan = db.scan_arrow(value_type="string")
    if all(map(is_text, values)):
        assert [value for _, value in pairs(scan)] == [value.decode() for value in values]
    else:
        with pytest.raises(pyarrow.ArrowInvalid, match="ValueError: a row is not UTF-8"):
            pyarrow.table(scan)


# --- errors and ends --------------------------------------------------------------------------------------------------


def test_closing_the_database_ends_streams_with_an_error(db):
    fill(db)
    stream = RawStream(db.scan_arrow(batch_rows=10))
    first = stream.next()
    assert len(rows(first)) == 10
    scan = db.scan_arrow()
    db.close()
    for _ in range(2):
        assert stream.next() == EBADF
        assert stream.error() == "ClosedError: the database is closed"
    assert len(rows(first)) == 10  # a batch is its consumer's
    release(first)
    stream.release()
    with pytest.raises(lsmkv.ClosedError):
        scan.__arrow_c_stream__()
    assert structure(scan.__arrow_c_schema__(), Schema).n_children == 2


def test_a_closed_scan_gives_no_stream_but_those_that_began_go_on(db):
    expected = fill(db)
    with db.scan_arrow(batch_rows=10) as scan:
        reader = pyarrow.RecordBatchReader.from_stream(scan)
    with pytest.raises(lsmkv.ClosedError, match="the scan is closed"):
        scan.__arrow_c_stream__()
    with pytest.raises(lsmkv.ClosedError), scan:
        pass
    assert reader.read_all().num_rows == len(expected)


def tables(db):
    db._versions.collect_garbage()
    return {name for name in names(db.path) if name.endswith(".sst")}


def test_a_stream_holds_its_files_until_it_ends(db):
    keep_still(db)
    fill(db)
    db.flush()
    old = tables(db)
    stream = RawStream(db.scan_arrow(batch_rows=10))
    gc.collect()
    fill(db)
    db.compact_range()
    assert old <= tables(db)
    release(stream.next())
    stream.release()
    assert not old & tables(db)


def test_an_unread_stream_is_released_with_its_capsule(db):
    keep_still(db)
    fill(db)
    db.flush()
    old = tables(db)
    capsule = db.scan_arrow().__arrow_c_stream__()
    fill(db)
    db.compact_range()
    assert old <= tables(db)
    del capsule
    assert not old & tables(db)


def test_a_stream_keeps_the_database_open(path):
    with lsmkv.open(path) as db:
        expected = fill(db)
    stream = RawStream(lsmkv.open(path).scan_arrow())
    gc.collect()
    batch = stream.next()
    assert rows(batch) == expected
    assert stream.next() is None and stream.next() is None
    release(batch)
    stream.release()
    gc.collect()
    lsmkv.open(path).close()  # the lock is free again


def test_columns_may_be_moved_out_of_a_batch(db):
    expected = fill(db, 20)
    stream = RawStream(db.scan_arrow())
    batch = stream.next()
    value = moved(batch.children[1].contents)
    release(batch)
    stream.release()
    assert column(value) == [value for _, value in expected]
    release(value)


def test_a_batch_outlives_the_database(path):
    with lsmkv.open(path) as db:
        expected = fill(db)
        table = pyarrow.table(db.scan_arrow(batch_rows=100))
    gc.collect()
    assert table.num_rows == len(expected) and table["value"].to_pylist()[-1] == b"value 999"


def test_damage_reaches_the_consumer(path):
    with lsmkv.open(path, compression=None) as db:
        fill(db)
    (table,) = path.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 1
    table.write_bytes(content)
    with lsmkv.open(path) as db:
        with pytest.raises(OSError, match="CorruptionError") as raised:
            pyarrow.table(db.scan_arrow())
        assert table.name in str(raised.value)
        stream = RawStream(db.scan_arrow(batch_rows=10))
        while not isinstance(found := stream.next(), int):
            release(found)
        assert stream.next() == found  # it stays
        stream.release()


def test_an_error_of_the_caller_is_einval(db):
    db.put(b"a", b"\xff")
    stream = RawStream(db.scan_arrow(value_type="string"))
    assert stream.next() == EINVAL
    stream.release()


def test_closing_from_another_thread_while_a_batch_is_filled(path):
    for _ in range(20):
        db = lsmkv.open(path)
        if not len(db):
            fill(db, 20_000)
        go = threading.Event()

        ends = []

        def read(db=db, go=go, ends=ends):
            stream = RawStream(db.scan_arrow(batch_rows=500))
            go.set()
            while not isinstance(found := stream.next(), int) and found is not None:
                release(found)
            ends.append(None if found is None else stream.error())
            stream.release()

        thread = threading.Thread(target=read)
        thread.start()
        go.wait()
        db.close()
        thread.join()
        assert ends in ([None], ["ClosedError: the database is closed"])


def test_threads_read_one_scan_side_by_side(db):
    expected = fill(db, 5000)
    scan = db.scan_arrow(batch_rows=100)
    found = []
    threads = [threading.Thread(target=lambda: found.append(pairs(scan))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_fork_does_not_read(db):
    fill(db, 10)
    stream = RawStream(db.scan_arrow())
    pid = os.fork()
    if pid == 0:
        os._exit(0 if isinstance(stream.next(), int) and stream.error().startswith("ForkError") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stream.release()

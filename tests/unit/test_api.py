"""Calls and arguments of the documented API that no other test is about, as a user makes them."""

import collections.abc

import pytest

import lsmkv


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for i in range(10):
            db[b"%02d" % i] = b"v%d" % i
        yield db


def keys_of(first, last):
    step = 1 if first <= last else -1
    return [b"%02d" % i for i in range(first, last + step, step)]


# Errors


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (lsmkv.IOError, (lsmkv.Error, OSError)),
        (lsmkv.CorruptionError, (lsmkv.Error,)),
        (lsmkv.ClosedError, (lsmkv.Error, RuntimeError)),
        (lsmkv.LockError, (lsmkv.IOError,)),
        (lsmkv.ReadOnlyError, (lsmkv.Error,)),
        (lsmkv.ForkError, (lsmkv.Error,)),
        (lsmkv.IteratorInvalidError, (lsmkv.Error,)),
        (lsmkv.OptionError, (lsmkv.Error, ValueError)),
    ],
)
def test_errors_can_be_caught_by_what_they_are(error, bases):
    for base in bases:
        assert issubclass(error, base)


def test_corruption_says_where():
    error = lsmkv.CorruptionError("bad block", "000007.sst", 4096)
    assert (error.file, error.offset) == ("000007.sst", 4096)
    assert "000007.sst" in str(error) and "4096" in str(error)


def test_a_database_and_its_parts_are_mappings(db):
    assert isinstance(db, collections.abc.MutableMapping)
    assert isinstance(db.prefixed_db(b"0"), collections.abc.MutableMapping)
    with db.snapshot() as snapshot:
        assert isinstance(snapshot, collections.abc.Mapping)
        assert not isinstance(snapshot, collections.abc.MutableMapping)


# Iterators


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("include_start", "include_stop", "first", "last"),
    [(True, False, 3, 5), (False, False, 4, 5), (True, True, 3, 6), (False, True, 4, 6)],
)
def test_bounds_of_an_iterator(db, reverse, include_start, include_stop, first, last):
    with db.iterator(
        start=b"03",
        stop=b"06",
        include_start=include_start,
        include_stop=include_stop,
        reverse=reverse,
        include_value=False,
    ) as it:
        assert list(it) == (keys_of(last, first) if reverse else keys_of(first, last))


def test_what_an_iterator_gives(db):
    span = {"start": b"03", "stop": b"05"}
    assert list(db.iterator(**span)) == [(b"03", b"v3"), (b"04", b"v4")]
    assert list(db.iterator(**span, include_value=False)) == [b"03", b"04"]
    assert list(db.iterator(**span, include_key=False)) == [b"v3", b"v4"]
    assert list(db.iterator(**span, include_key=False, include_value=False)) == [None, None]
    assert list(db.iterator(prefix=b"0", start=b"08", include_value=False)) == [b"08", b"09"]


@pytest.mark.parametrize("source", ["db", "snapshot", "prefixed"])
def test_an_iterator_goes_both_ways(db, source):
    """As in plyvel: it stands between two records, so a step back gives again what the last step gave."""
    from_ = {"db": db, "snapshot": db.snapshot(), "prefixed": db.prefixed_db(b"")}[source]
    it = from_.iterator(include_value=False)
    assert [next(it), it.next(), it.prev(), it.prev()] == [b"00", b"01", b"01", b"00"]
    with pytest.raises(StopIteration):
        it.prev()
    it.seek_to_stop()
    with pytest.raises(StopIteration):
        it.next()
    assert it.prev() == b"09"
    it.seek(b"045")
    assert (it.prev(), it.next(), it.next()) == (b"04", b"04", b"05")
    it.seek_to_start()
    assert it.next() == b"00"
    it.close()
    it.close()
    for use in (it.next, it.prev, it.seek_to_start, lambda: it.seek(b"")):
        with pytest.raises(lsmkv.ClosedError):
            use()


def test_a_reverse_iterator_starts_at_the_back(db):
    it = db.iterator(reverse=True, include_value=False)
    assert [next(it), next(it), it.prev()] == [b"09", b"08", b"08"]
    it.seek_to_start()
    assert next(it) == b"09"


@pytest.mark.parametrize("source", ["db", "snapshot"])
def test_a_cursor_stands_on_a_record_or_on_none(db, source):
    cursor = (db if source == "db" else db.snapshot()).cursor()
    assert not cursor.valid
    assert cursor.seek_to_first() and cursor.valid
    assert (cursor.key(), cursor.value(), cursor.item()) == (b"00", b"v0", (b"00", b"v0"))
    assert cursor.next() and cursor.key() == b"01"
    assert cursor.prev() and cursor.key() == b"00"
    assert cursor.seek_to_last() and cursor.key() == b"09"
    assert cursor.seek(b"045") and cursor.key() == b"05"
    assert not cursor.seek(b"zz") and not cursor.valid
    for use in (cursor.key, cursor.value, cursor.item, cursor.next, cursor.prev):
        with pytest.raises(lsmkv.IteratorInvalidError, match="no entry"):
            use()
    cursor.close()
    cursor.close()
    with pytest.raises(lsmkv.ClosedError):
        cursor.seek(b"")


# Arguments of reads


def test_reads_that_are_told_so_leave_the_cache_alone(tmp_path):
    with lsmkv.open(tmp_path / "db", row_cache_size=0) as db:
        for i in range(2000):
            db[b"%06d" % i] = b"v" * 100
        db.flush()
        assert db.get(b"000007", fill_cache=False) is not None
        assert len(list(db.iterator(fill_cache=False))) == 2000
        with db.snapshot() as snapshot:
            assert snapshot.get(b"000007", fill_cache=False) is not None
        assert db.stats().cache.used == 0
        assert db.get(b"000007") is not None
        assert db.stats().cache.used > 0


@pytest.mark.parametrize("verify_checksums", [True, False])
def test_checksums_are_verified_whatever_is_asked_for(tmp_path, verify_checksums):
    """The argument is there for plyvel's sake; a check costs less than the doubt."""
    path = tmp_path / "db"
    with lsmkv.open(path, compression=None) as db:
        db[b"key"] = b"value" * 100
    (table,) = path.glob("*.sst")
    data = bytearray(table.read_bytes())
    data[data.index(b"valuevalue") + 3] ^= 1
    table.write_bytes(data)
    with lsmkv.open(path) as db, pytest.raises(lsmkv.CorruptionError, match=table.name):
        db.get(b"key", verify_checksums=verify_checksums)


# Batches


@pytest.mark.parametrize(("transaction", "expected"), [(True, None), (False, b"1")])
def test_a_batch_whose_block_raises_is_dropped(db, transaction, expected):
    with pytest.raises(ZeroDivisionError), db.write_batch(transaction=transaction) as batch:
        batch.put(b"a", b"1")
        raise ZeroDivisionError
    assert db.get(b"a") == expected


def test_a_batch_is_used_again_after_it_was_written(db):
    batch = db.write_batch()
    batch.put(b"a", b"1")
    batch.delete(b"00")
    batch.delete_range(b"01", b"03")
    assert len(batch) == 3
    batch.write()
    assert len(batch) == 0
    batch.put(b"a", b"2")
    batch.clear()
    batch.put(b"b", b"3")
    batch.write()
    assert (db[b"a"], db[b"b"], b"00" in db, b"02" in db, b"03" in db) == (b"1", b"3", False, False, True)

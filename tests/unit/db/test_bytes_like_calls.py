"""Every call takes any bytes-like object, contiguous or not."""

import pytest

import lsmkv

KEY = memoryview(b"k-e-y")[::2]
VALUE = memoryview(b"v-a-l-u-e")[::2]


def test_put_and_get(db):
    db.put(KEY, VALUE)
    assert db.get(KEY) == b"value" == db[KEY]
    assert db[b"key"] == b"value"
    assert KEY in db


def test_delete(db):
    db[b"key"] = b"value"
    db.delete(KEY)
    assert b"key" not in db


def test_delete_range(db):
    db[b"key"] = b"value"
    db.delete_range(KEY, memoryview(b"k-e-z")[::2])
    assert b"key" not in db


def test_a_batch(db):
    with db.write_batch() as batch:
        batch.put(KEY, VALUE)
        batch.put(b"other", b"value")
        batch.delete(memoryview(b"o-t-h-e-r")[::2])
    assert dict(db.items()) == {b"key": b"value"}


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.multi_get([KEY]),
        lambda db: [db.snapshot().get(KEY)],
        lambda db: [value for _, value in db.items(start=KEY)],
        lambda db: [value for _, value in db.items(prefix=KEY)],
        lambda db: list(db.prefixed_db(KEY).values()),
        lambda db: [db.prefixed_db(b"k").get(memoryview(b"e-y")[::2])],
    ],
)
def test_reads(db, call):
    db[b"key"] = b"value"
    assert call(db) == [b"value"]


def test_tables(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "table.sst") as writer:
        writer.put(KEY, VALUE)
    assert lsmkv.SSTReader(tmp_path / "table.sst").get(KEY) == b"value"

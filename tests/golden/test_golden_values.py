"""A database with value logs, written by an earlier version: every value is found where its pointer says."""

import shutil

import pytest
from make_values import LATEST, OPTIONS, TARGET, contents

import lsmkv
from lsmkv_ext.values.reader import decode_pointer


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def found(db):
    return dict(db.items()), dict(db.keyspace("packed", create=False).items())


def test_it_holds_what_was_written(database):
    assert lsmkv.verify(database).findings == []
    for flag in ("r", "w"):
        with lsmkv.open(database, flag, **OPTIONS) as db:
            assert found(db) == contents()
    with lsmkv.open(database, **OPTIONS) as db:
        db.put(b"more", bytes(2000))
        db.compact_range()
        rows, packed = contents()
        assert found(db) == ({**rows, b"more": bytes(2000)}, packed)
        assert LATEST - db.ttl(b"key001") < LATEST


def test_it_has_pointers_of_every_kind(database):
    """Raw and compressed values, with and without an expiry, in tables and in the log; some were copied."""
    with lsmkv.open(database, **OPTIONS) as db:
        tables = list(db._versions.tables.values())
        pointers = [decode_pointer(pointer) for table in tables for _, pointer in table.pointers()]
        assert {pointer[4] for pointer in pointers} == {0, 1}
        assert max(pointer[3] for pointer in pointers) == 150_000
        assert len({pointer[0] for pointer in pointers}) >= 3
        assert db.ttl(b"key001") is not None and db.ttl(b"key002") is None


def test_it_is_repaired_without_a_manifest(database):
    for manifest in database.glob("MANIFEST-*"):
        manifest.unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database, **OPTIONS) as db:
        assert found(db) == contents()

"""A database with zstd, written by an earlier version."""

import shutil

import pytest
from make_zstd import OPTIONS, TARGET, contents

import lsmkv
from lsmkv_ext.port import zstd
from lsmkv_ext.values.reader import decode_pointer


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def found(db):
    return dict(db.items()), dict(db.keyspace("texts", create=False).items())


def test_it_holds_what_was_written(database):
    assert lsmkv.verify(database, deep=True).findings == []
    for flag in ("r", "w"):
        with lsmkv.open(database, flag, **OPTIONS) as db:
            assert found(db) == contents()
    with lsmkv.open(database, **OPTIONS) as db:
        db.put(b"more", b"more")
        db.compact_range()
        rows, texts = contents()
        assert found(db) == ({**rows, b"more": b"more"}, texts)


def test_it_has_codecs_of_every_kind(database):
    with lsmkv.open(database, "r", **OPTIONS) as db:
        tables = list(db._versions.tables.values())
        assert {table.properties["compression"] for table in tables} == {"lz4", "zstd"}
        pointers = [decode_pointer(pointer) for table in tables for _, pointer in table.pointers()]
        assert {pointer[4] for pointer in pointers} == {1, 2}


def test_the_python_api_reads_it(database):
    zstd.use("python")
    try:
        with lsmkv.open(database, "r", **OPTIONS) as db:
            assert found(db) == contents()
    finally:
        zstd.use("c")


def test_it_is_repaired_without_a_manifest(database):
    for manifest in database.glob("MANIFEST-*"):
        manifest.unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database, **OPTIONS) as db:
        assert found(db) == contents()

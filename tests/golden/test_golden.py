"""Databases written by earlier versions open, hold what they held, and can be written to."""

import shutil
from pathlib import Path

import pytest
from make import contents, keyspaces

import lsmkv

HERE = Path(__file__).parent
FORMATS = sorted(path.name for path in HERE.glob("format-*"))


@pytest.fixture(params=FORMATS)
def database(request, tmp_path):
    return shutil.copytree(HERE / request.param, tmp_path / "db")


def test_there_is_one_for_the_current_format():
    assert FORMATS


def test_it_reads_as_it_was_written(database):
    assert lsmkv.verify(database).findings == []
    with lsmkv.open(database, "r") as db:
        assert dict(db.items()) == contents()
    with lsmkv.open(database) as db:
        assert dict(db.items()) == contents()
        assert db.multi_get(list(contents())) == list(contents().values())
        assert db.recovery_report.records > 0
        assert db.recovery_report.torn == []


def named(db):
    return {name: dict(db.keyspace(name).items()) for name in db.keyspaces()}


def test_its_keyspaces_read_as_they_were_written(database, request):
    expected = keyspaces(int(request.node.callspec.params["database"].removeprefix("format-")))
    with lsmkv.open(database, "r") as db:
        assert named(db) == expected
    with lsmkv.open(database) as db:
        assert named(db) == expected
        for name in expected:
            db.keyspace(name).compact_range()
        assert named(db) == expected
        assert db.recovery_report.torn == []
    for manifest in database.glob("MANIFEST-*"):
        manifest.unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database) as db:
        assert {name: rows for name, rows in named(db).items() if name in expected} == expected


def test_its_options_are_those_that_were_given(database, request):
    if request.node.callspec.params["database"] == "format-1":
        pytest.skip("it has no keyspaces")
    with lsmkv.open(database, "r") as db:
        assert db.keyspace("posts").options.bits_per_key == 14
        assert db.keyspace("posts").options.compression is None


def test_it_can_be_written_compacted_and_repaired(database):
    expected = contents()
    with lsmkv.open(database) as db:
        db[b"new"] = b"1"
        expected[b"new"] = b"1"
        db.compact_range()
        assert dict(db.items()) == expected
    (database / "CURRENT").unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database) as db:
        assert dict(db.items()) == expected
    assert lsmkv.verify(database)


def test_it_gains_keyspaces(database):
    expected = contents()
    with lsmkv.open(database) as db:
        users = db.keyspace("gained")
        with db.write_batch() as batch:
            batch.put(b"new", b"1")
            batch.put(b"new", b"2", keyspace=users)
        expected[b"new"] = b"1"
        db._shut(flush=False)  # the next open replays the batch
    for mode in ("r", "w", "w"):
        with lsmkv.open(database, mode) as db:
            assert dict(db.items()) == expected
            assert dict(db.keyspace("gained", create=False)) == {b"new": b"2"}
    assert lsmkv.verify(database)

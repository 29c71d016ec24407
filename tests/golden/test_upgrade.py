"""lsmkv.upgrade: a database of an earlier format gets the latest one and keeps what it holds."""

import shutil
from pathlib import Path

import pytest
from make import contents

import lsmkv
from lsmkv.options import Options
from lsmkv.recovery.stored_state import read_state
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv_ext.wal.dump import LogDump

OLD = Path(__file__).parent / "format-1"


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(OLD, tmp_path / "db")


def format_of(path):
    return read_state(str(path)).format_version


def log_version(path):
    """Of the log that takes the next writes."""
    return next(LogDump(max(path.glob("*.wal"))))["version"]


def test_an_old_database_keeps_its_format_until_then(database):
    with lsmkv.open(database) as db:
        db[b"new"] = b"1"
    assert format_of(database) == log_version(database) == 1


def test_an_upgrade_keeps_contents_and_options(database):
    options = Options.decode((database / "OPTIONS").read_bytes())
    lsmkv.upgrade(database)
    assert format_of(database) == log_version(database) == LATEST_FORMAT
    assert options != Options() and Options.decode((database / "OPTIONS").read_bytes()) == options
    assert lsmkv.verify(database).findings == []
    with lsmkv.open(database) as db:
        assert dict(db.items()) == contents()
        users = db.keyspace("users")
        with db.write_batch() as batch:
            batch.put(b"new", b"1")
            batch.put(b"new", b"2", keyspace=users)
        db.sync()
        db._shut(flush=False)
    with lsmkv.open(database, "r") as db:
        assert dict(db.items()) == {**contents(), b"new": b"1"}
        assert dict(db.keyspace("users").items()) == {b"new": b"2"}


def test_a_second_upgrade_changes_nothing(database):
    lsmkv.upgrade(database)
    before = {p.name: p.read_bytes() for p in database.iterdir() if p.name != "LOCK"}
    assert lsmkv.upgrade(database) is None
    assert {p.name: p.read_bytes() for p in database.iterdir() if p.name != "LOCK"} == before


def test_the_first_keyspace_upgrades(database):
    with lsmkv.open(database) as db:
        db.keyspace("users")
    assert format_of(database) == LATEST_FORMAT


def test_a_table_of_version_2_upgrades(database, tmp_path):
    with lsmkv.open(tmp_path / "other") as db:
        db.keyspace("users").put(b"new", b"1")
    (table,) = (tmp_path / "other").glob("*.sst")
    with lsmkv.open(database) as db:
        db.ingest([table])
        assert db[b"new"] == b"1"
    assert format_of(database) == LATEST_FORMAT


def test_a_missing_database_is_not_created(tmp_path):
    with pytest.raises(lsmkv.IOError):
        lsmkv.upgrade(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_open_database_is_refused(database):
    with lsmkv.open(database), pytest.raises(lsmkv.LockError):
        lsmkv.upgrade(database)

"""lsmkv.upgrade: a database of an earlier format gets the latest one and keeps what it holds."""

import shutil
from pathlib import Path

import pytest
from make import contents

import lsmkv
from lsmkv import keyspace_changes
from lsmkv.options import Options
from lsmkv.recovery.stored_state import read_state
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv_ext.filter.fuse import set_min_keys
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


def test_fuse_filters_upgrade(database, tmp_path):
    """Only if they are asked for; the log is replayed into tables before that."""
    before = set_min_keys(10)
    try:
        kinds = kinds_after(database, tmp_path / "bloom")
        assert kinds == {"bloom"}
        assert format_of(tmp_path / "bloom") == 1
        kinds_after(database, tmp_path / "fuse", filter="fuse", write_buffer_size=4096)
        assert format_of(tmp_path / "fuse") == 2
        with lsmkv.open(tmp_path / "fuse", filter="fuse") as db:
            assert dict(db.items()) == contents()
            db.rebuild_filters()
            assert all(db.get(key) == value for key, value in contents().items())
            fuse = [f for f in db._tree.current.files() if f.filter_kind == 2]
            source = tmp_path / "fuse" / f"{fuse[0].number:06d}.sst"
            shutil.copy(source, tmp_path / "t.sst")
        assert lsmkv.verify(tmp_path / "fuse").findings == []
        shutil.copytree(database, tmp_path / "live")
        with lsmkv.open(tmp_path / "live") as db:
            assert format_of(tmp_path / "live") == 1
            db.set_options(filter="auto")
            assert format_of(tmp_path / "live") == 2
        shutil.copytree(database, tmp_path / "ingest")
        with lsmkv.open(tmp_path / "ingest") as db:
            db.ingest([tmp_path / "t.sst"])
            assert format_of(tmp_path / "ingest") == 2
        assert lsmkv.verify(tmp_path / "ingest").findings == []
    finally:
        set_min_keys(before)


def test_no_fuse_filter_comes_before_the_upgrade(database, monkeypatch):
    """An open that fails in between leaves a manifest of format 1 that can be read."""

    def fail(*_):
        raise OSError("no upgrade")

    before = set_min_keys(10)
    monkeypatch.setattr(keyspace_changes, "upgrade", fail)
    try:
        with pytest.raises(lsmkv.IOError):
            lsmkv.open(database, filter="fuse", write_buffer_size=4096)
    finally:
        set_min_keys(before)
    assert format_of(database) == 1
    with lsmkv.open(database) as db:
        assert dict(db.items()) == contents()


def kinds_after(source, path, **options):
    shutil.copytree(source, path)
    with lsmkv.open(path, **options) as db:
        db.flush()
        assert dict(db.items()) == contents()
        return {table.filter_info["kind"] for table in db._tree.tables()}

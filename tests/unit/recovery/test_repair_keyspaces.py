"""repair and verify of a database with several keyspaces."""

import shutil
import struct
from pathlib import Path

import pytest
import xxhash
from damaged import flip
from databases import write_sst

import lsmkv
from lsmkv.recovery.stored_state import read_state
from lsmkv_ext.wal.writer import LogWriter

FOOTER = 160
FORMAT_1 = Path(__file__).parents[2] / "golden" / "format-1"


def read(path):
    """The contents by keyspace, "" for the default one. Those without a key do not count."""
    with lsmkv.open(path) as db:
        mappings = {"": db, **{name: db.keyspace(name) for name in db.keyspaces()}}
        return {name: dict(mapping.items()) for name, mapping in mappings.items() if len(mapping)}


def stop(db):
    """Closes it as a kill would: the memtables stay in the log alone."""
    db.sync()
    db._shut(flush=False)


def lose_manifest(path):
    for name in ("CURRENT", "MANIFEST-*"):
        for file in path.glob(name):
            file.unlink()


def format_of(path):
    return read_state(str(path)).format_version


@pytest.fixture
def database(tmp_path):
    """Two named keyspaces and the default one, with operations in tables and in the log."""
    path = tmp_path / "db"
    db = lsmkv.open(path)
    users, posts = db.keyspace("users", bits_per_key=12), db.keyspace("posts")
    for i in range(300):
        with db.write_batch() as batch:
            for mapping in (db, users, posts):
                batch.put(b"key%04d" % i, repr(mapping).encode()[:20], keyspace=mapping)
    db.flush()
    users.put(b"logged", b"users")
    posts.delete(b"key0000")
    db.put(b"logged", b"default")
    stop(db)
    return path


@pytest.fixture
def contents(database, tmp_path):
    return read(shutil.copytree(database, tmp_path / "reference"))


def test_a_sound_database_needs_nothing(database):
    assert lsmkv.verify(database).findings == []
    assert not lsmkv.repair(database).needed


def test_a_lost_manifest_is_rebuilt_with_its_keyspaces(database, contents):
    lose_manifest(database)
    plan = lsmkv.repair(database, apply=False)
    assert plan.needed and plan.losses == []
    report = lsmkv.repair(database)
    assert report.rebuilt and report.losses == [] and report.set_aside == []
    assert format_of(database) == 2
    assert lsmkv.verify(database).findings == []
    assert read(database) == contents
    with lsmkv.open(database) as db:
        assert db.keyspace("new")._tree.keyspace == 3


def test_a_damaged_table_stays_in_its_keyspace(database, contents):
    state = read_state(str(database))
    (f,) = state.trees[1].version.files()
    flip(database / f"{f.number:06}.sst", 30)
    report = lsmkv.repair(database)
    assert len(report.losses) == 1
    assert format_of(database) == 2
    left = read(shutil.copytree(database, database.parent / "mended"))
    assert {name: left[name] for name in ("", "posts")} == {name: contents[name] for name in ("", "posts")}
    assert 0 < len(left["users"]) < len(contents["users"])
    assert left["users"].items() <= contents["users"].items()
    with lsmkv.open(database) as db:
        assert db.keyspace("users").options.bits_per_key == 12
    lose_manifest(database)
    assert lsmkv.repair(database).losses == []
    assert read(database) == left


def test_a_missing_table_of_a_keyspace_is_found_and_left_out(database, contents):
    (f,) = read_state(str(database)).trees[2].version.files()
    (database / f"{f.number:06}.sst").unlink()
    assert not lsmkv.verify(database).ok
    lsmkv.repair(database)
    left = read(database)
    assert left == {name: contents[name] for name in ("", "users")}


def test_operations_of_a_keyspace_without_a_table_get_one(tmp_path):
    path = tmp_path / "db"
    db = lsmkv.open(path)
    db.put(b"key", b"default")
    db.keyspace("users").put(b"key", b"users")
    db.keyspace("keyspace-1").put(b"key", b"of this name")
    db.flush()
    db.keyspace("users").put(b"logged", b"users")
    stop(db)
    state = read_state(str(path))
    (f,) = state.trees[1].version.files()
    (path / f"{f.number:06}.sst").unlink()
    lose_manifest(path)
    report = lsmkv.repair(path)
    assert any("keyspace-1~" in action for action in report.actions)
    assert read(path) == {
        "": {b"key": b"default"},
        "keyspace-1": {b"key": b"of this name"},
        "keyspace-1~": {b"logged": b"users"},
    }


def test_the_latest_keyspace_of_a_name_keeps_it(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db.keyspace("users").put(b"key", b"dropped")
        db.flush()
        (old,) = path.glob("*.sst")
        shutil.copy(old, tmp_path / old.name)
        db.drop_keyspace("users")
        db.keyspace("users").put(b"key", b"users")
    shutil.copy(tmp_path / old.name, old)
    lose_manifest(path)
    report = lsmkv.repair(path)
    assert [name for name in report.set_aside if name.endswith(".sst")] == [old.name]
    assert len(report.losses) == 1 and old.name in report.losses[0]
    assert (path / "lost" / old.name).exists()
    assert read(path) == {"users": {b"key": b"users"}}


def test_operations_of_an_earlier_keyspace_of_a_name_are_set_aside(tmp_path):
    path = tmp_path / "db"
    db = lsmkv.open(path)
    db.keyspace("users").put(b"flushed", b"dropped")
    db.flush()
    (table,) = path.glob("*.sst")
    db.keyspace("users").put(b"logged", b"dropped")
    db.put(b"logged", b"default")
    db.sync()
    (log,) = [log for log in path.glob("*.wal") if b"logged" in log.read_bytes()]
    for file in (table, log):
        shutil.copy(file, tmp_path / file.name)
    db.drop_keyspace("users")
    db.keyspace("users").put(b"key", b"users")
    db.close()
    for file in (table, log):
        shutil.copy(tmp_path / file.name, file)
    lose_manifest(path)
    report = lsmkv.repair(path)
    assert {table.name, log.name} <= set(report.set_aside)
    assert (path / "lost" / log.name).read_bytes() == (tmp_path / log.name).read_bytes()
    assert read(path) == {"": {b"logged": b"default"}, "users": {b"key": b"users"}}


@pytest.mark.parametrize("named", [False, True])
def test_an_ingested_table_goes_where_nothing_can_mix_with_it(tmp_path, named):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db.put(b"key", b"default")
        if named:
            db.keyspace("users").put(b"key", b"users")
        db.ingest([write_sst(tmp_path / "a.sst", [(b"ingested", b"1")])])
        number = max(f.number for f in db._tree.current.files())
    lose_manifest(path)
    assert lsmkv.repair(path).losses == []
    expected = {"": {b"key": b"default", b"ingested": b"1"}}
    if named:
        expected = {"": {b"key": b"default"}, f"ingested-{number}": {b"ingested": b"1"}, "users": {b"key": b"users"}}
    assert read(path) == expected


def test_without_a_sign_of_format_2_the_database_gets_format_1(tmp_path):
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db.put(b"key", b"value")
    for log in path.glob("*.wal"):
        log.unlink()
    lose_manifest(path)
    lsmkv.repair(path)
    assert format_of(path) == 1
    assert read(path) == {"": {b"key": b"value"}}


@pytest.fixture
def unknown(tmp_path):
    """A log with operations of a keyspace that the manifest does not have."""
    path = tmp_path / "db"
    db = lsmkv.open(path)
    (manifest,) = path.glob("MANIFEST-*")
    before = manifest.read_bytes()
    db.put(b"key", b"default")
    db.keyspace("users").put(b"key", b"users")
    stop(db)
    manifest.write_bytes(before)
    with pytest.raises(lsmkv.CorruptionError, match="keyspace"):
        lsmkv.open(path)
    return path


def test_a_keyspace_that_is_not_in_the_manifest_is_found(unknown):
    (finding,) = lsmkv.verify(unknown).findings
    assert finding.file.endswith(".wal") and "keyspace 1" in finding.what


def test_a_keyspace_that_is_not_in_the_manifest_is_added_to_it(unknown):
    report = lsmkv.repair(unknown)
    assert not report.rebuilt and report.losses == []
    assert read(unknown) == {"": {b"key": b"default"}, "keyspace-1": {b"key": b"users"}}
    with lsmkv.open(unknown) as db:
        assert db.keyspace("new")._tree.keyspace == 2


def test_a_log_of_format_2_beside_a_manifest_of_format_1_upgrades_the_database(tmp_path):
    path = shutil.copytree(FORMAT_1, tmp_path / "db")
    db = lsmkv.open(path)
    before = {p.name: p.read_bytes() for name in ("CURRENT", "MANIFEST-*") for p in path.glob(name)}
    keys = len(db)
    db.keyspace("users").put(b"key", b"users")
    stop(db)
    lose_manifest(path)
    for name, data in before.items():
        (path / name).write_bytes(data)
    assert format_of(path) == 1
    lsmkv.repair(path)
    assert format_of(path) == 2
    with lsmkv.open(path) as db:
        assert len(db) == keys
        assert dict(db.keyspace("keyspace-1").items()) == {b"key": b"users"}


def test_a_log_that_names_very_many_keyspaces_is_set_aside(tmp_path):
    """Each would take a memtable."""
    path = tmp_path / "db"
    with lsmkv.open(path) as db:
        db.put(b"key", b"default")
    number = read_state(str(path)).next_file + 1
    writer = LogWriter(path / f"{number:06}.wal", number, mode="write", version=2, previous_last_seq=1)
    payload = b"".join(b"\x10" + bytes([0x80 | i & 0x7F, i >> 7]) + b"\x01k\x01v" for i in range(128, 128 + 600))
    writer.append(payload, 2, 600)
    writer.sync()
    writer.close()
    assert any("too many" in finding.what for finding in lsmkv.verify(path).findings)
    report = lsmkv.repair(path)
    assert any("too many" in loss for loss in report.losses)
    assert (path / "lost" / f"{number:06}.wal").exists()
    assert read(path) == {"": {b"key": b"default"}}


def make_newer(file):
    """Gives a file the version 3, with the right checksum."""
    data = bytearray(file.read_bytes())
    if file.suffix == ".sst":
        at = len(data) - FOOTER
        struct.pack_into("<I", data, at + 136, 3)
        digest = xxhash.xxh3_64_intdigest(bytes(data[at + 64 : at + 144]), seed=0x6C736D6B76667261 ^ 5 << 56)
        struct.pack_into("<Q", data, at + 144, digest)
    elif file.suffix == ".wal":
        struct.pack_into("<I", data, 8, 3)
        struct.pack_into("<Q", data, 32, xxhash.xxh3_64_intdigest(bytes(data[:32]), seed=0x6C6F672D70616765))
    else:
        struct.pack_into("<I", data, 8, 3)
        number = struct.unpack_from("<Q", data, 16)[0]
        struct.pack_into("<Q", data, 24, xxhash.xxh3_64_intdigest(bytes(data[:24]), seed=number))
    file.write_bytes(data)


@pytest.mark.parametrize("pattern", ["*.sst", "*.wal", "MANIFEST-*"])
@pytest.mark.parametrize("current", [True, False])
def test_what_a_newer_release_wrote_is_neither_repaired_nor_damaged(database, pattern, current):
    flip(min(database.glob("*.sst")), 30)
    make_newer(max(database.glob(pattern)))
    if not current:
        (database / "CURRENT").unlink()
    before = {p.name: p.read_bytes() for p in database.iterdir() if p.name != "LOCK"}
    with pytest.raises(lsmkv.FormatError):
        lsmkv.repair(database)
    if current:
        with pytest.raises(lsmkv.FormatError):
            lsmkv.verify(database)
        with pytest.raises(lsmkv.FormatError):
            lsmkv.open(database)
    assert {p.name: p.read_bytes() for p in database.iterdir() if p.name != "LOCK"} == before

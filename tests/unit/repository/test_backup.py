"""Backups: what is sent, restored and removed, of which databases, in which stores."""

import os
import re

import fsspec
import obstore.store
import pytest
from databases import TINY, fill_with

import lsmkv
from lsmkv.repository import create


@pytest.fixture(params=["directory", "file URL", "obstore", "fsspec"])
def url(request, tmp_path):
    return {
        "directory": lambda: tmp_path / "backups",
        "file URL": lambda: f"file://{tmp_path}/backups",
        "obstore": obstore.store.MemoryStore,
        "fsspec": lambda: fsspec.filesystem("dir", path=f"/{tmp_path.name}", fs=fsspec.filesystem("memory")),
    }[request.param]()


@pytest.fixture
def repository(tmp_path):
    return tmp_path / "backups"


def contents(path):
    with lsmkv.open(path, "r") as db:
        return {name: dict(db.keyspace(name) if name else db) for name in ["", *db.keyspaces()]}


def test_each_version_is_restored_as_it_was(path, tmp_path, url):
    seen = {}
    with lsmkv.open(path, **TINY) as db:
        for edition in range(3):
            fill_with(db, value=b"%d" % edition)
            db.keyspace("users")[b"edition"] = b"%d" % edition
            db[b"large"] = os.urandom(40_000)
            version = lsmkv.backup(db, url)
            assert version.sent_bytes == version.bytes or edition
            seen[version.id] = {"": dict(db), "users": dict(db.keyspace("users"))}
    assert [each.id for each in lsmkv.backups(url)] == list(seen)
    for number, (version, expected) in enumerate(seen.items()):
        assert lsmkv.restore(url, tmp_path / f"{number}", version).id == version
        assert contents(tmp_path / f"{number}") == expected
        assert lsmkv.verify(tmp_path / f"{number}")
    assert lsmkv.restore(url, tmp_path / "newest").id == list(seen)[-1]
    assert {p.name for p in tmp_path.iterdir()} <= {"db", "0", "1", "2", "newest", "backups"}


def test_a_second_backup_sends_only_new_files(path, repository):
    with lsmkv.open(path, write_buffer_size=64 << 10, target_file_size=64 << 10) as db:
        for i in range(5000):
            db[b"%06d" % i] = os.urandom(100)
        db.compact_range()
        first = lsmkv.backup(db, repository)
        assert (first.sent_files, first.sent_bytes) == (len(first.files), first.bytes)
        db[b"000000"] = b"new"
        second = lsmkv.backup(db, repository)
        shared = first.objects & second.objects
        assert len(shared) > 5
        assert second.sent_files == len(second.objects - shared) <= 5
        third = lsmkv.backup(db, repository)
        assert {each.name for each in third.files if each.object not in second.objects} <= {"CURRENT", *names(third)}


def names(version):
    return {file.name for file in version.files if file.name.startswith("MANIFEST")}


def test_unchanged_files_are_not_read_again(path, repository, monkeypatch):
    hashed = []
    with lsmkv.open(path) as db:
        fill_with(db)
        lsmkv.backup(db, repository)
        real = create.hash_file
        monkeypatch.setattr(create, "hash_file", lambda path: hashed.append(os.path.basename(path)) or real(path))
        lsmkv.backup(db, repository)
    assert not [name for name in hashed if name.endswith(".sst")]


def test_of_a_path_a_reader_and_beside_a_writer(path, repository, tmp_path):
    """What is only in the log belongs to it."""
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        db[b"logged"] = b"1"
        lsmkv.backup(path, repository)
        with lsmkv.open(path, "r") as reader:
            db[b"later"] = b"1"
            lsmkv.backup(reader, repository)
        expected = {**dict(db)}
    del expected[b"later"]
    lsmkv.backup(path, repository)
    for number, version in enumerate(lsmkv.backups(repository)):
        lsmkv.restore(repository, tmp_path / f"{number}", version.id)
        assert contents(tmp_path / f"{number}")[""] == expected | ({b"later": b"1"} if number == 2 else {})
    assert not (tmp_path / "db.backup").exists()


def test_two_databases_share_a_repository(tmp_path, repository):
    for name in ("a", "b"):
        with lsmkv.open(tmp_path / name) as db:
            db[b"name"] = name.encode()
            lsmkv.backup(db, repository)
    for name, version in zip("ab", lsmkv.backups(repository), strict=True):
        assert version.source == str(tmp_path / name)
        lsmkv.restore(repository, tmp_path / f"{name}.copy", version.id)
        assert contents(tmp_path / f"{name}.copy")[""] == {b"name": name.encode()}


def test_a_restored_database_is_backed_up_beside_its_origin(path, tmp_path, repository):
    """Both write tables with the same numbers."""
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        lsmkv.backup(db, repository)
        lsmkv.restore(repository, tmp_path / "copy")
        with lsmkv.open(tmp_path / "copy") as copy:
            for handle, value in ((db, b"origin"), (copy, b"restored")):
                handle[b"a"] = value
                version = lsmkv.backup(handle, repository)
                dest = tmp_path / value.decode()
                lsmkv.restore(repository, dest, version.id)
                assert contents(dest)[""] == {b"a": value}


def test_prune_keeps_what_the_kept_versions_need(path, tmp_path, url):
    with lsmkv.open(path, **TINY) as db:
        for edition in range(4):
            fill_with(db, start=300 * edition)
            lsmkv.backup(db, url)
        expected = dict(db)
    before = lsmkv.backups(url)
    assert lsmkv.prune_backups(url, keep=2) == before[:2]
    assert lsmkv.backups(url) == before[2:]
    lsmkv.restore(url, tmp_path / "copy")
    assert contents(tmp_path / "copy")[""] == expected
    assert lsmkv.prune_backups(url, keep=2) == []


def test_prune_removes_what_no_version_needs(path, repository):
    with lsmkv.open(path) as db:
        for edition in range(3):
            db[b"a"] = b"%d" % edition * 100
            lsmkv.backup(db, repository)
    orphan = repository / "data" / "00" / ("00" + "0" * 62)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"of an interrupted backup")
    stranger = repository / "data" / "notes.txt"
    stranger.write_text("mine")
    lsmkv.prune_backups(repository, keep=1)
    (last,) = lsmkv.backups(repository)
    files = {str(p.relative_to(repository)) for p in repository.rglob("*") if p.is_file()}
    assert files == last.objects | {f"versions/{last.id}", "data/notes.txt"}


def test_versions_are_in_the_order_in_which_they_were_made(path, repository, monkeypatch):
    """Also if the clock was set back in between."""
    real = create.versions.utc_now
    with lsmkv.open(path) as db:
        first = lsmkv.backup(db, repository)
        monkeypatch.setattr(create.versions, "utc_now", lambda: real().replace(year=2020))
        second = lsmkv.backup(db, repository)
    assert [each.id for each in lsmkv.backups(repository)] == [first.id, second.id]
    assert re.fullmatch(r"000002-2020\d{4}T\d{6}Z-[0-9a-f]{8}", second.id)


def test_progress_ends_at_the_total(path, repository, tmp_path):
    calls = []
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        version = lsmkv.backup(db, repository, progress=lambda *call: calls.append(call))
    lsmkv.restore(repository, tmp_path / "copy", progress=lambda *call: calls.append(call))
    lsmkv.prune_backups(repository, 1, progress=lambda *call: calls.append(call))
    assert [total for _, done, total in calls if done == total] == [version.bytes, version.bytes, 0]


def test_wrong_arguments(path, repository, tmp_path):
    with lsmkv.open(path) as db:
        for url in (None, 5, object()):
            with pytest.raises(TypeError):
                lsmkv.backup(db, url)
        for call in (
            lambda: lsmkv.backup(db, repository, uploads=0),
            lambda: lsmkv.prune_backups(repository, keep=0),
            lambda: lsmkv.restore(repository, tmp_path / "copy", downloads=0),
        ):
            with pytest.raises(ValueError, match="must be at least 1"):
                call()
        with pytest.raises(TypeError, match="storage_options"):
            lsmkv.backup(db, repository, storage_options={"region": "eu"})
        with pytest.raises(lsmkv.IOError, match="there is no backup"):
            lsmkv.restore(repository, tmp_path / "copy")
        lsmkv.backup(db, repository)
    with pytest.raises(lsmkv.IOError) as missing:
        lsmkv.restore(repository, tmp_path / "copy", "000009-20200101T000000Z-00000000")
    assert missing.value.errno == 2
    with pytest.raises(lsmkv.IOError, match="not the id"):
        lsmkv.restore(repository, tmp_path / "copy", "../../etc/passwd")
    with pytest.raises(lsmkv.IOError, match="the destination exists"):
        lsmkv.restore(repository, path)
    with pytest.raises(lsmkv.IOError):
        lsmkv.backup(tmp_path / "missing", repository)
    with pytest.raises(lsmkv.IOError):
        lsmkv.backup(path, "nosuchscheme://bucket")
    with pytest.raises(lsmkv.ClosedError):
        lsmkv.backup(db, repository)

"""Backups over stores that fail, lose and damage, and in processes that are killed."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from databases import TINY, fill_with
from stores import FailingStore, MemoryStore

import lsmkv
from lsmkv.repository import create, lock, prune, restore
from lsmkv.repository.version import encode


@pytest.fixture
def store(monkeypatch):
    return use(MemoryStore(), monkeypatch)


def use(store, monkeypatch):
    for module in (create, prune, restore):
        monkeypatch.setattr(module, "open_store", lambda url, options: store)
    return store


@pytest.fixture
def db(path):
    with lsmkv.open(path, **TINY) as db:
        fill_with(db)
        yield db


def restored(tmp_path, version=None):
    """What the newest version, or another, gives back."""
    dest = tmp_path / f"restored-{len(list(tmp_path.iterdir()))}"
    lsmkv.restore("", dest, version)
    with lsmkv.open(dest, "r") as copy:
        return dict(copy)


def test_whatever_call_fails_the_last_version_stays_and_a_repeated_call_works(db, tmp_path, monkeypatch, store):
    """Every call of a backup and of a prune fails once and for good; it may have taken effect or not."""
    first = lsmkv.backup(db, "")
    before = dict(db)
    db[b"new"] = b"1"
    after = dict(db)
    for what in (lambda: lsmkv.backup(db, "", uploads=1), lambda: lsmkv.prune_backups("", 1)):
        for variant in range(4):
            at = 0
            while True:
                failing = use(FailingStore(store), monkeypatch)
                failing.fail_at, failing.for_good, failing.took_effect = at, variant % 2 == 1, variant >= 2
                with suppress(lsmkv.IOError):
                    what()
                ended = len(failing.calls) <= at
                failing.fail_at = None
                for version in lsmkv.backups(""):
                    assert restored(tmp_path, version.id) == (before if version.id == first.id else after)
                assert lsmkv.backups("")[0].id == first.id or what is not None
                what()
                assert restored(tmp_path) in (before, after)
                if ended:
                    break
                at += 1
        use(store, monkeypatch)
        what()
    assert [each.objects for each in lsmkv.backups("")] == [{n for n in store.objects if n.startswith("data/")}]


def test_a_failed_backup_leaves_no_lock_and_no_checkpoint(db, tmp_path, monkeypatch, store):
    failing = use(FailingStore(store), monkeypatch)
    failing.fail_at = 5
    with pytest.raises(lsmkv.IOError, match="injected"):
        lsmkv.backup(db, "", uploads=1)
    assert not [name for name in failing.objects if not name.startswith("data/")]
    assert [p.name for p in tmp_path.iterdir()] == ["db"]


def test_a_repeated_backup_sends_what_is_missing(db, monkeypatch, store):
    failing = use(FailingStore(store), monkeypatch)
    failing.fail_at, failing.for_good = 8, True
    with pytest.raises(lsmkv.IOError):
        lsmkv.backup(db, "", uploads=1)
    failing.fail_at = None
    there = {name for name in failing.objects if name.startswith("data/")}
    assert there
    version = lsmkv.backup(db, "")
    assert version.sent_files == len(version.objects - there) < len(version.objects)


@pytest.mark.parametrize("keeps", [0, 10])
def test_an_upload_that_is_lost_or_cut_off_is_repeated(db, tmp_path, store, keeps):
    lost = []

    def upload(path, name):
        MemoryStore.upload(store, path, name)
        if name not in lost:
            lost.append(name)
            store.objects[name] = store.objects[name][:keeps]
            if not keeps:
                del store.objects[name]

    store.upload = upload
    lsmkv.backup(db, "")
    assert lost and restored(tmp_path) == dict(db)


def test_a_store_that_keeps_losing_uploads_gets_no_version(db, store):
    store.upload = lambda path, name: store.call("upload", name)
    with pytest.raises(lsmkv.IOError, match="the store has 0 of"):
        lsmkv.backup(db, "")
    assert store.objects == {}


def test_a_damaged_table_is_not_sent(path, db, store):
    lsmkv.backup(db, "")
    fill_with(db, start=500)
    db.flush()
    newest = max(path.glob("*.sst"))
    data = bytearray(newest.read_bytes())
    data[100] ^= 1
    newest.write_bytes(data)
    before = dict(store.objects)
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.backup(db, "")
    assert {name for name in store.objects if name.startswith("versions/")} <= before.keys()


def test_a_damaged_value_is_not_sent(path, db, store):
    db[b"large"] = os.urandom(40_000)
    db.flush()
    (log,) = path.glob("*.vlog")
    data = bytearray(log.read_bytes())
    data[20_000] ^= 1
    log.write_bytes(data)
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.backup(db, "")
    assert not [name for name in store.objects if name.startswith("versions/")]


def test_every_damage_to_an_object_is_noticed(db, tmp_path, store):
    def refused(error, match):
        # Not twice in one place, where the second call would keep what has arrived.
        dest = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"
        with pytest.raises(error, match=match):
            lsmkv.restore("", dest)
        assert not dest.exists()

    version = lsmkv.backup(db, "")
    for name in (version.files[0].object, version.files[-1].object):
        good = store.objects[name]
        for bad in (good[:-1], good + b"x", bytes([good[0] ^ 1]) + good[1:], b""):
            store.objects[name] = bad
            refused(lsmkv.CorruptionError, "in the backup is damaged")
        del store.objects[name]
        refused(lsmkv.IOError, "no such object")
        store.objects[name] = good
    assert restored(tmp_path) == dict(db)


def test_a_download_that_is_cut_off_is_repeated(db, tmp_path, store):
    lsmkv.backup(db, "")
    cut = set()

    def download(name):
        pieces = list(MemoryStore.download(store, name))
        if name.startswith("data/") and name not in cut:
            cut.add(name)
            pieces = pieces[:-1]
        yield from pieces

    store.download = download
    assert restored(tmp_path) == dict(db)
    assert cut


def test_a_repeated_restore_keeps_what_has_arrived(db, tmp_path, store):
    version = lsmkv.backup(db, "")
    missing = version.files[-1].object
    kept = store.objects.pop(missing)
    with pytest.raises(lsmkv.IOError):
        lsmkv.restore("", tmp_path / "copy", downloads=1)
    assert (tmp_path / "copy.restore").exists()
    store.objects[missing] = kept
    store.calls.clear()
    lsmkv.restore("", tmp_path / "copy", downloads=1)
    assert [name for what, name in store.calls if what == "download" and name.startswith("data/")] == [missing]
    assert not (tmp_path / "copy.restore").exists()
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == dict(db)


def test_an_interrupted_restore_of_another_version_leaves_nothing_in_this_one(db, tmp_path, store):
    first = lsmkv.backup(db, "")
    db[b"new"] = b"1"
    second = lsmkv.backup(db, "")
    (gone,) = [file.object for file in second.files if file.name == "CURRENT"]
    kept = store.objects.pop(gone)
    with pytest.raises(lsmkv.IOError):
        lsmkv.restore("", tmp_path / "copy", second.id, downloads=1)
    store.objects[gone] = kept
    lsmkv.restore("", tmp_path / "copy", first.id)
    assert {p.name for p in (tmp_path / "copy").iterdir()} == {file.name for file in first.files}


def versions_of(store):
    return [name for name in store.objects if name.startswith("versions/")]


def test_every_damage_to_a_version_is_noticed(db, tmp_path, store):
    lsmkv.backup(db, "")
    lsmkv.backup(db, "")
    name = versions_of(store)[0]
    good = store.objects[name]
    for at in range(0, len(good), 7):
        store.objects[name] = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        with pytest.raises((lsmkv.CorruptionError, lsmkv.FormatError)):
            lsmkv.backups("")
    store.objects[name] = good[:50]
    before = dict(store.objects)
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.prune_backups("", 1)
    assert store.objects == before
    assert restored(tmp_path) == dict(db)  # the newest one
    lsmkv.restore("", tmp_path / "third", lsmkv.backup(db, "").id)


def test_a_version_of_a_newer_release_is_refused(db, store):
    lsmkv.backup(db, "")
    (name,) = versions_of(store)
    store.objects[name] = store.objects[name].replace(b"lsmkv-backup 1 ", b"lsmkv-backup 2 ", 1)
    with pytest.raises(lsmkv.FormatError):
        lsmkv.prune_backups("", 1)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "000001.wal", "LOCK", "a/b", ""])
def test_a_version_cannot_write_elsewhere(db, tmp_path, store, name):
    from dataclasses import replace

    made = lsmkv.backup(db, "")
    hostile = replace(made, files=(replace(made.files[0], name=name), *made.files[1:]))
    store.objects["versions/" + made.id] = encode(hostile)
    with pytest.raises(lsmkv.CorruptionError, match="makes no sense"):
        lsmkv.restore("", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


# Locks ------------------------------------------------------------------------------------------------------


def test_no_prune_beside_a_backup(db, store):
    refused = []

    def progress(file, done, total):
        with pytest.raises(lsmkv.LockError, match="a backup is running"):
            lsmkv.prune_backups("", 1)
        refused.append(file)

    lsmkv.backup(db, "", uploads=1, progress=progress)
    assert refused and not [name for name in store.objects if name.startswith("locks/")]
    lsmkv.prune_backups("", 1)


def test_no_backup_beside_a_prune_and_two_backups_at_once(db, store):
    for _ in range(2):
        lsmkv.backup(db, "")
    with lock.RepositoryLock(store, lock.PRUNE), pytest.raises(lsmkv.LockError, match="a prune is running"):
        lsmkv.backup(db, "")
    with lock.RepositoryLock(store, lock.BACKUP):
        lsmkv.backup(db, "")
    assert len(lsmkv.backups("")) == 3


def left_lock(store, kind, **changes):
    owner = {"kind": kind, "host": "elsewhere", "pid": 1} | changes
    store.write(f"locks/{kind}-0123456789abcdef", json.dumps(owner).encode())
    return f"locks/{kind}-0123456789abcdef"


def test_the_lock_of_a_killed_process_is_removed(db, store):
    import socket

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left_lock(store, "prune", host=socket.gethostname(), pid=ended.pid)
    lsmkv.backup(db, "")
    name = left_lock(store, "prune")
    with pytest.raises(lsmkv.LockError):
        lsmkv.backup(db, "")
    store.modified[name] -= lock.STALE + 1
    lsmkv.backup(db, "")
    assert name not in store.objects


def test_a_lock_is_refreshed_and_one_that_was_taken_away_ends_the_call(db, store, monkeypatch):
    with lock.RepositoryLock(store, lock.BACKUP) as held:
        (name,) = [name for name in store.objects if name.startswith("locks/")]
        writes = store.calls.count(("write", name))
        held.refresh()
        assert store.calls.count(("write", name)) == writes
        monkeypatch.setattr(lock, "REFRESH", -1.0)
        held.refresh()
        assert store.calls.count(("write", name)) == writes + 1
        store.delete(name)
        with pytest.raises(lsmkv.LockError, match="stopped for too long"):
            held.refresh()


def test_a_backup_whose_objects_were_pruned_meanwhile_is_no_version(db, store, monkeypatch):
    """It was stopped for so long that a prune took its lock for stale."""
    real = store.write

    def write(name, data):
        real(name, data)
        if name.startswith("versions/"):
            for each in [n for n in store.objects if n.startswith(("locks/", "data/"))]:
                del store.objects[each]

    store.write = write
    with pytest.raises(lsmkv.IOError, match="not stored whole"):
        lsmkv.backup(db, "")
    assert not versions_of(store)


# Kills ------------------------------------------------------------------------------------------------------

KILLED = """
import os, sys
import lsmkv
from lsmkv.repository import local_store

calls, at = 0, int(sys.argv[1])

def counted(method):
    def call(*arguments):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), 9)
        return method(*arguments)
    return call

for name in ("list", "download", "delete", "_write", "upload"):
    setattr(local_store.LocalStore, name, counted(getattr(local_store.LocalStore, name)))
os.rename = counted(os.rename)
os.link = counted(os.link)
{call}
"""


@pytest.mark.parametrize("what", ["backup", "prune", "restore"])
def test_a_killed_process_leaves_good_versions_and_is_in_nobodys_way(path, tmp_path, what):
    repository = tmp_path / "backups"
    with lsmkv.open(path) as db:
        for edition in range(3):
            fill_with(db, value=b"%d" % edition)
            lsmkv.backup(db, repository)
        db[b"new"] = b"1"
        expected = [dict(db)]
        del expected[0][b"new"]
        expected.append(dict(db))
    code = KILLED.replace(
        "{call}",
        {
            "backup": f"lsmkv.backup({str(path)!r}, {str(repository)!r}, uploads=1)",
            "prune": f"lsmkv.prune_backups({str(repository)!r}, 2)",
            "restore": f"lsmkv.restore({str(repository)!r}, {str(tmp_path / 'dest')!r}, downloads=1)",
        }[what],
    )
    killed = 0
    for at in range(1, 60, 3):
        if subprocess.run([sys.executable, "-c", code, str(at)], check=False).returncode == 0:
            break
        killed += 1
        lsmkv.restore(repository, tmp_path / "copy")
        with lsmkv.open(tmp_path / "copy") as copy:
            assert dict(copy) in expected
        lsmkv.destroy(tmp_path / "copy")
        assert not (tmp_path / "dest").exists()
    assert killed >= 3
    lsmkv.backup(path, repository)
    lsmkv.prune_backups(repository, 1)
    (last,) = lsmkv.backups(repository)
    lsmkv.restore(repository, tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy") as copy:
        assert dict(copy) == expected[1]
    found = {str(p.relative_to(repository)) for p in (repository / "data").rglob("*") if p.is_file()}
    assert found == last.objects

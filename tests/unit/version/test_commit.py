"""Once the append of an edit was attempted, nothing removes its files: it is published, or the next open decides."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from waiting import wait_until

import lsmkv
from lsmkv import files
from lsmkv.version import manifest
from lsmkv.version.manifest import ManifestWriter
from lsmkv.version.version_set import VersionSet

QUIET = {"l0_compaction_trigger": 100, "l0_slowdown_trigger": 200, "l0_stop_trigger": 300}
INGESTED = {b"k%03d" % i: b"ingested" for i in range(50)}


@pytest.fixture
def model():
    return {}


@pytest.fixture
def db(path, model):
    """Three tables and a memtable."""
    db = lsmkv.open(path, **QUIET)
    for generation in range(4):
        for i in range(generation, 200, generation + 1):
            model[b"k%03d" % i] = b"%d" % generation
            db.put(b"k%03d" % i, b"%d" % generation)
        if generation < 3:
            db.flush()
    yield db
    db.close()


def data_files(path):
    return {name for name in os.listdir(path) if name.endswith((".sst", ".wal"))}


def ingest(db):
    table = os.path.join(os.path.dirname(db.path), "table.sst")
    writer = lsmkv.SSTWriter(table)
    for key, value in INGESTED.items():
        writer.put(key, value)
    writer.finish()
    db.flush()
    yield
    db.ingest([table])


def flush(db):
    yield
    db.flush()


def compact(db):
    db.flush()
    yield
    db.compact_range()


def rebuild(db):
    db.flush()
    db.set_options(bits_per_key=15)
    yield
    db.rebuild_filters()


USERS = {"flush": flush, "compaction": compact, "filter rebuild": rebuild, "ingest": ingest}


def failing_after(function):
    """The same, but memory runs out at its end."""

    def wrapper(*args, **kwargs):
        function(*args, **kwargs)
        raise MemoryError("after it was done")

    return wrapper


def after_the_write(db, patch):
    write_all = files.write_all

    def write(fd, data, path):
        write_all(fd, data, path)
        if "MANIFEST" in path:
            raise MemoryError("after it was done")

    patch.setattr(manifest, "write_all", write)


def after_the_sync(db, patch):
    patch.setattr(ManifestWriter, "_store_slot", failing_after(ManifestWriter._store_slot))


def after_the_rename(db, patch):
    db._versions._manifest_limit = 0  # a new manifest, named by CURRENT
    patch.setattr(os, "rename", failing_after_current(os.rename))


def failing_after_current(rename):
    def wrapper(source, target):
        rename(source, target)
        if os.path.basename(target) == "CURRENT":
            raise MemoryError("after it was done")

    return wrapper


class Failing:
    """An engine one of whose methods raises."""

    def __init__(self, engine, method):
        self._engine = engine
        self._method = method

    def __getattr__(self, name):
        if name == self._method:
            raise MemoryError(name)
        return getattr(self._engine, name)


def while_publishing(db, patch):
    patch.setattr(db._versions, "engine", Failing(db._engine, "publish"))


@pytest.mark.parametrize("fail", [after_the_write, after_the_sync, after_the_rename, while_publishing])
@pytest.mark.parametrize("user", USERS)
def test_an_edit_that_may_be_durable_keeps_its_files(db, path, model, user, fail):
    steps = USERS[user](db)
    next(steps)
    before = data_files(path)
    with pytest.MonkeyPatch.context() as patch:
        fail(db, patch)
        with pytest.raises((MemoryError, lsmkv.ReadOnlyError)):
            next(steps)
        files = data_files(path)
        assert before <= files
        assert [name for name in files - before if name.endswith(".sst")]
        with pytest.raises(lsmkv.ReadOnlyError):
            db.put(b"more", b"")
        assert dict(db.items()) == model
        db.close()
    if user == "ingest":
        model |= INGESTED
    with lsmkv.open(path) as again:
        assert dict(again.items()) == model


def test_an_open_whose_edit_may_be_durable_keeps_its_files(db, path, model):
    db._close_at_exit()  # leaves the memtable to the log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "MOST_RESUMED", 0)  # a new manifest, and so a new CURRENT
        patch.setattr(os, "rename", failing_after_current(os.rename))
        with pytest.raises(MemoryError):
            lsmkv.open(path)
    with lsmkv.open(path) as again:
        assert dict(again.items()) == model


def test_an_append_without_room_is_undone(db, path, model, monkeypatch):
    """What there is of the record is a torn tail, so the table goes, and the next try succeeds."""
    write_all = files.write_all
    full = [True]

    def write(fd, data, name):
        if "MANIFEST" in name and full[0]:
            write_all(fd, data[:-1], name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, data, name)

    monkeypatch.setattr(manifest, "write_all", write)
    tables = {name for name in os.listdir(path) if name.endswith(".sst")}
    with pytest.raises(lsmkv.IOError) as caught:
        db.flush()
    assert caught.value.errno == errno.ENOSPC
    assert {name for name in os.listdir(path) if name.endswith(".sst")} == tables
    full[0] = False
    db.put(b"more", b"room")
    db.flush()
    db.close()
    with lsmkv.open(path) as again:
        assert dict(again.items()) == {**model, b"more": b"room"}


def test_a_rotation_during_the_append_is_in_what_is_published(db, path, model, monkeypatch):
    write_all = files.write_all
    rotated = []

    def write(fd, data, name):
        if "MANIFEST" in name and not rotated:
            rotated.append(True)
            db.put(b"during", b"1")
            with db._engine.exclusive():
                db._scheduler.flusher.rotate()
            db.put(b"afterwards", b"2")
        write_all(fd, data, name)

    monkeypatch.setattr(manifest, "write_all", write)
    db.flush()
    assert rotated
    model |= {b"during": b"1", b"afterwards": b"2"}
    assert dict(db.items()) == model
    db.flush()
    assert not db._engine.immutables and len(db._engine.state.memtables) == 1
    assert dict(db.items()) == model
    db.close()
    with lsmkv.open(path) as again:
        assert dict(again.items()) == model


def test_a_rotation_without_memory_changes_nothing(db, path, model):
    active, log = db._engine.active, db._engine.log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db._versions, "engine", Failing(db._engine, "rotate"))
        with pytest.raises(MemoryError):
            db.flush()
    assert db._engine.active is active and db._engine.log is log and not db._engine.immutables
    db.put(b"more", b"1")
    db.flush()
    db.put(b"and", b"more")
    db.close()
    assert len([name for name in os.listdir(path) if name.endswith(".wal")]) == 1
    with lsmkv.open(path) as again:
        assert dict(again.items()) == {**model, b"more": b"1", b"and": b"more"}


@pytest.mark.parametrize("step", ["drop_logs", "collect_garbage"])
def test_an_edit_is_done_although_old_files_stay(db, path, model, caplog, step):
    def fail(self):
        raise MemoryError(step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VersionSet, step, fail)
        db.flush()
        # Readers see the edit before its old files are looked at.
        wait_until(lambda: "until the next open" in caplog.text)
    db.put(b"more", b"1")
    db.compact_range()
    db.close()
    with lsmkv.open(path) as again:
        assert dict(again.items()) == {**model, b"more": b"1"}


# Cleaning up after a failure ---------------------------------------------------------------------------------


def no_unlink(path, *_, **__):
    raise OSError(errno.EIO, "unlink", path)


def no_room(*_):
    raise lsmkv.IOError(errno.ENOSPC, "no room")


def test_outputs_that_cannot_be_removed_do_not_hide_the_error(db, path, model, monkeypatch):
    work = ingest(db)
    next(work)
    monkeypatch.setattr("lsmkv.ingest.sync_directory", no_room)
    monkeypatch.setattr(os, "unlink", no_unlink)
    with pytest.raises(lsmkv.IOError, match="no room"):
        next(work)
    monkeypatch.undo()
    assert dict(db.items()) == model
    db.close()
    tables = [name for name in os.listdir(path) if name.endswith(".sst")]
    with lsmkv.open(path, **QUIET) as again:
        assert dict(again.items()) == model
        assert len([name for name in os.listdir(path) if name.endswith(".sst")]) < len(tables)


def test_a_manifest_that_cannot_be_removed_does_not_hide_the_error(db, model, monkeypatch):
    monkeypatch.setattr(db._versions, "_manifest_limit", 0)
    monkeypatch.setattr("lsmkv.version.version_set.ManifestWriter.create", no_room)
    monkeypatch.setattr(os, "unlink", no_unlink)
    with pytest.raises(lsmkv.IOError, match="no room"):
        db.flush()
    monkeypatch.undo()
    assert dict(db.items()) == model


def test_a_log_removed_during_a_commit_is_removed_once(db, monkeypatch):
    """Two threads: one removes the logs of its edit while the other one's edit is on its way to the disk."""
    versions = db._versions
    removed = []
    drop, stage = versions.drop_logs, versions._stage
    monkeypatch.setattr(versions, "remove", removed.append)
    monkeypatch.setattr(versions, "drop_logs", lambda: None)
    db.flush()
    monkeypatch.setattr(versions, "drop_logs", drop)

    def removing(edit, state):
        drop()
        return stage(edit, state)

    monkeypatch.setattr(versions, "_stage", removing)
    db.put(b"k", b"v")
    db.flush()
    logs = [name for name in removed if name.endswith(".wal")]
    assert len(logs) == 2
    assert len(set(logs)) == 2


def test_a_flush_keeps_the_log_of_every_memtable_that_waits(path, monkeypatch):
    """Memtables that are rotated out while the flush runs are not in its table."""
    with lsmkv.open(path, max_write_buffers=8) as db:
        versions, engine = db._versions, db._engine
        write, apply = db._work.jobs.write_memtables, versions.apply
        seen = []

        def write_and_rotate(*args, **kwargs):
            outcome = write(*args, **kwargs)
            writer = threading.Thread(target=rotate_twice)
            writer.start()
            writer.join()
            return outcome

        def rotate_twice():
            for key in (b"b", b"c")[len(seen) * 2 :]:
                db[key] = b""
                with engine.exclusive():
                    db._scheduler.flusher.rotate()

        def watch(*args, **kwargs):
            apply(*args, **kwargs)
            seen.append((versions.state.log_number, min(memtable.number for memtable in engine.memtables)))

        monkeypatch.setattr(db._work.jobs, "write_memtables", write_and_rotate)
        monkeypatch.setattr(versions, "apply", watch)
        db[b"a"] = b""
        db.flush()
        wait_until(lambda: seen)
        kept, oldest = seen[0]
        assert kept == oldest

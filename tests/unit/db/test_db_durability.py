"""What survives a reopen, a kill, and the end of the sequence numbers."""

import resource
import subprocess
import sys
import time

import pytest
from databases import fill, names

import lsmkv


def test_a_clean_reopen_replays_nothing(path):
    with lsmkv.open(path) as db:
        fill(db)
    with lsmkv.open(path) as db:
        assert db.recovery_report.clean
        assert len(db) == 500


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_acknowledged_writes_survive_kill(path, wal):
    code = f"""
import lsmkv, os, signal
db = lsmkv.open({str(path)!r}, wal={wal!r}, write_buffer_size=16384)
for i in range(1000):
    db[b"%d" % i] = b"x" * 50
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    with lsmkv.open(path) as db:
        assert len(db) == 1000
        assert db.recovery_report.torn == []
        assert db.recovery_report.records > 0
    assert lsmkv.verify(path)


def test_a_log_with_nothing_but_deletes_of_nothing(path):
    db = lsmkv.open(path)
    with db.write_batch() as batch:
        batch.delete_range(b"a", b"a")
    db._shut(flush=False)
    with lsmkv.open(path) as db:
        assert db.recovery_report.records == 1
        assert len(db) == 0
        db[b"a"] = b"1"
        db.flush()


def test_without_a_log_close_flushes(path):
    with lsmkv.open(path, wal=None) as db:
        fill(db)
        assert not [name for name in names(path) if name.endswith(".wal")]
    with lsmkv.open(path, wal=None) as db:
        assert len(db) == 500
    with lsmkv.open(path) as db:
        db[b"more"] = b"1"
    with lsmkv.open(path, wal=None) as db:
        assert len(db) == 501


@pytest.mark.parametrize(
    "write",
    [
        lambda db, sync: db.put(b"a", b"1", sync=sync),
        lambda db, sync: db.put(bytearray(b"a"), b"1", sync=sync),
        lambda db, sync: db.delete(b"kept", sync=sync),
        lambda db, sync: db.delete_range(b"a", b"z", sync=sync),
        lambda db, sync: db.delete_range(b"z", b"a", sync=sync),
        lambda db, sync: db.write(lsmkv.WriteBatch(), sync=sync),
        lambda db, sync: write_one_batch(db, sync),
    ],
)
def test_a_synced_write_without_a_log_is_refused(path, write):
    with lsmkv.open(path, wal=None) as db:
        db[b"kept"] = b"1"
        with pytest.raises(lsmkv.OptionError, match="no log to sync"):
            write(db, True)
        assert dict(db) == {b"kept": b"1"}
        write(db, False)


def write_one_batch(db, sync):
    with db.write_batch(sync=sync) as batch:
        batch.put(b"a", b"1")


def test_a_sync_without_a_log_is_a_flush(path):
    with lsmkv.open(path, wal=None) as db:
        db[b"a"] = b"1"
        db.sync()
        assert [name for name in names(path) if name.endswith(".sst")]
        assert db._engine.active.empty


@pytest.mark.parametrize("options", [{"sync": True}, {"sync_interval_ms": 5}])
def test_syncing_by_default_needs_a_log(path, options):
    with pytest.raises(lsmkv.OptionError, match="need a log"):
        lsmkv.open(path, wal=None, **options)
    with lsmkv.open(path, wal=None) as db, pytest.raises(lsmkv.OptionError, match="need a log"):
        db.set_options(sync_interval_ms=5)


def test_an_interval_syncs_in_the_background(path):
    with lsmkv.open(path, sync_interval_ms=5) as db:
        db[b"a"] = b"1"
        log = db._engine.log
        deadline = time.monotonic() + 20
        while log.synced < log.size and time.monotonic() < deadline:
            time.sleep(0.005)
        assert log.synced == log.size


def test_a_sync_asked_of_an_empty_write_covers_what_came_before(tmp_path):
    """Found by a power cut: an empty delete_range with sync=True was acknowledged, the writes before it were lost."""
    with lsmkv.open(tmp_path / "db") as db:
        for n, empty in enumerate((lambda: db.delete_range(b"b", b"b", sync=True), lambda: write_nothing(db))):
            db.put(b"a%d" % n, b"1")
            assert db._engine.log.synced < db._engine.log.size
            empty()
            assert db._engine.log.synced == db._engine.log.size


def write_nothing(db):
    with db.write_batch(sync=True):
        pass


def test_writes_beyond_the_last_sequence_number_are_refused(path):
    path.mkdir()
    with lsmkv.SSTWriter(path / "000005.sst") as table:
        table.put(b"a", b"1", seq=(1 << 62) - 3)
    lsmkv.repair(path)
    written = {b"a": b"1"}
    db = lsmkv.open(path)
    for n in range(6):
        with pytest.raises(lsmkv.ReadOnlyError, match="sequence numbers"):
            db[b"%d" % n] = b"2"
            written[b"%d" % n] = b"2"
    assert dict(db.items()) == written
    db._shut(flush=False)
    with lsmkv.open(path) as db:
        assert dict(db.items()) == written
    with lsmkv.open(path, "r") as db:
        assert dict(db.items()) == written


def test_a_write_that_was_not_logged_never_becomes_visible(path):
    """Not even together with the next one, which gets its sequence number."""
    with lsmkv.open(path, wal="write") as db:
        db[b"a"] = b"1"
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (db._engine.logs[-1].size, hard))
        try:
            with pytest.raises(lsmkv.IOError):
                db[b"lost"] = b"x"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        db[b"b"] = b"2"
        assert dict(db) == {b"a": b"1", b"b": b"2"}
        assert b"lost" not in db
    with lsmkv.open(path) as db:
        assert dict(db) == {b"a": b"1", b"b": b"2"}

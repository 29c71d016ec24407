"""The database as its users see it."""

import fcntl
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest

import lsmkv
from lsmkv import filenames, log_supply
from lsmkv.recovery import open_reader
from lsmkv.compaction import subcompaction
from lsmkv.lockfile import is_locked

TINY = {
    "write_buffer_size": 8192,
    "target_file_size": 8192,
    "l0_compaction_trigger": 2,
    "level_size_ratio": 4,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with lsmkv.open(path) as db:
        yield db


def fill(db, n=500, size=100, prefix=b"key"):
    for i in range(n):
        db[prefix + b"%06d" % i] = (b"%06d" % i) * (size // 6)


def keep_still(db):
    """No compaction by itself: what is asserted about the tree must not change meanwhile."""
    db._scheduler.claims.suspended += 1


def names(path):
    return sorted(os.listdir(path))


# Mapping


def test_mapping_protocol(db):
    db[b"a"] = b"1"
    db.update({b"b": b"2", b"c": b"3"})
    assert db[b"a"] == b"1"
    assert b"b" in db and b"x" not in db
    assert list(db) == [b"a", b"b", b"c"]
    assert list(reversed(db)) == [b"c", b"b", b"a"]
    assert len(db) == 3 and db
    assert db.pop(b"b") == b"2"
    assert db.setdefault(b"d", b"4") == b"4"
    assert db.popitem() == (b"a", b"1")
    with pytest.raises(KeyError):
        db[b"a"]
    with pytest.raises(KeyError):
        del db[b"a"]
    assert db.get(b"a", b"?") == b"?"
    db.clear()
    assert len(db) == 0 and not db
    db.clear()


def test_clear_reaches_the_longest_key(db):
    longest = b"\xff" * 65535
    db[longest] = b"1"
    db[b""] = b"2"
    db.clear()
    assert list(db) == []


def test_a_handle_equals_itself_alone(db, tmp_path):
    with lsmkv.open(tmp_path / "other") as other:
        assert db == db
        assert db != other
        assert db != {}
        assert len({db, other}) == 2


def test_views_are_ordered_and_start_over(db):
    fill(db, 20)
    items = db.items(b"key000005", b"key000008")
    expected = [b"key000005", b"key000006", b"key000007"]
    assert [key for key, _ in items] == expected
    assert [key for key, _ in items] == expected
    assert [key for key, _ in reversed(items)] == expected[::-1]
    assert len(items) == 3
    assert (b"key000005", db[b"key000005"]) in items
    assert (b"key000004", db[b"key000004"]) not in items
    keys = db.keys(prefix=b"key00001")
    assert len(keys) == 10 and b"key000010" in keys and b"key000009" not in keys
    assert keys & {b"key000010", b"zzz"} == {b"key000010"}
    assert db[b"key000003"] in db.values()
    assert list(db.values(b"key000003", b"key000004")) == [db[b"key000003"]]
    assert not db.keys(b"x", b"y")


def test_views_answered_no_for_keys_that_are_not_bytes_themselves(db):
    """`memoryview(b"a") in db` was true and `memoryview(b"a") in db.keys()` false; a bound of 3 was three zeros."""
    db[b"a"] = b"1"
    for key in (bytearray(b"a"), memoryview(b"a")):
        assert key in db and key in db.keys(b"") and (key, b"1") in db.items()
        assert b"a" in db.keys(start=key) and b"a" in db.keys(prefix=key) and b"a" not in db.keys(stop=key)
    for wrong in (3, None):
        with pytest.raises(TypeError):
            assert wrong in db.keys(b"")
    with pytest.raises(TypeError):
        assert b"a" in db.keys(3)


@pytest.mark.parametrize("key", ["text", None, 3, 2.5, ["a"]])
def test_keys_are_bytes(db, key):
    for call in (db.get, db.delete, db.__getitem__, lambda k: db.put(k, b""), lambda k: db.put(b"", k)):
        with pytest.raises(TypeError):
            call(key)


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.get("text"),
        lambda db: "text" in db,
        lambda db: db.put("text", b""),
        lambda db: db.put(b"", "text"),
        lambda db: db.delete("text"),
        lambda db: db.delete_range("text", b"z"),
        lambda db: db.multi_get(["text"]),
        lambda db: db.explain("text"),
        lambda db: list(db.items("text")),
        lambda db: db.cursor().seek("text"),
        lambda db: db.approximate_size("text"),
        lambda db: db.prefixed_db("text"),
        lambda db: "text" in db.keys(b""),
        lambda db: ("text", b"") in db.items(),
        lambda db: b"" in db.keys("text"),
    ],
)
def test_a_text_key_is_told_to_be_encoded(db, call):
    with pytest.raises(TypeError, match="bytes, not str: encode it first"):
        call(db)


def test_bytes_like_keys_and_values(db):
    db.put(bytearray(b"a"), memoryview(b"1"))
    assert db.get(memoryview(b"a")) == b"1"
    assert bytearray(b"a") in db


def test_limits_say_what_is_allowed(db):
    db[b"k" * 65535] = b""
    with pytest.raises(ValueError, match="65535"):
        db[b"k" * 65536] = b""
    with pytest.raises(ValueError, match="65535"):
        db.delete_range(b"", b"k" * 65536)


def test_a_range_that_ends_before_it_starts_deletes_nothing(db):
    fill(db, 3)
    db.delete_range(b"z", b"a")
    db.delete_range(b"key000001", b"key000001")
    with db.write_batch() as batch:
        batch.delete_range(b"z", b"a")
    assert len(db) == 3


@pytest.mark.parametrize(("level", "error"), [(-1, ValueError), (7, ValueError), ("a", TypeError)])
def test_rebuild_filters_took_levels_that_do_not_exist(db, level, error):
    with pytest.raises(error, match=r"level|integer"):
        db.rebuild_filters(level)


# Durability


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
def test_a_synced_write_without_a_log_returned_and_was_not_durable(path, write):
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
        assert db._active.empty


@pytest.mark.parametrize("options", [{"sync": True}, {"sync_interval_ms": 5}])
def test_syncing_by_default_needs_a_log(path, options):
    with pytest.raises(lsmkv.OptionError, match="need a log"):
        lsmkv.open(path, wal=None, **options)
    with lsmkv.open(path, wal=None) as db, pytest.raises(lsmkv.OptionError, match="need a log"):
        db.set_options(sync_interval_ms=5)


def test_an_interval_syncs_in_the_background(path):
    with lsmkv.open(path, sync_interval_ms=5) as db:
        db[b"a"] = b"1"
        log = db._log
        deadline = time.monotonic() + 20
        while log.synced < log.size and time.monotonic() < deadline:
            time.sleep(0.005)
        assert log.synced == log.size


# Files


def test_files_are_private_and_only_ours(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db)
        db.flush()
        assert os.stat(path).st_mode & 0o777 == 0o700
        for name in names(path):
            assert filenames.parse(name) is not None
            if not name.endswith(".tmp"):  # a log that is being made ahead gets its name meanwhile
                assert os.stat(path / name).st_mode & 0o777 == 0o600


def test_standard_streams_are_never_taken(tmp_path):
    code = f"""
import os, sys
for fd in (0, 1, 2):
    os.close(fd)
import lsmkv
db = lsmkv.open({str(tmp_path / "db")!r}, write_buffer_size=8192)
for i in range(500):
    db[b"%d" % i] = b"x" * 100
db.flush()
taken = []
for fd in (0, 1, 2):
    try:
        taken.append(os.readlink(f"/proc/self/fd/{{fd}}"))
    except OSError:
        pass
db.close()
os._exit(1 if any("db" in name for name in taken) else 0)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_strangers_in_the_folder_are_left_alone(path):
    lsmkv.open(path).close()
    (path / "notes.txt").write_text("mine")
    (path / "000099.sst").symlink_to(path / "notes.txt")
    lsmkv.open(path).close()
    lsmkv.destroy(path)
    assert names(path) == ["000099.sst", "notes.txt"]


def test_orphans_go_only_after_recovery_succeeded(path):
    with lsmkv.open(path) as db:
        fill(db)
    (path / "000099.sst").write_bytes(b"left behind")
    manifest = next(p for p in path.iterdir() if p.name.startswith("MANIFEST"))
    good = manifest.read_bytes()
    manifest.write_bytes(good[:-20])
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    with pytest.raises(lsmkv.CorruptionError, match="MANIFEST"):
        lsmkv.open(path)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    manifest.write_bytes(good)
    with lsmkv.open(path) as db:
        assert "000099.sst" in db.recovery_report.orphans_removed
        assert len(db) == 500
    assert not (path / "000099.sst").exists()


def test_missing_files_are_refused(path):
    with lsmkv.open(path) as db:
        fill(db)
    for pattern, message in (("*.sst", "table of the manifest is missing"), ("*.wal", "log of the manifest")):
        victim = next(path.glob(pattern))
        data = victim.read_bytes()
        victim.unlink()
        with pytest.raises(lsmkv.CorruptionError, match=message):
            lsmkv.open(path)
        victim.write_bytes(data)
    (path / "CURRENT").unlink()
    with pytest.raises(lsmkv.CorruptionError, match="CURRENT is missing"):
        lsmkv.open(path)


def test_a_creation_that_was_cut_short_is_finished(path):
    lsmkv.open(path).close()
    for p in path.iterdir():
        if not p.name.startswith("MANIFEST"):
            p.unlink()
    with lsmkv.open(path) as db:
        assert db.recovery_report.created


# Flags


@pytest.mark.parametrize("call", [lsmkv.open, lsmkv.destroy, lsmkv.repair, lsmkv.verify])
def test_an_empty_path_was_the_current_folder(tmp_path, monkeypatch, call):
    lsmkv.open(tmp_path).close()
    before = names(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lsmkv.IOError, match="empty"):
        call("")
    assert names(tmp_path) == before


def test_flags(path):
    for flag in "rw":
        with pytest.raises(lsmkv.IOError) as raised:
            lsmkv.open(path, flag)
        assert isinstance(raised.value, FileNotFoundError) or raised.value.errno == 2
    assert not path.exists()
    with lsmkv.open(path, "c") as db:
        db[b"a"] = b"1"
    with lsmkv.open(path, "w") as db:
        assert db[b"a"] == b"1"
    with lsmkv.open(path, "r") as db:
        assert db.readonly
        with pytest.raises(lsmkv.ReadOnlyError):
            db[b"b"] = b"2"
        with pytest.raises(lsmkv.ReadOnlyError):
            db.flush()
    with lsmkv.open(path, "n") as db:
        assert len(db) == 0
    with pytest.raises(lsmkv.OptionError):
        lsmkv.open(path, "x")


def test_options_are_checked_at_open(path):
    with pytest.raises(lsmkv.OptionError, match="block_size"):
        lsmkv.open(path, blocksize=1)
    assert not path.exists()


# One writer


def test_one_writer_per_process(path, tmp_path):
    with lsmkv.open(path):
        link = tmp_path / "link"
        link.symlink_to(path)
        for other in (path, link, str(path) + "/"):
            with pytest.raises(lsmkv.LockError, match="this process"):
                lsmkv.open(other)
    lsmkv.open(path).close()


def run_elsewhere(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def locked_elsewhere(path):
    """Whether another process is refused because of the lock."""
    code = f"""
import lsmkv
try:
    lsmkv.open({str(path)!r})
except lsmkv.LockError as error:
    assert isinstance(error, OSError)
    print("locked")
"""
    return run_elsewhere(code) == "locked\n"


def test_one_writer_across_processes(path):
    with lsmkv.open(path):
        assert locked_elsewhere(path)


def destroy_before_flock(path, monkeypatch):
    """Another process destroys the database between the open of LOCK and its flock."""
    real = fcntl.flock

    def flock(fd, operation):
        monkeypatch.setattr(fcntl, "flock", real)
        run_elsewhere(f"import lsmkv; lsmkv.destroy({str(path)!r})")
        real(fd, operation)

    lsmkv.open(path).close()
    (path / "notes").write_text("keeps the folder")
    monkeypatch.setattr(fcntl, "flock", flock)


def test_an_open_beside_a_destroy_held_a_lock_that_nobody_else_saw(path, monkeypatch):
    destroy_before_flock(path, monkeypatch)
    with lsmkv.open(path) as db:
        db[b"a"] = b"1"
        assert locked_elsewhere(path)


def test_an_open_of_what_is_there_beside_a_destroy_made_a_new_database(path, monkeypatch):
    destroy_before_flock(path, monkeypatch)
    with pytest.raises(lsmkv.IOError, match="there is no database"):
        lsmkv.open(path, "w")
    assert names(path) == ["LOCK", "notes"]


def test_a_look_whether_the_database_is_locked_keeps_no_writer_out(path, monkeypatch):
    with lsmkv.open(path):
        assert is_locked(path)
    real, opened = os.close, []

    def open_first(fd):
        """In the middle of is_locked, which has its descriptor still open."""
        monkeypatch.setattr(os, "close", real)
        lsmkv.open(path).close()
        opened.append(True)
        real(fd)

    monkeypatch.setattr(os, "close", open_first)
    assert not is_locked(path)
    assert opened


def test_a_failed_open_gives_the_lock_back(path):
    with lsmkv.open(path) as db:
        fill(db)
    current = (path / "CURRENT").read_bytes()
    (path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(path)
    (path / "CURRENT").write_bytes(current)
    lsmkv.open(path).close()


# Life cycle


def test_close_is_final_and_idempotent(path):
    db = lsmkv.open(path)
    fill(db, 50)
    snapshot, cursor, iterator, batch = db.snapshot(), db.cursor(), db.iterator(), db.write_batch()
    next(iterator)
    db.close()
    db.close()
    assert db.closed
    batch.put(b"a", b"1")
    for call in (
        lambda: db.get(b"a"),
        lambda: db.put(b"a", b"b"),
        lambda: list(db),
        lambda: db.flush(),
        lambda: db.stats(),
        lambda: snapshot.get(b"a"),
        lambda: cursor.seek(b"a"),
        lambda: next(iterator),
        lambda: batch.write(),
        lambda: db.__enter__(),
    ):
        with pytest.raises(lsmkv.ClosedError):
            call()


def test_a_database_that_nobody_holds_closes_itself(path):
    db = lsmkv.open(path)
    fill(db)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del db
        gc.collect()
    assert any(issubclass(w.category, ResourceWarning) for w in caught)
    with lsmkv.open(path) as db:
        assert len(db) == 500


@pytest.mark.parametrize(
    "holder", ["snapshot()", "prefixed_db(b'').snapshot()", "iterator()", "cursor()", "write_batch()"]
)
def test_letting_go_of_the_last_thing_made_from_a_database_crashed(path, holder):
    """A snapshot that went was still among the children when the database, which it alone held, closed itself."""
    code = f"""
import lsmkv
for i in range(20):
    db = lsmkv.open({str(path)!r})
    db[b"%d" % i] = b"x"
    holder = db.{holder}
    del db
    del holder
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with lsmkv.open(path) as db:
        assert len(db) == 20


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_closing_made_a_log_only_to_delete_it(path, wal, monkeypatch):
    made = []
    new_log = log_supply.new_log
    monkeypatch.setattr(log_supply, "new_log", lambda *arguments: made.append(arguments) or new_log(*arguments))
    db = lsmkv.open(path, wal=wal)
    db[b"key"] = b"value"
    flush = db._jobs.flush

    def slow_flush(*arguments):
        time.sleep(0.1)  # in which the thread that makes logs ahead would make one
        return flush(*arguments)

    monkeypatch.setattr(db._jobs, "flush", slow_flush)
    db.close()
    assert len(made) == 1  # the one that the next open finds


def test_threads_end_with_the_database(path):
    before = set(threading.enumerate())
    db = lsmkv.open(path, max_background_jobs=4, stats_export=True)
    assert len(set(threading.enumerate()) - before) >= 4
    db.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("make", ["iterator", "cursor", "snapshot"])
def test_an_iterator_that_no_database_made_crashed(db, make):
    made = type(getattr(db, make)())
    for call in ["next", "prev", "seek", "seek_to_first", "seek_to_start", "key", "get", "take", "skip", "__enter__"]:
        if hasattr(made, call):
            arguments = {"seek": [b"a"], "get": [b"a"], "take": [1], "skip": [1]}.get(call, [])
            with pytest.raises(lsmkv.ClosedError):
                getattr(made.__new__(made), call)(*arguments)
    made.__new__(made).close()


def test_every_compaction_that_nobody_waited_for_was_remembered(db):
    known = len(db._scheduler._threads)
    for _ in range(10):
        db.compact_range(wait=False)
        while [thread for thread in threading.enumerate() if thread.name == "lsmkv-compact-range"]:
            time.sleep(0.001)
    assert len(db._scheduler._threads) <= known + 1


def allow_threads(monkeypatch, count):
    """After `count` threads no more can be had: a limit of the system, or an interpreter that ends."""
    start, left = threading.Thread.start, iter(range(count))

    def start_or_not(thread):
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)


@pytest.mark.parametrize("count", range(4))
def test_an_open_without_its_threads_fails_and_leaves_nothing_running(path, monkeypatch, count):
    with lsmkv.open(path) as db:
        fill(db, 50)
    before = set(threading.enumerate())
    with monkeypatch.context() as few:
        allow_threads(few, count)
        with pytest.raises(RuntimeError, match="can't start") as caught:
            lsmkv.open(path, max_background_jobs=4)
    assert set(threading.enumerate()) <= before
    with lsmkv.open(path) as db:  # while the error still refers to the first one
        assert len(db) == 50
    del caught


def test_work_by_hand_is_done_also_where_no_thread_can_be_had(path, monkeypatch):
    with lsmkv.open(path, bits_per_key=8, max_background_jobs=4) as db:
        allow_threads(monkeypatch, 0)
        monkeypatch.setattr(subcompaction, "PART_BYTES", 1)
        for _ in range(2):  # one table alone would be moved, not cut
            fill(db, 1000)
            db.flush()
        db.compact_range()
        tables = db.stats().total.files
        assert tables > 1
        db.set_options(bits_per_key=16)
        assert db.rebuild_filters() == tables
        with pytest.raises(RuntimeError, match="can't start"):
            db.compact_range(wait=False)
    assert lsmkv.verify(path)


@pytest.mark.parametrize(
    "ending",
    ["pass", "raise SystemExit(3)", "1 / 0", "cycle = []; cycle.append((cycle, db)); del db, cycle"],
)
def test_interpreter_exit_with_an_open_database(path, ending):
    code = f"""
import lsmkv
db = lsmkv.open({str(path)!r}, write_buffer_size=65536)
it = iter(db.items())
for i in range(2000):
    db[b"%d" % i] = b"x" * 100
{ending}
"""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == {"raise SystemExit(3)": 3, "1 / 0": 1}.get(ending, 0), done.stderr
    assert time.monotonic() - began < 30
    with lsmkv.open(path) as db:
        assert len(db) == 2000


def test_fork_leaves_the_parent_alone(path):
    db = lsmkv.open(path)
    fill(db, 50)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                db.get(b"key000001")
            except lsmkv.ForkError:
                db.close()
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    db[b"after"] = b"1"
    with pytest.raises(lsmkv.LockError):
        lsmkv.open(path)
    db.close()
    with lsmkv.open(path) as again:
        assert len(again) == 51


# Compaction


def test_compaction_drops_what_is_deleted_and_reports_progress(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 1000)
        for i in range(0, 1000, 2):
            del db[b"key%06d" % i]
        db.delete_range(b"key000500", b"key000600")
        seen = []
        db.compact_range(progress=lambda done, total: seen.append((done, total)))
        assert seen and seen[-1][0] == seen[-1][1]
        assert all(a <= b for (a, _), (b, _) in itertools.pairwise(seen))
        version = db._versions.current
        assert sum(f.deletes + f.range_tombstones for f in version.files()) == 0
        assert sum(f.entries for f in version.files()) == len(db) == 450
        assert not version.levels[0]


def test_compact_range_leaves_other_ranges(path):
    with lsmkv.open(path) as db:
        keep_still(db)
        for prefix in (b"a", b"m", b"z"):
            fill(db, 50, prefix=prefix)
            db.flush()
        db.compact_range(b"m", b"n")
        version = db._versions.current
        assert [f.smallest[:1] for f in version.levels[0]] == [b"z", b"a"]
        assert [f.smallest[:1] for f in version.levels[1]] == [b"m"]


def test_compact_in_the_background(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 500)
        db.compact_range(wait=False)
        deadline = time.monotonic() + 30
        while db._versions.current.levels[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not db._versions.current.levels[0]


def test_sequential_data_moves_down_without_being_rewritten(path):
    with lsmkv.open(path, write_buffer_size=16384, l0_compaction_trigger=2) as db:
        fill(db, 3000)
        db.flush()
        db._scheduler.wait_idle()
        assert db.background.moves > 0
        assert db.background.compactions == 0


def test_levels_fill_and_stay_in_shape(path):
    options = {**TINY, "compression": None}
    with lsmkv.open(path, **options) as db:
        for i in range(20000):
            db[b"%08d" % (i * 7919 % 20011)] = b"v" * 60
        db.flush()
        db._scheduler.wait_idle()
        version = db._versions.current
        assert version.last_level >= 2
        assert version.total_bytes < 1.6 * version.sizes[version.last_level]
        assert db.background.shifts > 0
        assert len(db) == 20000


def test_a_reader_keeps_the_files_it_reads(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 1000)
        db.flush()
        db._scheduler.wait_idle()
        iterator = iter(db.items())
        first = next(iterator)
        snapshot = db.snapshot()
        fill(db, 1000, size=50)
        db.compact_range()
        db._scheduler.wait_idle()
        held = {p for p in names(path) if p.endswith(".sst")}
        live = {filenames.table_name(f.number) for f in db._versions.current.files()}
        assert held > live
        assert len([first, *iterator]) == 1000
        assert len(snapshot[b"key000007"]) == 96
        snapshot.close()
        del iterator
        db._versions.collect_garbage()
        assert {p for p in names(path) if p.endswith(".sst")} == live


def test_back_pressure_is_counted(path):
    with lsmkv.open(
        path, write_buffer_size=4096, max_write_buffers=2, l0_compaction_trigger=1, l0_slowdown_trigger=1
    ) as db:
        fill(db, 2000)
        stalls = db.stats().stalls
        assert stalls.stops > 0
        assert stalls.stop_seconds > 0


def test_many_short_opens_piled_up_l0_without_end(path):
    """The stop was not looked at when the database was opened, and each close ended the compaction under way."""
    lax = {"l0_compaction_trigger": 50, "l0_slowdown_trigger": 50, "l0_stop_trigger": 50}
    with lsmkv.open(path, **lax) as db:
        keep_still(db)
        for n in range(6):
            db.put(b"%d" % n, b"")
            db.flush()
    with lsmkv.open(path, l0_compaction_trigger=3, l0_slowdown_trigger=4, l0_stop_trigger=5) as db:
        assert db.stats().stalls.stops == 1
        db.put(b"k", b"v")
        assert len(db._versions.current.levels[0]) < 5


# Options on an open database


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory")
def test_a_scan_of_everything_needs_no_more_memory_than_one_of_a_part(path):
    with lsmkv.open(path, write_buffer_size=4 << 20, compression=None) as db:
        for i in range(60_000):
            db[b"%08d" % i] = b"%08d" % i * 128
    code = f"""
import sys
import lsmkv
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
with lsmkv.open({str(path)!r}, "r", block_cache_size=1 << 20) as db:
    steps = iter(db.items())
    for _ in range(10_000):
        next(steps)
    before, most = resident(), 0
    for n, _ in enumerate(steps):
        if n % 1000 == 0:
            most = max(most, resident())
    assert n == 49_999
    print(most - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 4096  # KiB, of 50 MiB that were read


def test_indexes_and_filters_are_charged_to_the_cache_if_told_so(path):
    for charged in (False, True):
        with lsmkv.open(path, "n", cache_index_and_filter_blocks=charged, bits_per_key=20) as db:
            fill(db, 2000)
            db.flush()
            (table,) = db._versions.tables.values()
            filter_bytes = table.filter_info["bytes"]
            assert filter_bytes > 2000
            assert (db.stats().cache.used >= filter_bytes) == charged
            assert db[b"key000007"]
            tables = weakref.ref(table)
            del table
            db.compact_range()
            db.delete_range(b"", b"z")
            db.compact_range()
            assert tables() is None and db.stats().cache.used == 0


def test_compression_is_chosen_per_level(path):
    with lsmkv.open(path, compression=[None, "lz4"]) as db:
        keep_still(db)
        fill(db, 2000)
        db.flush()
        (flushed,) = db._versions.tables.values()
        plain = flushed.properties["data_bytes"]
        db.compact_range()  # nothing is in the way, but a move would leave it as it is
        (packed,) = db._versions.tables.values()
        assert packed.properties["data_bytes"] < plain / 2


def test_set_options_takes_effect_on_new_tables(path):
    with lsmkv.open(path) as db:
        keep_still(db)
        fill(db, 100)
        db.flush()
        db.set_options(bits_per_key=20, block_cache_size=1 << 20)
        fill(db, 100)
        db.flush()
        assert [f.millibits for f in db._versions.current.levels[0]] == [20000, 10000]
        with pytest.raises(lsmkv.OptionError, match="wal"):
            db.set_options(wal=None)
        assert lsmkv.Options.decode((path / "OPTIONS").read_bytes()).bits_per_key == 20.0


def test_rebuild_filters(path):
    with lsmkv.open(path, bits_per_key=6) as db:
        fill(db, 2000)
        db.flush()
        before = list(db.items())
        db.set_options(bits_per_key=14)
        assert list(db.filter_debt().values()) == ["bits"]
        assert db.rebuild_filters() == 1
        assert db.filter_debt() == {}
        (f,) = db._versions.current.files()
        assert f.millibits == 14000
        assert list(db.items()) == before
        assert db.rebuild_filters() == 0
    assert lsmkv.verify(path)


def test_filter_debt_is_paid_in_the_background(path):
    with lsmkv.open(path, bits_per_key=6, filter_debt_ratio=0.1) as db:
        fill(db, 2000)
        db.flush()
        db.set_options(bits_per_key=14)
        db._scheduler.wait_idle()
        assert db.filter_debt() == {}
        assert db.background.filter_rebuilds == 1


def test_of_two_changes_of_options_at_once_one_was_lost(db):
    changes = [{"bits_per_key": 12}, {"l0_compaction_trigger": 7}]
    threads = [threading.Thread(target=db.set_options, kwargs=change) for change in changes]
    with db._versions.commit:
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert (db.options.bits_per_key, db.options.l0_compaction_trigger) == (12, 7)


# Seeing


def test_approximations(db):
    fill(db, 2000)
    db.flush()
    whole = db.approximate_size()
    half = db.approximate_size(b"key", b"key001000")
    assert 0.4 * whole < half < 0.6 * whole
    assert db.approximate_size(b"x", b"z") == 0
    assert db.approximate_len() == 2000


def test_properties(db):
    fill(db, 100)
    db.flush()
    assert db.property("lsmkv.num-files-at-level0") == "1"
    assert db.property("lsmkv.num-files-at-level9") is None
    assert db.property("no.such.thing") is None
    from lsmkv.stats.introspect import PROPERTIES

    for name in PROPERTIES:
        assert db.property(name)
    with pytest.raises(TypeError, match="a property's name is a str, not bytes"):
        db.property(b"lsmkv.levels")


def test_explain(db):
    fill(db, 100)
    db.flush()
    found = db.explain(b"key000050")
    assert found.found
    assert found.steps[-1].result == "found" and found.steps[-1].filter == "maybe"
    assert "L0" in str(found)
    assert found.to_dict()["ns"] == found.ns
    assert not db.explain(b"key0000505").found


def test_stats_follow_the_work_and_can_be_reset(db):
    fill(db, 100)
    db.flush()
    db.get(b"key000001")
    stats = db.stats()
    assert stats.writes.puts == 100
    assert stats.reads.gets == 1
    assert stats.flush.count == 1
    assert stats.total.files == 1
    db.reset_stats()
    stats = db.stats()
    assert stats.writes.puts == stats.reads.gets == stats.flush.count == 0
    assert stats.total.files == 1


def test_deletes_in_a_batch_were_counted_as_puts(db):
    with db.write_batch() as batch:
        batch.put(b"a", b"1")
        batch.delete(b"a")
        other = db.write_batch()
        other.delete_range(b"a", b"c")
        batch.append(other)
    db.delete_range(b"a", b"b")
    writes = db.stats().writes
    assert (writes.puts, writes.deletes, writes.batches) == (1, 3, 2)


def test_stats_export(path):
    import json

    with lsmkv.open(path, stats_export=True) as db:
        fill(db, 10)
        deadline = time.monotonic() + 30
        while not (path / "STATS").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert json.loads((path / "STATS").read_bytes())["pid"] == os.getpid()


# Snapshots and prefixes


def test_snapshot_is_a_mapping_of_one_moment(db):
    fill(db, 10)
    with db.snapshot() as snapshot:
        db[b"new"] = b"1"
        del db[b"key000001"]
        assert len(snapshot) == 10 and b"new" not in snapshot and b"key000001" in snapshot
        assert list(snapshot) == [b"key%06d" % i for i in range(10)]
        assert snapshot.multi_get([b"new", b"key000001"])[0] is None
        assert dict(snapshot.items()) == {key: snapshot[key] for key in snapshot}
        assert snapshot.get(b"new", b"?") == b"?"
        assert next(iter(snapshot.keys(prefix=b"key", reverse=True))) == b"key000009"
    with pytest.raises(lsmkv.ClosedError):
        snapshot.get(b"a")


def test_prefixed_db(db):
    db[b"other"] = b"1"
    users = db.prefixed_db(b"user:")
    users[b"ada"] = b"1815"
    users[b"alan"] = b"1912"
    assert db[b"user:ada"] == b"1815"
    assert dict(users.items()) == {b"ada": b"1815", b"alan": b"1912"}
    assert len(users) == 2 and b"ada" in users and b"other" not in users
    assert users.multi_get([b"alan", b"x"]) == [b"1912", None]
    assert list(users.keys(reverse=True)) == [b"alan", b"ada"]
    nested = users.prefixed_db(b"al")
    assert list(nested.items()) == [(b"an", b"1912")]
    frozen = users.snapshot()
    with users.write_batch() as batch:
        batch.put(b"grace", b"1906")
        batch.delete(b"ada")
    assert list(users) == [b"alan", b"grace"]
    assert list(frozen) == [b"ada", b"alan"]
    iterator = users.iterator(include_value=False)
    iterator.seek(b"b")
    assert next(iterator) == b"grace"
    assert iterator.prev() == b"grace"
    with pytest.raises(KeyError):
        users[b"ada"]
    users.clear()
    assert list(db) == [b"other"]
    with pytest.raises(TypeError):
        users["ada"]


@pytest.mark.parametrize(
    "write",
    [
        lambda view: view.put(b"k", b"v"),
        lambda view: view.delete(b"k"),
        lambda view: view.delete_range(b"a", b"z"),
        lambda view: view.__setitem__(b"k", b"v"),
        lambda view: view.__delitem__(b"k"),
        lambda view: view.clear(),
        lambda view: view.write_batch(),
    ],
)
def test_a_prefix_of_a_snapshot_refused_a_write_with_an_attribute_error(db, write):
    with pytest.raises(lsmkv.ReadOnlyError, match="snapshot"):
        write(db.prefixed_db(b"a").snapshot())
    with pytest.raises(lsmkv.ReadOnlyError, match="snapshot"):
        write(db.snapshot().prefixed_db(b"\xff"))


def test_a_prefix_without_an_end_could_not_be_cleared(db):
    db[b"\xfe"] = b"stays"
    last = db.prefixed_db(b"\xff\xff")
    last.clear()
    last[b"\xff" * 65533] = b"1"
    last[b""] = b"2"
    last.clear()
    assert list(db) == [b"\xfe"]


def test_a_snapshot_below_a_prefix_could_not_be_closed(db):
    users = db.prefixed_db(b"user:")
    users[b"ada"] = b"1"
    with users.snapshot() as frozen:
        users[b"ada"] = b"2"
        assert frozen[b"ada"] == b"1" and not frozen.closed
    assert frozen.closed
    with pytest.raises(lsmkv.ClosedError):
        frozen[b"ada"]


def test_a_batch_below_a_prefix_has_what_a_batch_has(db):
    batch = db.prefixed_db(b"user:").write_batch()
    batch[b"ada"] = b"1"
    batch[b"alan"] = b"2"
    del batch[b"ada"]
    assert len(batch) == 3 and batch.size_bytes > 0
    batch.write(sync=True)
    assert dict(db) == {b"user:alan": b"2"}
    assert db.stats().log.syncs == 1


def test_batches_below_prefixes_can_be_appended(db):
    one, other = (db.prefixed_db(prefix).write_batch() for prefix in (b"a:", b"b:"))
    one.put(b"k", b"1")
    other.put(b"k", b"2")
    one.append(other)
    one.write()
    assert dict(db) == {b"a:k": b"1", b"b:k": b"2"}
    with pytest.raises(TypeError, match="prefix"):
        one.append(db.write_batch())


def test_a_number_passed_for_a_key_of_zeros_below_a_prefix(db):
    """`bytes(5)` is five zeros."""
    with pytest.raises(TypeError):
        db.prefixed_db(b"p").iterator().seek(5)


def test_a_table_without_keys_owes_no_filter(path):
    with lsmkv.open(path, bits_per_key=10) as db:
        keep_still(db)
        db.delete_range(b"a", b"z")
        db.flush()
        assert [f.entries for f in db._versions.current.levels[0]] == [0]
        assert list(db.filter_debt().values()) == ["absent"]
        assert db._filters.payable() == {}
        assert db.rebuild_filters() == 0


def test_a_table_with_many_wasted_reads_is_merged(path):
    options = {"bits_per_key": 0, "l0_compaction_trigger": 4, "row_cache_size": 0}
    with lsmkv.open(path, **options) as db:
        for half in (0, 1):
            for i in range(half, 200, 2):
                db[b"%06d" % i] = b"v"
            db.flush()
        for i in range(0, 200, 2):
            for _ in range(15):
                assert db.get(b"%06d" % i) == b"v"
        db._scheduler.wake()
        db._scheduler.wait_idle()
        assert db.background.reasons["seeks"] == 1
        assert not db._versions.current.levels[0]


def test_a_walk_keeps_its_database_open(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for i in range(2000):
            db.put(b"%04d" % i, b"v")
    assert [k for k, _ in lsmkv.open(tmp_path / "db").items()] == [b"%04d" % i for i in range(2000)]
    cursor = lsmkv.open(tmp_path / "db").cursor()
    assert cursor.seek(b"0007") and cursor.key() == b"0007"
    del cursor
    with lsmkv.open(tmp_path / "db") as db:  # nobody holds the lock any more
        assert len(db) == 2000


def test_a_sync_asked_of_an_empty_write_covers_what_came_before(tmp_path):
    """Found by a power cut: an empty range tombstone with sync=True was acknowledged, the writes before it were lost."""
    with lsmkv.open(tmp_path / "db") as db:
        for n, empty in enumerate((lambda: db.delete_range(b"b", b"b", sync=True), lambda: write_nothing(db))):
            db.put(b"a%d" % n, b"1")
            assert db._log.synced < db._log.size
            empty()
            assert db._log.synced == db._log.size


def write_nothing(db):
    with db.write_batch(sync=True):
        pass


# Back pressure


def test_a_large_write_that_was_slowed_down_slept_on_after_a_close(path):
    db = lsmkv.open(path)
    db._set_delay(500_000)  # per KiB: sixteen seconds
    refused = []

    def write():
        try:
            db.put(b"key", bytes(32 << 20))
        except lsmkv.ClosedError as error:
            refused.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    time.sleep(0.05)
    db.close()
    thread.join(5)
    assert refused


# Refresh


def hold_first_refresh(monkeypatch):
    """The first read of the files comes back only after `go_on` is set, or after a while."""
    read, has_read, go_on = open_reader.open_for_reading, threading.Event(), threading.Event()

    def slow_read(*arguments):
        found = read(*arguments)
        if not has_read.is_set():
            has_read.set()
            go_on.wait(0.5)
        return found

    monkeypatch.setattr(open_reader, "open_for_reading", slow_read)
    return has_read, go_on


def test_of_two_refreshes_at_once_the_older_could_win(db, path, monkeypatch):
    with lsmkv.open(path, "r") as reader:
        has_read, go_on = hold_first_refresh(monkeypatch)
        first = threading.Thread(target=reader.refresh)
        first.start()
        has_read.wait()
        db[b"key"] = b"value"

        def second_refresh():
            reader.refresh()
            go_on.set()

        second = threading.Thread(target=second_refresh)
        second.start()
        first.join()
        second.join()
        assert reader.get(b"key") == b"value"


def test_a_refresh_brought_tables_into_a_handle_that_was_closed_meanwhile(db, path, monkeypatch):
    fill(db, 50)
    db.flush()
    reader = lsmkv.open(path, "r")
    has_read, go_on = hold_first_refresh(monkeypatch)
    thread = threading.Thread(target=reader.refresh)
    thread.start()
    has_read.wait()
    reader.close()
    go_on.set()
    thread.join()
    assert reader._read_state is None
    assert not reader._versions.tables


# The end of the sequence numbers


def test_writes_beyond_the_last_sequence_number_were_dropped_at_the_next_open(path):
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


# Arguments that another thread changes while a call waits


def start_and_hold(db, work):
    """Runs `work`, which writes, in a thread that waits as for an L0 that is too full."""
    db._set_stopped(True)
    thread = threading.Thread(target=work)
    thread.start()
    while not db.counters()["stops"]:
        time.sleep(0.001)
    return thread


def let_go(db, thread):
    db._set_stopped(False)
    thread.join()


def test_a_batch_that_was_filled_while_it_was_written_crashed(db):
    batch = db.write_batch()
    batch.put(b"a", b"1")
    other = db.write_batch()
    other.put(b"b", b"2")
    thread = start_and_hold(db, lambda: db.write(batch))
    for change in [
        lambda: batch.put(b"large", bytes(1 << 20)),
        lambda: batch.put(bytearray(b"large"), bytes(1 << 20)),
        lambda: batch.delete(b"a"),
        lambda: batch.delete_range(b"a", b"b"),
        lambda: batch.append(other),
        batch.clear,
        batch.write,
    ]:
        with pytest.raises(BufferError):
            change()
    let_go(db, thread)
    assert dict(db.items()) == {b"a": b"1"}
    batch.append(other)
    batch.write()
    assert dict(db.items()) == {b"a": b"1", b"b": b"2"}


def test_a_batch_can_be_changed_after_a_write_that_failed(db):
    batch = db.write_batch()
    batch.put(b"a", b"1")

    def write():
        with pytest.raises(lsmkv.Error):
            db.write(batch)

    thread = start_and_hold(db, write)
    db._poison(lsmkv.IOError(5, "for a test"))
    let_go(db, thread)
    batch.clear()
    assert len(batch) == 0


@pytest.mark.parametrize("write", ["put", "delete"])
def test_a_key_that_changed_while_its_write_waited_was_not_found(db, write):
    db.put(b"one", b"1")
    db.put(b"two", b"2")
    key = bytearray(b"one")
    arguments = [key, b"3"] if write == "put" else [key]
    thread = start_and_hold(db, lambda: getattr(db, write)(*arguments))
    key[:] = b"two"
    let_go(db, thread)
    assert dict(db.items()) == {name: db[name] for name in db}
    assert db.get(b"one") == (b"3" if write == "put" else None)
    assert db.get(b"two") == b"2"


def test_multi_get_read_a_list_that_changed_meanwhile(db):
    """A collection of garbage, which may run any code, while a key was turned into bytes."""
    fill(db, 100)
    asked = [bytearray(b"key%06d" % i) for i in range(100)]
    expected = [db[bytes(key)] for key in asked]
    keys = list(asked)

    def empty_it(phase, info):
        keys[:] = [b"absent"] * len(keys)

    threshold = gc.get_threshold()
    gc.callbacks.append(empty_it)
    gc.set_threshold(1)
    try:
        found = db.multi_get(keys)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(empty_it)
    assert keys[0] == b"absent"
    assert found == expected

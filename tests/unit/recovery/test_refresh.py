"""Refreshes of a reader, several at once and beside a close."""

import errno
import threading

import pytest
from databases import fill, keep_still
from waiting import run_elsewhere

import lsmkv
from lsmkv.recovery import open_reader
from lsmkv.version.version_set import VersionSet


@pytest.fixture
def path(tmp_path):
    """An empty place, unlike the path of this directory's conftest."""
    return tmp_path / "db"


def hold_first_refresh(monkeypatch):
    """The first read of the files comes back only after `go_on` is set, or after a while."""
    read, has_read, go_on = open_reader.open_for_reading, threading.Event(), threading.Event()

    def slow_read(*arguments, **options):
        found = read(*arguments, **options)
        if not has_read.is_set():
            has_read.set()
            go_on.wait(0.5)
        return found

    monkeypatch.setattr(open_reader, "open_for_reading", slow_read)
    return has_read, go_on


def test_of_two_refreshes_at_once_the_newer_wins(db, path, monkeypatch):
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


def test_a_refresh_adds_no_tables_to_a_closed_handle(db, path, monkeypatch):
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
    assert reader._engine.state is None
    assert not reader._versions.tables


def change_before_each_attempt(monkeypatch, change):
    """Calls `change` whenever a refresh has read the manifest: the writer is always ahead."""
    decode = open_reader.decode_manifest

    def decode_and_change(*arguments):
        state = decode(*arguments)
        run_elsewhere(change)
        return state

    monkeypatch.setattr(open_reader, "decode_manifest", decode_and_change)


def start_refresh(reader):
    """Returns the thread that refreshes `reader`, and a list that gets its error."""
    outcome = []

    def refresh():
        try:
            reader.refresh()
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=refresh, daemon=True)
    thread.start()
    return thread, outcome


def rotate(db):
    """Makes the log of the manifest vanish."""
    db[b"key"] = b"value"
    db.flush()
    db._scheduler.wait_idle()


def test_a_refresh_that_never_catches_up_ends_with_an_error(db, path, monkeypatch):
    db[b"key"] = b"old"
    with lsmkv.open(path, "r") as reader:
        monkeypatch.setattr(open_reader, "RETRY_SECONDS", 0.2)
        change_before_each_attempt(monkeypatch, lambda: rotate(db))
        thread, outcome = start_refresh(reader)
        thread.join(60)
        monkeypatch.undo()
        thread.join(60)
        assert outcome and isinstance(outcome[0], lsmkv.IOError), outcome
        assert outcome[0].errno == errno.EAGAIN
        assert reader[b"key"] == b"old"
        reader.refresh()
        assert reader[b"key"] == b"value"


def test_a_close_ends_a_refresh_that_does_not_catch_up(db, path, monkeypatch):
    reader = lsmkv.open(path, "r")
    attempts = threading.Semaphore(0)

    def change():
        rotate(db)
        attempts.release()

    monkeypatch.setattr(open_reader, "RETRY_SECONDS", 3600.0)
    change_before_each_attempt(monkeypatch, change)
    thread, outcome = start_refresh(reader)
    for _ in range(3):
        assert attempts.acquire(timeout=60)
    closer = threading.Thread(target=reader.close, daemon=True)
    closer.start()
    closer.join(30)
    waited = closer.is_alive()
    monkeypatch.undo()
    closer.join(60)
    thread.join(60)
    assert not waited
    assert isinstance(outcome[0], lsmkv.ClosedError)


def test_tables_that_were_opened_stay_open_for_the_next_attempt(db, path, monkeypatch):
    """So every attempt comes further, however fast the writer removes tables."""
    keep_still(db)
    for part in range(4):
        db[b"key%d" % part] = b"value"
        db.flush()
    opened = []
    open_table = VersionSet.open_table
    monkeypatch.setattr(VersionSet, "open_table", lambda self, *a: opened.append(a[0]) or open_table(self, *a))
    answers = iter([False, False, True])
    monkeypatch.setattr(open_reader, "is_named", lambda fd, path: next(answers))
    with lsmkv.open(path, "r") as reader:
        assert len(reader) == 4
        assert sorted(opened) == sorted(reader._versions.tables)


@pytest.mark.parametrize("remove_folder", [False, True])
def test_a_refresh_after_destroy_says_that_there_is_no_database(path, remove_folder):
    lsmkv.open(path).close()
    with lsmkv.open(path, "r") as reader:
        lsmkv.destroy(path)
        if not remove_folder:
            path.mkdir()
        with pytest.raises(lsmkv.IOError) as caught:
            reader.refresh()
        assert caught.value.errno == errno.ENOENT


def test_a_refresh_raises_errors_of_ours(path, monkeypatch):
    lsmkv.open(path).close()
    with lsmkv.open(path, "r") as reader:

        def refuse(*arguments):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(open_reader.stored_state, "read_current", refuse)
        with pytest.raises(lsmkv.IOError) as caught:
            reader.refresh()
        assert caught.value.errno == errno.EACCES

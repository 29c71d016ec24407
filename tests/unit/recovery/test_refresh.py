"""Refreshes of a reader, several at once and beside a close."""

import threading

import pytest
from databases import fill

import lsmkv
from lsmkv.recovery import open_reader


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with lsmkv.open(path) as db:
        yield db


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
    assert reader._engine.state is None
    assert not reader._versions.tables

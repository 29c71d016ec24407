"""Handles that refresh themselves."""

import gc
import logging
import shutil
import threading
from functools import partial

import pytest
from waiting import wait_until

import lsmkv

SHORT = 0.002


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with lsmkv.open(path) as db:
        yield db


def refreshers():
    return [thread for thread in threading.enumerate() if thread.name == "lsmkv-refresh"]


@pytest.fixture(autouse=True)
def ends():
    """Whatever a test does, its threads end."""
    yield
    gc.collect()
    wait_until(lambda: not refreshers())


def test_a_reader_follows_its_writer(db, path):
    with lsmkv.open(path, "r") as reader:
        reader.refresh_every(SHORT)
        for i in range(5):
            db[b"key"] = b"%d" % i
            wait_until(lambda i=i: reader.get(b"key") == b"%d" % i)
        users = db.keyspace("users")
        users[b"ada"] = b"1815"
        wait_until(lambda: reader.keyspaces() == ["users"])


def test_it_ends_when_asked_and_can_be_set_anew(db, path):
    with lsmkv.open(path, "r") as reader:
        reader.refresh_every(SHORT)
        reader.refresh_every(3600)
        wait_until(lambda: len(refreshers()) == 1)
        reader.refresh_every(None)
        wait_until(lambda: not refreshers())
        db[b"key"] = b"value"
        assert reader.get(b"key") is None
        reader.refresh_every(None)


def test_a_handle_that_is_forgotten_is_collected(db, path):
    reader = lsmkv.open(path, "r")
    reader.refresh_every(SHORT)
    db[b"key"] = b"value"
    wait_until(partial(reader.__contains__, b"key"))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del reader
        gc.collect()
        wait_until(lambda: not refreshers())


def test_a_failure_is_logged_once_and_the_state_stays(db, path, caplog):
    db[b"key"] = b"value"
    db.flush()
    db.close()
    with lsmkv.open(path, "r") as reader, caplog.at_level(logging.WARNING, "lsmkv"):
        moved = path.rename(path.with_name("moved"))
        reader.refresh_every(SHORT)
        wait_until(lambda: caplog.records)
        assert "a timed refresh failed" in caplog.text and "no database" in caplog.text
        assert reader[b"key"] == b"value"
        moved.rename(path)
        with lsmkv.open(path) as writer:
            writer[b"key"] = b"newer"
        wait_until(lambda: reader[b"key"] == b"newer")
        shutil.rmtree(path)


def test_wrong_arguments_and_handles_that_need_none(db, path):
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            db.refresh_every(seconds)
    db.refresh_every(SHORT)
    assert not refreshers()
    reader = lsmkv.open(path, "r")
    reader.close()
    with pytest.raises(lsmkv.ClosedError):
        reader.refresh_every(1)

"""A database with several levels, and copies of it to damage."""

import shutil

import pytest
from damaged import key
from databases import TINY

import lsmkv


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    """Several levels, tombstones, range tombstones, and a log that was not flushed."""
    path = tmp_path_factory.mktemp("recovery") / "db"
    db = lsmkv.open(path, **TINY)
    for i in range(1500):
        db[key(i * 7 % 1500)] = b"%d" % i * 10
    db.delete_range(key(100), key(200))
    for i in range(300, 400):
        del db[key(i)]
    db.flush()
    db._scheduler.wait_idle()
    db.sync()
    for i in range(50):
        db[b"log%03d" % i] = b"in the log"
    db.sync()
    db._shut(flush=False)
    return path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "db")


@pytest.fixture
def contents(original, tmp_path):
    with lsmkv.open(shutil.copytree(original, tmp_path / "reference")) as db:
        return dict(db.items())

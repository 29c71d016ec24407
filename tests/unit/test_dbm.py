"""`lsmkv.dbm`: what users of the standard library's dbm do."""

import dbm.dumb
import doctest
import os
import shelve

import pytest

import lsmkv
import lsmkv.dbm


@pytest.fixture
def db(path):
    with lsmkv.dbm.open(path, "c") as db:
        yield db


def test_it_takes_str_and_bytes(db):
    db["a"] = "1"
    db[b"b"] = b"2"
    assert (db[b"a"], db["b"], db.get("c"), db.get("c", "?")) == (b"1", b"2", None, "?")
    assert ("a" in db, b"b" in db, "c" in db, len(db)) == (True, True, False, 2)
    assert (db.keys(), list(db), dict(db)) == ([b"a", b"b"], [b"a", b"b"], {b"a": b"1", b"b": b"2"})
    assert (db.setdefault("a", "x"), db.setdefault("c", "x")) == (b"1", b"x")
    del db["c"]
    assert (db.pop("a"), db.pop("a", None)) == (b"1", None)
    with pytest.raises(KeyError):
        db["a"]
    with pytest.raises(TypeError):
        db["a"] = 1


def test_first_and_next_key_walk_through_all(db):
    assert db.firstkey() is None
    db.update({"a": "1", "b": "2", "c": "3"})
    walked = []
    key = db.firstkey()
    while key is not None:
        walked.append(key)
        key = db.nextkey(key)
    assert walked == [b"a", b"b", b"c"]


def test_a_shelf_stores_objects(path):
    with shelve.Shelf(lsmkv.dbm.open(path, "c"), writeback=True) as shelf:
        shelf["ada"] = {"born": 1815}
        shelf["ada"]["died"] = 1852
        shelf.sync()
        assert list(shelf) == ["ada"]
    with shelve.Shelf(lsmkv.dbm.open(path)) as shelf:
        assert shelf["ada"] == {"born": 1815, "died": 1852}


def test_sync_does_nothing_on_a_read_only_handle(path):
    with lsmkv.dbm.open(path, "c") as db:
        db["a"] = "1"
        db.sync()
    with lsmkv.dbm.open(path) as db:
        db.sync()
        with pytest.raises(lsmkv.dbm.error):
            db["a"] = "2"
        assert db["a"] == b"1"


def test_flags_are_those_of_dbm(path):
    for flag in ("r", "w"):
        with pytest.raises(lsmkv.dbm.error):
            lsmkv.dbm.open(path, flag)
    with pytest.raises(lsmkv.dbm.error):
        lsmkv.dbm.open(path, "x")
    with lsmkv.dbm.open(path, "c", 0o700) as db:
        db["a"] = "1"
    assert os.stat(path).st_mode & 0o777 == 0o700
    with lsmkv.dbm.open(path, "w") as db:
        db.reorganize()
        assert len(db) == 1
    with lsmkv.dbm.open(path, "n") as db:
        assert len(db) == 0


def test_a_closed_database_raises(db):
    db.close()
    with pytest.raises(lsmkv.dbm.error):
        db["a"]


def test_whichdb_knows_its_own(path, tmp_path):
    assert lsmkv.dbm.whichdb(path) is None
    lsmkv.open(path).close()
    assert lsmkv.dbm.whichdb(path) == "lsmkv.dbm"
    assert lsmkv.dbm.whichdb(tmp_path) == ""


def test_it_behaves_as_the_standard_library_does(path, tmp_path):
    """The same calls on both give the same answers."""

    def answers(db):
        db["k"] = "v"
        db[b"\xff"] = b"\0"
        db["k"] = b"w"
        db.sync()
        return sorted(db.keys()), db["k"], db.get(b"?"), "k" in db, len(db), sorted(db.items())

    with lsmkv.dbm.open(path, "c") as ours, dbm.dumb.open(str(tmp_path / "dumb"), "c") as theirs:
        assert answers(ours) == answers(theirs)


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with lsmkv.open(tmp_path / "example") as db:
        result = doctest.testmod(lsmkv.dbm, extraglobs={"lsmkv": lsmkv, "db": db})
    assert result.attempted > 5
    assert result.failed == 0

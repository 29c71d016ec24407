"""A database with expiries, written by an earlier version: each entry lives as long as it was given."""

import shutil

import pytest
from make_expiry import BEGIN, END, LATER, LATEST, TARGET, contents, expiry

import lsmkv


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def found(db):
    return dict(db), dict(db.keyspace("sessions", create=False))


@pytest.mark.parametrize("now", [END, END + 999, END + 1000, LATER - 0.001, LATER, LATEST - 1, LATEST])
def test_it_holds_what_lives(database, now):
    assert lsmkv.verify(database).findings == []
    clock = lsmkv.ManualClock(now)
    for flag in ("r", "w"):
        with lsmkv.open(database, flag, clock=clock) as db:
            assert found(db) == contents(now)
    with lsmkv.open(database, clock=clock) as db:
        db.compact_range()
        assert found(db) == contents(now)


def test_its_clock_does_not_go_back(database):
    with lsmkv.open(database, clock=lsmkv.ManualClock(BEGIN)) as db:
        assert found(db) == contents(END)
        assert {db.ttl(b"key%04d" % i) for i in range(2, 200, 4)} == {LATER - END}
        assert {db.ttl(b"log%03d" % i) for i in range(3, 40, 4)} == {LATEST - END}
        assert db.ttl(b"plain000") is None and db.keyspace("sessions").ttl(b"s000") == 1000


def test_it_is_repaired_without_a_manifest(database):
    for manifest in database.glob("MANIFEST-*"):
        manifest.unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database, clock=lsmkv.ManualClock(END)) as db:
        # No table knows the name of the keyspace, and the ingested table could be of any.
        rows, sessions = contents(END)
        spaces = [db, *(db.keyspace(name) for name in db.keyspaces())]
        assert {key: value for space in spaces for key, value in space.items()} == {**rows, **sessions}
        assert {db.ttl(key) for key in db} == {None, LATER - END, LATEST - END}


def test_its_entries_have_the_expiries_they_were_given(database):
    with lsmkv.open(database, clock=lsmkv.ManualClock(END)) as db:
        for i in (0, 2, 3):
            left = None if expiry(i) is None else expiry(i) - END
            assert db.ttl(b"key%04d" % i) == db.ttl(b"ingested%02d" % i) == db.ttl(b"log%03d" % i) == left

"""A database whose filters have prefixes of several lengths, written by an earlier version: they hide no key."""

import shutil

import pytest
from make_prefixes import OPTIONS, TARGET, contents

import lsmkv


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def test_every_scan_finds_its_keys(database):
    assert lsmkv.verify(database).findings == []
    rows = contents()
    with lsmkv.open(database, "r") as db:
        assert dict(db.items()) == rows
        for length in (1, 2, 3, 5, 7, 9, 11):
            for prefix in {key[:length] for key in rows}:
                assert list(db.keys(prefix=prefix)) == sorted(key for key in rows if key.startswith(prefix))


def test_the_filters_are_those_of_the_options(database):
    with lsmkv.open(database, **OPTIONS) as db:
        tables = db._tree.tables()
        assert len(tables) >= 3
        assert {(t.filter_info["prefix_kind"], t.filter_info["prefix_arg"]) for t in tables} == {(3, 0x090502)}
        assert db.filter_debt() == {}
        for customer in range(6):
            assert list(db.keys(prefix=b"c%02d:p" % customer)) == []
        assert db.stats().cache.hits + db.stats().reads.disk_reads <= 1

"""A database with fuse filters of four positions, written by an earlier version: they pass all keys, and few others."""

import shutil

import pytest
from make_fuse_four import KEYS, OPTIONS, TARGET, key

import lsmkv

PRESENT = [key(i) for i in range(0, 2 * KEYS, 2)]
ABSENT = [key(i) for i in range(1, 2 * KEYS, 2)]


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def test_it_holds_what_was_written(database):
    assert lsmkv.verify(database, deep=True).findings == []
    for flag in "rw":
        with lsmkv.open(database, flag, **OPTIONS) as db:
            assert db.multi_get(PRESENT) == [b""] * KEYS
            assert db.keyspace("narrow", create=False).multi_get(PRESENT) == [b""] * KEYS


def test_its_filters_have_four_positions(database):
    """One was built at the first attempt, one at the third."""
    with lsmkv.open(database, "r", **OPTIONS) as db:
        headers = [table.filter_bytes()[0] for table in db._versions.tables.values()]
    assert {header[39] for header in headers} == {4}
    assert {(header[7], header[38]) for header in headers} == {(8, 0), (5, 2)}


@pytest.mark.parametrize(("name", "width"), [("default", 8), ("narrow", 5)])
def test_its_filters_rule_out_what_they_should(database, name, width):
    with lsmkv.open(database, "r", **OPTIONS) as db:
        space = db if name == "default" else db.keyspace(name, create=False)
        assert space.multi_get(ABSENT) == [None] * KEYS
        found = space.stats().total.filter
        assert found.tables_damaged == found.fail_open == 0
        expected = found.checks / 2**width
        assert abs(found.false_positives - expected) < 5 * expected**0.5

"""A database with fuse filters, written by an earlier version: they pass every key, and few others."""

import shutil

import pytest
from make_fuse import OPTIONS, TARGET, contents

import lsmkv


@pytest.fixture
def database(tmp_path):
    return shutil.copytree(TARGET, tmp_path / "db")


def filters(db):
    return {(info["kind"], info["k"]) for table in db._versions.tables.values() for info in [table.filter_info]}


def test_it_holds_what_was_written(database):
    assert lsmkv.verify(database, deep=True).findings == []
    rows, narrow = contents()
    for flag in "rw":
        with lsmkv.open(database, flag, **OPTIONS) as db:
            assert all(db.get(key) == value for key, value in rows.items())
            assert all(db.keyspace("narrow", create=False).get(key) == b"narrow" for key in narrow)
            assert dict(db.items()) == rows
            if flag == "r":  # a writer may compact them
                assert filters(db) >= {("fuse", 8), ("fuse", 12), ("fuse", 4), ("bloom", 6)}


def test_its_filters_rule_out_what_they_should(database):
    with lsmkv.open(database, "r", **OPTIONS) as db:
        assert not any(db.get(b"key%05d" % i) for i in range(1, 1800, 2))
        found = db.stats().total.filter
        assert found.tables_damaged == found.fail_open == 0
        assert found.false_positives < 0.05 * found.checks
        assert list(db.iterator(prefix=b"kez0")) == []


def test_it_has_a_filter_whose_first_attempts_failed(database):
    """Another attempt hashes differently."""
    with lsmkv.open(database, "r", **OPTIONS) as db:
        headers = [table.filter_bytes()[0] for table in db._versions.tables.values()]
    assert 2 in {header[38] for header in headers if header[5] == 2}

"""Databases written by earlier versions open, hold what they held, and can be written to."""

import shutil
from pathlib import Path

import pytest
from make import contents

import lsmkv

HERE = Path(__file__).parent
FORMATS = sorted(path.name for path in HERE.glob("format-*"))


@pytest.fixture(params=FORMATS)
def database(request, tmp_path):
    return shutil.copytree(HERE / request.param, tmp_path / "db")


def test_there_is_one_for_the_current_format():
    assert FORMATS


def test_it_reads_as_it_was_written(database):
    assert lsmkv.verify(database).findings == []
    with lsmkv.open(database, "r") as db:
        assert dict(db.items()) == contents()
    with lsmkv.open(database) as db:
        assert dict(db.items()) == contents()
        assert db.multi_get(list(contents())) == list(contents().values())
        assert db.recovery_report.records > 0
        assert db.recovery_report.torn == []


def test_it_can_be_written_compacted_and_repaired(database):
    expected = contents()
    with lsmkv.open(database) as db:
        db[b"new"] = b"1"
        expected[b"new"] = b"1"
        db.compact_range()
        assert dict(db.items()) == expected
    (database / "CURRENT").unlink()
    assert lsmkv.repair(database).losses == []
    with lsmkv.open(database) as db:
        assert dict(db.items()) == expected
    assert lsmkv.verify(database)

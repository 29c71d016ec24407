import os

import pytest

from lsmkv import filenames
from lsmkv.filenames import FileKind, parse


@pytest.mark.parametrize("number", [1, 42, 999_999, 1_000_000, 123_456_789_012])
def test_names_come_back(number):
    assert parse(filenames.table_name(number)) == (FileKind.TABLE, number)
    assert parse(filenames.log_name(number)) == (FileKind.LOG, number)
    assert parse(filenames.manifest_name(number)) == (FileKind.MANIFEST, number)


def test_fixed_names():
    assert parse("CURRENT") == (FileKind.CURRENT, 0)
    assert parse("LOCK") == (FileKind.LOCK, 0)
    assert parse("OPTIONS") == (FileKind.OPTIONS, 0)
    assert parse("SYNCED") == (FileKind.SYNCED, 0)
    assert parse("STATS") == (FileKind.STATS, 0)
    assert parse("CURRENT.tmp") == (FileKind.TEMPORARY, 0)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1.sst",
        "000000.sst",
        "0000001.sst",
        "000001.sst\n",
        "000001.SST",
        "000001.ldb",
        "000001",
        " 000001.sst",
        "../000001.sst",
        "-00001.sst",
        "00000१.sst",
        "MANIFEST-1",
        "MANIFEST-000001.tmp",
        "manifest-000001",
        "current",
        "photo.jpg",
        "000001.tmp",
        "99999999999999999999999.sst",
    ],
)
def test_anything_else_is_not_ours(name):
    assert parse(name) is None


def test_listing_leaves_links_directories_and_foreign_files_out(tmp_path):
    for name in ("000002.sst", "000001.wal", "MANIFEST-000003", "CURRENT", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "000009.sst").mkdir()
    os.symlink(tmp_path / "notes.txt", tmp_path / "000008.sst")
    assert [name for name, _, _ in filenames.list_directory(str(tmp_path))] == [
        "CURRENT",
        "000001.wal",
        "000002.sst",
        "MANIFEST-000003",
    ]

"""Sessions too short for a compaction: opening merges what they leave in L0."""

import os

import pytest

import lsmkv


def tables(path):
    return sorted(path.glob("*.sst"))


@pytest.mark.parametrize("flush", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("wal", ["mmap", None], ids=str)
def test_tables_of_short_sessions_are_merged(path, flush, wal):
    expected = {}
    for i in range(40):
        db = lsmkv.open(path, wal=wal)
        assert dict(db) == expected
        db[b"%04d" % i] = expected[b"%04d" % i] = b"x" * 100
        db[b"same"] = expected[b"same"] = b"%d" % i
        if i % 7 == 6:
            db.delete(b"%04d" % (i - 1))
            db.delete_range(b"%04d" % (i - 3), b"%04d" % (i - 2))
            del expected[b"%04d" % (i - 1)], expected[b"%04d" % (i - 3)]
        db._shut(flush=flush or wal is None)
    with lsmkv.open(path, wal=wal) as db:
        assert dict(db) == expected
        assert not [name for name in db.recovery_report.orphans_removed if name.endswith(".sst")]
    assert len(tables(path)) <= 8
    assert lsmkv.verify(path)


def test_a_damaged_table_does_not_refuse_the_open(path):
    for i in range(4):
        with lsmkv.open(path, l0_compaction_trigger=8) as db:
            db[b"%04d" % i] = os.urandom(500)
    victim = tables(path)[0]
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(bytes(data))
    with lsmkv.open(path, l0_compaction_trigger=4) as db:
        assert len(db[b"0003"]) == 500
        with pytest.raises(lsmkv.CorruptionError):
            db.get(b"0000")
    assert victim.exists()


def test_an_open_with_the_same_options_leaves_their_file(path):
    options = path / "OPTIONS"
    with lsmkv.open(path):
        first = os.stat(options)
    with lsmkv.open(path):
        assert os.path.samestat(first, os.stat(options))
    with lsmkv.open(path, bits_per_key=12) as db:
        assert options.read_bytes() == db.options.encode()

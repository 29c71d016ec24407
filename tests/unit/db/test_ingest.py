"""Ingested tables."""

import errno
import os

import pytest
from databases import fill_with, write_sst

import lsmkv


def test_ingested_tables_are_newer_than_everything_before(path, tmp_path):
    new = write_sst(tmp_path / "new.sst", [(b"key%06d" % i, b"new") for i in range(100, 200)] + [(b"key000300", None)])
    with lsmkv.open(path) as db:
        fill_with(db)
        db.ingest([new])
        assert db[b"key000150"] == b"new" and db[b"key000050"] == b"v" * 50
        assert b"key000300" not in db
        assert len(db) == 499
        db[b"key000151"] = b"newer"
        assert db[b"key000151"] == b"newer"
        assert new.exists()
        before = dict(db.items())
        db._shut(flush=False)
    with lsmkv.open(path) as db:
        assert dict(db.items()) == before
        db.compact_range()
        assert dict(db.items()) == before
    with lsmkv.open(path) as db:
        assert dict(db.items()) == before
    assert lsmkv.verify(path)


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_writes_around_ingests_come_back_from_the_log(path, tmp_path, wal):
    new = write_sst(tmp_path / "new.sst", [(b"b", b"ingested")])
    db = lsmkv.open(path, wal=wal)
    with db.write_batch() as batch:
        batch.delete_range(b"z", b"a")  # deletes nothing, and takes a sequence number
    db.ingest([new])
    db.put(b"a", b"1", sync=True)
    db.ingest([new])
    db.ingest([new])
    db.put(b"b", b"2", sync=True)
    db.put(b"c", b"3")
    db._shut(flush=False)
    with lsmkv.open(path) as db:
        assert not db.recovery_report.torn
        assert dict(db.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert lsmkv.verify(path)


def test_ingest_goes_as_deep_as_it_can_and_moves(path, tmp_path):
    with lsmkv.open(path) as db:
        db._work.claims.suspended += 1
        fill_with(db)
        db.compact_range()
        free = write_sst(tmp_path / "free.sst", [(b"zzz", b"1")])
        covering = write_sst(tmp_path / "covering.sst", [(b"key000001", b"2")])
        db.ingest([free, covering], move=True)
        assert not free.exists() and not covering.exists()
        assert [len(files) for files in db._versions.default.current.levels[:2]] == [2, 1]
        db.ingest([write_sst(tmp_path / "alone.sst", [(b"zzzz", b"1")])])
        assert [len(files) for files in db._versions.default.current.levels[:2]] == [2, 2]
        assert db[b"zzz"] == b"1" and db[b"key000001"] == b"2"


def test_ingest_of_a_foreign_seed_finds_every_key(path, tmp_path):
    items = [(b"key%06d" % i, b"%d" % i) for i in range(2000)]
    with lsmkv.open(path, filter_shadow_ratio=1.0) as db:
        db.ingest([write_sst(tmp_path / "t.sst", items, seed=12345)])
        assert db.multi_get([key for key, _ in items]) == [value for _, value in items]
        assert all(db.get(b"no%06d" % i) is None for i in range(500))
        assert list(db.filter_debt().values()) == ["seed"]
        assert db.rebuild_filters() == 0
        db[b"key000001"] = b"again"
        db.compact_range()
        assert db.filter_debt() == {}


def test_a_range_tombstone_in_an_ingested_table_hides_older_keys(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"key000150", b"kept")
        writer.delete_range(b"key000100", b"key000200")
    with lsmkv.open(path) as db:
        fill_with(db)
        db.ingest([tmp_path / "t.sst"])
        assert db[b"key000150"] == b"kept"
        assert len(db) == 401


def test_ingest_refuses_a_single_path(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"k", b"v")
    with lsmkv.open(path) as db:
        for one in (tmp_path / "t.sst", str(tmp_path / "t.sst"), os.fsencode(tmp_path / "t.sst")):
            with pytest.raises(TypeError, match="list of paths"):
                db.ingest(one)
        db.ingest([os.fsencode(tmp_path / "t.sst")])
        assert db[b"k"] == b"v"


def test_ingest_takes_all_or_nothing(path, tmp_path):
    good = write_sst(tmp_path / "good.sst", [(b"a", b"1"), (b"m", b"2")])
    overlapping = write_sst(tmp_path / "overlapping.sst", [(b"c", b"1")])
    damaged = write_sst(tmp_path / "damaged.sst", [(b"x", b"1")])
    data = bytearray(damaged.read_bytes())
    data[5] ^= 1
    damaged.write_bytes(bytes(data))
    with lsmkv.open(path) as db:
        files = sorted(os.listdir(path))
        for paths, error in (
            ([good, overlapping], ValueError),
            ([good, damaged], lsmkv.CorruptionError),
            ([good, tmp_path / "missing.sst"], OSError),
        ):
            with pytest.raises(error):
                db.ingest(paths)
            assert len(db) == 0
            assert sorted(os.listdir(path)) == files
        db.ingest([])
        db.ingest([good])
        assert len(db) == 2


def test_ingest_that_cannot_remove_its_sources_says_that_the_tables_are_in(path, tmp_path, monkeypatch):
    for name in ("one", "two"):
        with lsmkv.SSTWriter(tmp_path / f"{name}.sst") as table:
            table.put(name.encode(), b"1")
    real = os.unlink

    def refuse(target, **options):
        if str(target).endswith("one.sst"):
            raise PermissionError(errno.EPERM, "not permitted", target)
        real(target, **options)

    with lsmkv.open(path) as db:
        monkeypatch.setattr(os, "unlink", refuse)
        with pytest.raises(lsmkv.IOError, match="were ingested") as caught:
            db.ingest([tmp_path / "one.sst", tmp_path / "two.sst"], move=True)
        assert caught.value.errno == errno.EPERM and caught.value.filename == str(tmp_path / "one.sst")
        assert dict(db.items(start=b"o")) == {b"one": b"1", b"two": b"1"}
        assert not (tmp_path / "two.sst").exists()


def test_a_failed_ingest_removes_only_its_own_files(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "one.sst") as table:
        table.put(b"one", b"1")
    with lsmkv.open(path) as db:
        foreign = path / f"{db._versions.numbers.peek:06d}.sst"
        foreign.write_bytes(b"mine")
        with pytest.raises(lsmkv.IOError, match="another program"):
            db.ingest([tmp_path / "one.sst"])
        assert foreign.read_bytes() == b"mine"

"""repair, and salvage at open."""

import errno
import os

import pytest
from damaged import flip
from databases import keep_still, write_sst

import lsmkv
from lsmkv.recovery import repair


def test_a_sound_database_needs_no_repair(path, contents):
    before = {p.name: p.read_bytes() for p in path.iterdir() if p.name != "LOCK"}
    report = lsmkv.repair(path)
    assert not report.needed
    assert {p.name: p.read_bytes() for p in path.iterdir() if p.name != "LOCK"} == before


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_a_lost_manifest_is_rebuilt(path, contents, pattern, damage):
    victim = next(path.glob(pattern))
    if damage == "flip":
        flip(victim, victim.stat().st_size // 2)
    else:
        victim.unlink()
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(path)
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    plan = lsmkv.repair(path, apply=False)
    assert plan.needed and not plan.applied
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    report = lsmkv.repair(path)
    assert report.losses == []
    assert report.rebuilt == (pattern != "CURRENT")
    with lsmkv.open(path) as db:
        assert dict(db.items()) == contents
    assert lsmkv.verify(path)
    if (pattern, damage) == ("MANIFEST-*", "flip"):
        assert (path / "lost" / victim.name).read_bytes() == before[victim.name]


def test_a_damaged_table_loses_only_the_damaged_block(path, contents):
    victim = max(path.glob("*.sst"), key=lambda p: p.stat().st_size)
    flip(victim, 30)
    with lsmkv.open(path) as db, pytest.raises(lsmkv.CorruptionError, match=victim.name):
        list(db.items())
    report = lsmkv.repair(path)
    assert len(report.losses) == 1 and victim.name in report.losses[0]
    assert (path / "lost" / victim.name).exists()
    with lsmkv.open(path) as db:
        left = dict(db.items())
    lost = contents.keys() - left.keys()
    assert 0 < len(lost) < 200
    assert all(left[k] == contents[k] for k in left.keys() & contents.keys())
    assert lsmkv.verify(path)


def test_a_killed_repair_keeps_damaged_files(path, monkeypatch):
    """Between the new manifest and the move of what it no longer names."""
    victim = max(path.glob("*.sst"), key=lambda p: p.stat().st_size)
    flip(victim, 30)
    damaged = victim.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(repair._Repair, "_move_damaged", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lsmkv.repair(path)
    lsmkv.open(path).close()
    assert not victim.exists()
    assert (path / "lost" / victim.name).read_bytes() == damaged


@pytest.mark.parametrize("links", [True, False])
def test_a_second_repair_sets_aside_what_the_first_has_named_already(path, monkeypatch, links):
    victim = max(path.glob("*.sst"), key=lambda p: p.stat().st_size)
    flip(victim, 30)
    damaged = victim.read_bytes()
    (path / "lost").mkdir()
    (path / "lost" / victim.name).write_bytes(b"of a repair that was killed")
    if not links:
        monkeypatch.setattr(os, "link", refuse_to_link)
    lsmkv.repair(path)
    assert not victim.exists()
    assert (path / "lost" / victim.name).read_bytes() == damaged
    assert lsmkv.verify(path)


def refuse_to_link(*arguments, **options):
    raise OSError(errno.EPERM, "this file system has no links")


def test_an_unreadable_table_is_set_aside(path, contents):
    victim = max(path.glob("*.sst"), key=lambda p: p.stat().st_size)
    victim.write_bytes(b"nonsense")
    with pytest.raises(lsmkv.CorruptionError):
        lsmkv.open(path)
    report = lsmkv.repair(path)
    assert any(victim.name in loss for loss in report.losses)
    with lsmkv.open(path) as db:
        assert 0 < len(db) < len(contents) + 300
    assert (path / "lost" / victim.name).exists()
    lsmkv.destroy(path)
    assert not path.exists()


def test_a_damaged_log_keeps_what_comes_before(path, contents):
    (victim,) = path.glob("*.wal")
    data = victim.read_bytes()
    flip(victim, data.rindex(b"log030"))
    with pytest.raises(lsmkv.CorruptionError, match=victim.name):
        lsmkv.open(path)
    report = lsmkv.repair(path)
    assert any(victim.name in loss for loss in report.losses)
    with lsmkv.open(path) as db:
        kept = [k for k in db if k.startswith(b"log")]
        assert kept == [b"log%03d" % i for i in range(30)]


def test_salvage_at_open_keeps_what_comes_before(path):
    (victim,) = path.glob("*.wal")
    flip(victim, victim.read_bytes().rindex(b"log030"))
    with lsmkv.open(path, recovery="salvage") as db:
        assert len(db.recovery_report.salvaged) == 1
        assert len(list(db.keys(prefix=b"log"))) == 30


def without_manifest(path):
    (path / "CURRENT").unlink()
    for manifest in path.glob("MANIFEST-*"):
        manifest.unlink()
    report = lsmkv.repair(path)
    assert report.rebuilt


@pytest.mark.parametrize("flushed", [False, True])
def test_without_a_manifest_ingested_tables_win_over_writes_before_them(tmp_path, flushed):
    path = tmp_path / "ingested"
    with lsmkv.open(path) as db:
        keep_still(db)
        for i in range(10):
            db[b"key%d" % i] = b"older"
        if flushed:
            db.flush()
        db.ingest([write_sst(tmp_path / "a.sst", [(b"key%d" % i, b"ingested") for i in range(6)])])
        db.ingest([write_sst(tmp_path / "b.sst", [(b"key0", None), (b"key1", b"later")])])
    without_manifest(path)
    with lsmkv.open(path) as db:
        found = dict(db.items())
    expected = {b"key%d" % i: b"ingested" if i < 6 else b"older" for i in range(1, 10)}
    assert found == {**expected, b"key1": b"later"}


def test_without_a_manifest_ingested_tables_never_win_over_writes_after_them(tmp_path):
    path = tmp_path / "ingested"
    tables = [write_sst(tmp_path / f"{i}.sst", [(b"key%d" % i, b"ingested")]) for i in range(5)]
    with lsmkv.open(path) as db:
        keep_still(db)
        db[b"key0"] = b"older"
        db.ingest(tables)
        db.ingest(tables)
        for i in range(4):
            db[b"key%d" % i] = b"newer"
            if i % 2:
                db.flush()
    without_manifest(path)
    with lsmkv.open(path) as db:
        assert dict(db.items()) == {**{b"key%d" % i: b"newer" for i in range(4)}, b"key4": b"ingested"}

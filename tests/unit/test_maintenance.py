"""verify, repair, destroy."""

import errno
import os
import shutil
import sys
from contextlib import contextmanager

import pytest

import lsmkv
from lsmkv.recovery import repair

TINY = {
    "write_buffer_size": 8192,
    "target_file_size": 8192,
    "l0_compaction_trigger": 2,
    "level_size_ratio": 4,
}


def key(i):
    return b"key%06d" % i


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Several levels, deletes, range tombstones, and a log that was not flushed."""
    path = tmp_path_factory.mktemp("maintenance") / "db"
    db = lsmkv.open(path, **TINY)
    for i in range(1500):
        db[key(i * 7 % 1500)] = b"%d" % i * 10
    db.delete_range(key(100), key(200))
    for i in range(300, 400):
        del db[key(i)]
    db.flush()
    db._scheduler.wait_idle()
    db.sync()
    for i in range(50):
        db[b"log%03d" % i] = b"in the log"
    db.sync()
    db._shut(flush=False)
    return path


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "db")


@pytest.fixture
def contents(original, tmp_path):
    with lsmkv.open(shutil.copytree(original, tmp_path / "reference")) as db:
        return dict(db.items())


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(bytes(data))


# Verify


def test_a_sound_database_has_no_findings(path):
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    seen = []
    report = lsmkv.verify(path, progress=lambda name, done, total: seen.append((done, total)))
    assert report and report.ok and report.findings == []
    assert report.entries > 1000
    assert seen[-1][0] == seen[-1][1] > 0
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


@pytest.mark.parametrize("pattern", ["*.sst", "*.wal", "MANIFEST-*", "CURRENT", "OPTIONS", "SYNCED"])
def test_every_flipped_byte_is_found_and_its_file_named(path, pattern):
    victim = max(path.glob(pattern), key=lambda p: p.stat().st_size)
    good = victim.read_bytes()
    # Every byte of small files; of large ones a stride that meets every structure.
    stride = max(1, len(good) // 300) | 1
    for at in range(0, len(good), stride):
        flip(victim, at)
        report = lsmkv.verify(path)
        assert victim.name in {finding.file for finding in report.findings}, f"byte {at} of {victim.name}"
        victim.write_bytes(good)
    assert lsmkv.verify(path)


def test_missing_and_short_files_are_found(path):
    for pattern in ("*.sst", "*.wal", "MANIFEST-*", "CURRENT"):
        victim = next(path.glob(pattern))
        good = victim.read_bytes()
        victim.unlink()
        assert not lsmkv.verify(path)
        victim.write_bytes(good[:-1] if pattern != "*.wal" else good[:4500])
        assert not lsmkv.verify(path)
        victim.write_bytes(good)
    assert lsmkv.verify(path)


def test_a_database_in_use_has_no_findings(path):
    with lsmkv.open(path, **TINY) as db:
        for round_ in range(5):
            for i in range(300):
                db[key(i)] = b"%d" % round_ * 20
            assert lsmkv.verify(path).findings == []
        assert db.stats().total.files > 0
    with lsmkv.open(path, "r") as reader:
        assert reader.stats().total.files > 0
        assert reader.property("lsmkv.levels")
        assert reader.explain(key(1)).found


@contextmanager
def gone_after(calls, file):
    """While the block runs: moves `file` away before its `calls`-th call of the system. Yields the count."""
    count = [0]

    def step(frame, event, arg):
        if event == "c_call" and arg.__module__ == os.name:
            count[0] += 1
            if count[0] == calls:
                sys.setprofile(None)
                os.rename(file, file.with_name("away"))
                sys.setprofile(step)

    sys.setprofile(step)
    try:
        yield count
    finally:
        sys.setprofile(None)
        if not file.exists():
            os.rename(file.with_name("away"), file)


@pytest.mark.parametrize("pattern", ["*.sst", "*.wal", "MANIFEST-*", "CURRENT", "OPTIONS", "SYNCED"])
def test_verify_failed_on_a_file_that_was_removed_meanwhile(path, pattern):
    """A running database drops files at any moment. What verify makes of it is a finding, never an error."""
    victim = max(path.glob(pattern))
    with gone_after(-1, victim) as all_calls:
        assert lsmkv.verify(path)
    found = 0
    for calls in range(1, all_calls[0]):
        with gone_after(calls, victim):
            found += not lsmkv.verify(path)
    assert found or pattern in ("OPTIONS", "SYNCED")  # which a database can do without
    assert lsmkv.verify(path)


def test_no_database_is_a_finding(tmp_path):
    assert not lsmkv.verify(tmp_path / "nowhere")


# Repair


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


def test_a_repair_that_was_killed_left_damaged_files_to_be_deleted(path, monkeypatch):
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


# Destroy


def test_destroy(path):
    with lsmkv.open(path), pytest.raises(lsmkv.LockError):
        lsmkv.destroy(path)
    lsmkv.destroy(path)
    assert not os.path.exists(path)
    lsmkv.destroy(path)


def test_destroy_of_a_file_is_refused(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(lsmkv.IOError):
        lsmkv.destroy(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("call", [lsmkv.destroy, lsmkv.repair, lambda path: lsmkv.open(path, "n"), lsmkv.open])
def test_a_database_of_leveldb_or_rocksdb_was_taken_for_ours(tmp_path, call):
    """They have files of the same names: `destroy`, `repair` and the flag "n" removed them."""
    files = {"CURRENT": b"MANIFEST-000004\n", "MANIFEST-000004": b"theirs", "000012.sst": b"theirs", "LOCK": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(lsmkv.Error):
        call(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files


OUR_NAMES = ["000005.sst", "000005.wal", "000005.wal.tmp", "MANIFEST-000001", "OPTIONS", "STATS", "SYNCED"]
OUR_NAMES += ["CURRENT.tmp"]


def contents_of(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", OUR_NAMES)
@pytest.mark.parametrize("flag", ["c", "n"])
def test_a_folder_with_a_strangers_file_of_our_name_is_refused(tmp_path, flag, name):
    """Without CURRENT: the flag "n" removed it, "c" wrote over it."""
    (tmp_path / name).write_bytes(b"precious data of another program")
    before = contents_of(tmp_path)
    with pytest.raises(lsmkv.Error):
        lsmkv.open(tmp_path, flag)
    assert contents_of(tmp_path) in (before, {**before, "LOCK": b""})


@pytest.mark.parametrize("name", [*OUR_NAMES, "LOCK", "lost/000005.sst"])
def test_destroy_leaves_a_strangers_file_of_our_name_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"precious data of another program")
    before = contents_of(tmp_path)
    lsmkv.destroy(tmp_path)
    assert contents_of(tmp_path) == before


@pytest.mark.parametrize("call", [lsmkv.destroy, lambda path: lsmkv.open(path, "n").close()])
def test_the_files_of_a_database_without_current_are_known_by_what_is_in_them(path, contents, call):
    (path / "CURRENT").unlink()
    (path / "STATS").write_bytes(b'{"pid": 1, "time": 2.0, "stats": {}}')
    (path / "CURRENT.tmp").write_bytes(b"MANIFEST-0")
    before = contents_of(path)
    call(path)
    assert path.exists() == (call is not lsmkv.destroy)
    assert not path.exists() or not before.items() & contents_of(path).items() - {("LOCK", b"")}


@pytest.mark.parametrize("call", [lsmkv.destroy, lambda path: lsmkv.open(path, "n").close()])
def test_a_removal_that_was_cut_short_is_finished(path, contents, call, monkeypatch):
    """Also where the database had damaged files, which nothing but its CURRENT shows to be ours."""
    for pattern in ("*.sst", "*.wal"):
        next(path.glob(pattern)).write_bytes(b"nonsense")
    (path / "lost").mkdir()
    (path / "lost" / "000001.sst").write_bytes(b"nonsense")
    real, left = os.unlink, [0]

    def stop(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        real(*arguments, **options)

    monkeypatch.setattr(os, "unlink", stop)
    for n in range(100):
        left[0] = n
        try:
            call(path)
            break
        except KeyboardInterrupt:
            pass
    monkeypatch.setattr(os, "unlink", real)
    lsmkv.destroy(path)
    assert not path.exists()

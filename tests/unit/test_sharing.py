"""Read-only handles, checkpoints, ingest."""

import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest

import lsmkv
from lsmkv import checkpoint
from lsmkv.recovery import stored_state

TINY = {
    "write_buffer_size": 8192,
    "target_file_size": 8192,
    "l0_compaction_trigger": 2,
    "level_size_ratio": 4,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def fill(db, n=500, start=0, value=b"v"):
    for i in range(start, start + n):
        db[b"key%06d" % i] = value * 50


def table(path, items, **options):
    with lsmkv.SSTWriter(path, **options) as writer:
        for key, value in items:
            if value is None:
                writer.delete(key)
            else:
                writer.put(key, value)
    return path


# Read-only


def test_a_reader_beside_the_writer_sees_newer_writes_after_refresh(path):
    with lsmkv.open(path, **TINY) as db, lsmkv.open(path, "r") as reader:
        assert len(reader) == 0
        fill(db)
        assert len(reader) == 0
        reader.refresh()
        assert len(reader) == 500
        snapshot = reader.snapshot()
        db.delete_range(b"key000100", b"key000200")
        db.compact_range()
        db[b"tail"] = b"only in the log"
        reader.refresh()
        assert len(reader) == 401 and reader[b"tail"] == b"only in the log"
        assert len(snapshot) == 500
        db.refresh()


def test_a_reader_in_another_process(path):
    code = f"""
import lsmkv, sys
with lsmkv.open({str(path)!r}, "r") as db:
    print(len(db), db[b"key000007"] == b"v" * 50, flush=True)
    sys.stdin.readline()
    db.refresh()
    print(len(db))
"""
    with lsmkv.open(path) as db:
        fill(db)
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "500 True\n"
        fill(db, 10, start=900)
        out, _ = child.communicate("go\n")
        assert out == "510\n"


def test_a_reader_changes_no_file(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db)
        db._shut(flush=False)
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    os.chmod(path, 0o500)
    try:
        with lsmkv.open(path, "r") as reader:
            assert len(reader) == 500
    finally:
        os.chmod(path, 0o700)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before


def test_many_readers_and_no_lock(path):
    lsmkv.open(path).close()
    with lsmkv.open(path, "r"), lsmkv.open(path, "r"), lsmkv.open(path) as db:
        db[b"a"] = b"1"


@pytest.mark.parametrize("name", ["refresh while the writer compacts"])
def test_refresh_beside_a_busy_writer(path, name):
    with lsmkv.open(path, **TINY) as db, lsmkv.open(path, "r") as reader:
        for round_ in range(30):
            for i in range(100):
                db[b"key%06d" % i] = b"%d" % round_ * 30
            reader.refresh()
            assert len(reader) == 100
            assert set(reader.values()) == {b"%d" % round_ * 30}


def replaced_under(path, **options):
    """A reader whose tables the writer has removed since, and the writer."""
    db = lsmkv.open(path, l0_compaction_trigger=30, l0_slowdown_trigger=30)
    db._scheduler.claims.suspended += 1  # a quiet database would merge its L0 meanwhile
    for part in range(20):
        fill(db, 20, part * 20)
        db.flush()
    reader = lsmkv.open(path, "r", block_cache_size=0, **options)
    before = {name for name in os.listdir(path) if name.endswith(".sst")}
    fill(db, 400, value=b"w")
    db.compact_range()
    with db._versions.lock:
        db._versions.collect_garbage()
    assert before.isdisjoint(os.listdir(path))
    return reader, db


def test_a_reader_keeps_the_tables_that_the_writer_removed(path):
    reader, db = replaced_under(path)
    with reader, db:
        assert set(reader.values()) == {b"v" * 50}
        assert {reader[b"key%06d" % i] for i in range(400)} == {b"v" * 50}


def test_a_reader_with_too_few_descriptors_says_that_a_refresh_helps(path):
    """A descriptor that had to make room cannot be had again once the file is gone."""
    reader, db = replaced_under(path, max_open_files=8)
    with reader, db:
        with pytest.raises(lsmkv.IOError, match="refresh") as caught:
            list(reader.values())
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(lsmkv.IOError, match="refresh"):
            for i in range(400):
                reader.get(b"key%06d" % i)
        reader.refresh()
        assert list(reader.values()) == [b"w" * 50] * 400


@pytest.mark.parametrize("bits", [0, 10])
def test_a_reader_with_too_few_descriptors_read_the_tables_of_another_database(path, bits):
    """One that was made anew in the same place, with the same names: what a descriptor was opened for again."""
    options = {**TINY, "target_file_size": 4096, "compression": None, "bits_per_key": bits}
    with lsmkv.open(path, **options) as db:
        fill(db, 6000)
        db.compact_range()
    with lsmkv.open(path, "r", max_open_files=8, block_cache_size=0) as reader:
        assert len(reader._versions.tables) > 8
        with lsmkv.open(path, "n", **options) as db:
            fill(db, 6000, value=b"w")
            db.compact_range()
        found = set()
        for i in range(6000):
            try:
                found.add(reader.get(b"key%06d" % i))
            except lsmkv.IOError as error:
                assert error.errno == errno.ENOENT and "refresh" in str(error)
        assert found == {b"v" * 50}
        reader.refresh()
        assert set(reader.values()) == {b"w" * 50}


def put_in_place(path, how, flushed):
    """Another database takes the place of the one at `path`: 1000 keys, in tables or in the log."""
    if how == "destroyed":
        lsmkv.destroy(path)
    if how != "renamed":
        db = lsmkv.open(path, "n" if how == "flag n" else "c", **TINY)
    else:
        other = path.with_name("other")
        db = lsmkv.open(other, **TINY)
        os.rename(path, path.with_name("old"))
    fill(db, 1000, value=b"w")
    if flushed:
        db.compact_range()
    if how == "renamed":
        db.close()
        os.rename(other, path)
        db = lsmkv.open(path)
    return db


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("how", ["flag n", "destroyed", "renamed"])
def test_a_reader_refreshes_onto_another_database_in_the_same_place(path, how, flushed):
    keys = [b"key%06d" % i for i in range(1000)]
    with lsmkv.open(path, **TINY) as db:
        fill(db, 500)
        db.compact_range()
        fill(db, 100, start=500)
    with lsmkv.open(path, "r", filter_shadow_ratio=1.0) as reader:
        for _ in range(3):  # into the row cache
            assert reader.get(keys[0]) == b"v" * 50
        old, walk = reader.snapshot(), reader.iterator(include_value=False)
        assert next(walk) == keys[0]
        with put_in_place(path, how, flushed) as db:
            reader.refresh()
            assert reader.seed == db.seed
            assert list(reader.items()) == [(key, b"w" * 50) for key in keys]
            assert [reader.get(key) for key in keys] == [b"w" * 50] * 1000
            assert reader.multi_get(keys) == [b"w" * 50] * 1000
            assert all(key in reader and reader.explain(key).found for key in keys)
            assert b"key001000" not in reader
            assert reader.filter_debt() == {} and reader.stats().shadow.wrong == 0
            with reader.snapshot() as now:
                assert now.multi_get(keys) == [now[key] for key in keys] == [b"w" * 50] * 1000
            assert old.multi_get(keys) == [old.get(key) for key in keys]
            assert old.multi_get(keys) == [b"v" * 50] * 600 + [None] * 400
            assert list(old) == keys[:600] and list(walk) == keys[1:600]


def test_a_multi_get_whose_keys_refresh_the_reader_answers_from_one_state(path):
    keys = [b"key%06d" % i for i in range(10)]
    with lsmkv.open(path) as db:
        fill(db, 10)
    with lsmkv.open(path, "r") as reader:

        def keys_of_a_moment():
            with lsmkv.open(path, "n") as db:
                fill(db, 10, value=b"w")
            reader.refresh()
            yield from keys

        assert reader.multi_get(keys_of_a_moment()) == [b"v" * 50] * 10
        assert reader.multi_get(keys) == [b"w" * 50] * 10


def test_a_database_made_anew_in_the_middle_of_a_refresh_is_not_mixed_with_the_old_one(path, monkeypatch):
    """Its file numbers begin anew, and its first table looks like the old one's from outside."""

    def make(*values):
        with lsmkv.open(path, "n", wal=None) as db:
            db._scheduler.claims.suspended += 1
            for value in values:
                fill(db, 10, value=value)
                db.flush()

    make(b"v")
    with lsmkv.open(path, "r") as reader:
        real, made = stored_state.check_logs, []

        def make_anew(*arguments):
            if not made:
                made.append(make(b"w", b"x"))
            return real(*arguments)

        monkeypatch.setattr(stored_state, "check_logs", make_anew)
        reader.refresh()
        assert made and set(reader.values()) == {b"x" * 50}


def test_a_refreshed_reader_lets_go_of_the_tables_it_had(path):
    with lsmkv.open(path) as db:
        fill(db, 100)
        db.flush()
        with lsmkv.open(path, "r") as reader:
            fill(db, 100, value=b"w")
            db.compact_range()
            with db._versions.lock:
                db._versions.collect_garbage()
            assert len(removed_but_open(path)) == 1
            reader.refresh()
            assert removed_but_open(path) == []


def removed_but_open(path):
    """Tables without a name that this process still has open."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in names if name.startswith(str(path)) and name.endswith(".sst (deleted)")]


# Checkpoint


def test_checkpoint_is_a_database_of_its_own(path, tmp_path):
    with lsmkv.open(path, **TINY) as db:
        fill(db)
        db.checkpoint(tmp_path / "copy")
        tables = list((tmp_path / "copy").glob("*.sst"))
        assert tables and all(table.stat().st_nlink == 2 for table in tables)
        fill(db, value=b"w")
        db.compact_range()
        with lsmkv.open(tmp_path / "copy") as copy:
            assert copy.recovery_report.clean
            assert set(copy.values()) == {b"v" * 50}
            assert len(copy) == 500
            copy[b"mine"] = b"1"
        assert b"mine" not in db
        assert set(db.values()) == {b"w" * 50}
        with pytest.raises(lsmkv.IOError) as raised:
            db.checkpoint(tmp_path / "copy")
        assert raised.value.errno == 17
    assert lsmkv.verify(tmp_path / "copy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "db"]


def test_where_no_checkpoint_can_be(path, tmp_path):
    with lsmkv.open(path) as db:
        for dest in ("", tmp_path / "missing" / "copy", path):
            with pytest.raises(lsmkv.IOError):
                db.checkpoint(dest)
        db.checkpoint(os.fsencode(tmp_path / "copy"))
    lsmkv.open(tmp_path / "copy", "r").close()


def test_checkpoint_of_an_empty_database(path, tmp_path):
    with lsmkv.open(path) as db:
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy") as copy:
        assert len(copy) == 0


@pytest.mark.parametrize("moment", ["link_or_copy", "write_current", "sync_directory"])
def test_a_killed_checkpoint_blocked_its_destination_for_ever(path, tmp_path, moment):
    code = f"""
import os, lsmkv
from lsmkv import checkpoint
checkpoint.{moment} = lambda *_: os.kill(os.getpid(), 9)
lsmkv.open({str(path)!r}).checkpoint({str(tmp_path / "copy")!r})
"""
    with lsmkv.open(path) as db:
        fill(db)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with lsmkv.open(path) as db:
        if moment == "sync_directory":  # renamed by then
            lsmkv.destroy(tmp_path / "copy")
        db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert len(copy) == 500
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "db"]


def test_a_checkpoint_touches_no_folder_that_is_not_its_own(path, tmp_path):
    """Where it would build lies another database, or the file of a stranger."""
    taken = tmp_path / "copy.checkpoint"
    with lsmkv.open(path) as db:
        db.checkpoint(taken)
        for _ in range(2):
            before = sorted(p.name for p in taken.iterdir())
            with pytest.raises(lsmkv.IOError, match=r"copy\.checkpoint"):
                db.checkpoint(tmp_path / "copy")
            assert sorted(p.name for p in taken.iterdir()) == before
            lsmkv.destroy(taken)
            (taken / "partial").mkdir(parents=True, exist_ok=True)
            (taken / "partial" / "notes").write_text("mine")
    assert (taken / "partial" / "notes").read_text() == "mine"


def test_of_two_checkpoints_at_once_to_one_place_the_second_is_refused(path, tmp_path, monkeypatch):
    with lsmkv.open(path) as db:
        fill(db)
        real, refused = checkpoint.write_current, []

        def second(*arguments):
            with pytest.raises(lsmkv.IOError, match="another checkpoint"):
                db.checkpoint(tmp_path / "copy")
            refused.append(True)
            real(*arguments)

        monkeypatch.setattr(checkpoint, "write_current", second)
        db.checkpoint(tmp_path / "copy")
        assert refused
    assert lsmkv.verify(tmp_path / "copy")


# Ingest


def test_ingested_tables_are_newer_than_everything_before(path, tmp_path):
    new = table(
        tmp_path / "new.sst", [(b"key%06d" % i, b"new") for i in range(100, 200)] + [(b"key000300", None)]
    )
    with lsmkv.open(path) as db:
        fill(db)
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
    new = table(tmp_path / "new.sst", [(b"b", b"ingested")])
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
        db._scheduler.claims.suspended += 1
        fill(db)
        db.compact_range()
        free = table(tmp_path / "free.sst", [(b"zzz", b"1")])
        covering = table(tmp_path / "covering.sst", [(b"key000001", b"2")])
        db.ingest([free, covering], move=True)
        assert not free.exists() and not covering.exists()
        assert [len(files) for files in db._versions.current.levels[:2]] == [2, 1]
        db.ingest([table(tmp_path / "alone.sst", [(b"zzzz", b"1")])])
        assert [len(files) for files in db._versions.current.levels[:2]] == [2, 2]
        assert db[b"zzz"] == b"1" and db[b"key000001"] == b"2"


def test_ingest_of_a_foreign_seed_finds_every_key(path, tmp_path):
    items = [(b"key%06d" % i, b"%d" % i) for i in range(2000)]
    with lsmkv.open(path, filter_shadow_ratio=1.0) as db:
        db.ingest([table(tmp_path / "t.sst", items, seed=12345)])
        assert db.multi_get([key for key, _ in items]) == [value for _, value in items]
        assert all(db.get(b"no%06d" % i) is None for i in range(500))
        assert list(db.filter_debt().values()) == ["seed"]
        assert db.rebuild_filters() == 0
        db[b"key000001"] = b"again"
        db.compact_range()
        assert db.filter_debt() == {}


def test_a_range_delete_in_an_ingested_table_hides_what_was_there(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"key000150", b"kept")
        writer.delete_range(b"key000100", b"key000200")
    with lsmkv.open(path) as db:
        fill(db)
        db.ingest([tmp_path / "t.sst"])
        assert db[b"key000150"] == b"kept"
        assert len(db) == 401


def test_a_single_path_to_ingest_was_a_list_of_letters(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"k", b"v")
    with lsmkv.open(path) as db:
        for one in (tmp_path / "t.sst", str(tmp_path / "t.sst"), os.fsencode(tmp_path / "t.sst")):
            with pytest.raises(TypeError, match="list of paths"):
                db.ingest(one)
        db.ingest([os.fsencode(tmp_path / "t.sst")])
        assert db[b"k"] == b"v"


def test_ingest_takes_all_or_nothing(path, tmp_path):
    good = table(tmp_path / "good.sst", [(b"a", b"1"), (b"m", b"2")])
    overlapping = table(tmp_path / "overlapping.sst", [(b"c", b"1")])
    damaged = table(tmp_path / "damaged.sst", [(b"x", b"1")])
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


def test_a_failed_ingest_removed_a_file_that_was_not_its_own(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "one.sst") as table:
        table.put(b"one", b"1")
    with lsmkv.open(path) as db:
        stranger = path / f"{db._versions.numbers.peek:06d}.sst"
        stranger.write_bytes(b"mine")
        with pytest.raises(lsmkv.IOError, match="not ours"):
            db.ingest([tmp_path / "one.sst"])
        assert stranger.read_bytes() == b"mine"

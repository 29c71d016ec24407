"""Ingested tables whose large values are in a value log beside them."""

import os
import random
import shutil

import pytest
from databases import answers, keep_still, kill, names
from waiting import wait_until

import lsmkv
from lsmkv.version.edit import decode_edit
from lsmkv_ext.values.reader import ValueLog

THRESHOLD = 1000
WRITER = {"large_value_threshold": THRESHOLD, "large_value_compression": None}


def value(seed, size=5000):
    return random.Random(seed).randbytes(size)


ITEMS = {b"k%02d" % i: value(i, 300 * i) for i in range(12)}


def write(path, items=ITEMS, **options):
    with lsmkv.SSTWriter(path, **{**WRITER, **options}) as writer:
        for key in sorted(items):
            writer.put(key, items[key])
    return path


def big(path, flag="c", **options):
    return lsmkv.open(path, flag, **{"large_value_threshold": THRESHOLD, "large_value_compression": None, **options})


def with_suffix(path, suffix):
    return sorted(name for name in names(path) if name.endswith(suffix))


def wait_for_value_logs(db, n):
    """Until so many are left: a job may hold the tables a little longer."""

    def left():
        db._versions.collect_garbage()
        return len(with_suffix(db.path, ".vlog")) == n

    wait_until(left)


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def table_and_log(path):
    """The ingested table of the only table, and its value log, as paths."""
    (table,) = with_suffix(path, ".sst")
    (log,) = with_suffix(path, ".vlog")
    return os.path.join(path, table), os.path.join(path, log)


# --- the two files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_large_values_go_to_a_value_log_beside_the_table(tmp_path, compression):
    table = write(tmp_path / "people.sst", large_value_compression=compression)
    assert names(tmp_path) == ["people.sst", "people.vlog"]
    assert ValueLog(tmp_path / "people.vlog").stored_number == 0
    with lsmkv.SSTReader(table) as reader:
        assert dict(reader.items()) == ITEMS
        assert {key: reader[key] for key in ITEMS} == ITEMS
        assert reader.verify() == []
        (use,) = reader.table.meta.value_logs
        assert (use.number, use.values) == (0, sum(len(v) >= THRESHOLD for v in ITEMS.values()))
    assert table.stat().st_size < 8192 < (tmp_path / "people.vlog").stat().st_size


def test_without_large_values_there_is_one_file(tmp_path):
    write(tmp_path / "a.sst", {b"a": b"small"})
    write(tmp_path / "b.sst", large_value_threshold=None)
    assert names(tmp_path) == ["a.sst", "b.sst"]


def test_an_aborted_table_leaves_no_value_log(tmp_path):
    writer = lsmkv.SSTWriter(tmp_path / "a.sst", **WRITER)
    writer.put(b"a", value(1))
    assert names(tmp_path) == ["a.sst", "a.vlog"]
    writer.abort()
    assert names(tmp_path) == []
    with pytest.raises(ZeroDivisionError), lsmkv.SSTWriter(tmp_path / "b.sst", **WRITER) as writer:
        writer.put(b"a", value(1))
        _ = 1 / 0
    assert names(tmp_path) == []


def test_a_value_log_of_another_table_is_not_overwritten(tmp_path):
    other = tmp_path / "a.vlog"
    other.write_bytes(b"mine")
    writer = lsmkv.SSTWriter(tmp_path / "a.sst", **WRITER)
    with pytest.raises(lsmkv.IOError):
        writer.put(b"a", value(1))
    assert names(tmp_path) == ["a.vlog"]
    assert other.read_bytes() == b"mine"


@pytest.mark.parametrize("options", [{"large_value_threshold": 63}, {"large_value_compression": "lz5"}])
def test_wrong_options_are_refused(tmp_path, options):
    with pytest.raises(lsmkv.OptionError):
        lsmkv.SSTWriter(tmp_path / "a.sst", **options)
    assert names(tmp_path) == []


def test_the_size_counts_both_files(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "a.sst", **WRITER) as writer:
        writer.put(b"a", value(1, 50_000))
        assert writer.size > 50_000
    assert writer.summary["value_log_bytes"] == (tmp_path / "a.vlog").stat().st_size


def test_a_damaged_value_is_a_finding_of_the_reader(tmp_path):
    table = write(tmp_path / "a.sst", {b"a": value(1), b"b": value(2)})
    flip(tmp_path / "a.vlog", 64 + 24 + 100)
    with lsmkv.SSTReader(table) as reader:
        assert reader[b"b"] == value(2)
        with pytest.raises(lsmkv.CorruptionError, match="checksum"):
            reader.get(b"a")
        (finding,) = reader.verify()
        assert "a.vlog" in finding["what"]


# --- ingest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("options", [{}, {"wal": "write"}, {"wal": None}])
def test_every_read_finds_the_values(path, tmp_path, move, options):
    sources = tmp_path / "sources"
    sources.mkdir()
    table = write(sources / "t.sst")
    with big(path, **options) as db:
        keep_still(db)
        db.put(b"k05", b"older")
        db.ingest([table], move=move)
        assert names(sources) == ([] if move else ["t.sst", "t.vlog"])
        db.put(b"k06", b"newer")
        expected = {**ITEMS, b"k06": b"newer"}
        for key in (b"k00", b"k05", b"k06", b"k11"):
            assert answers(db, key) == {expected[key]}
        assert bytes(db.get(b"k11", copy=False)) == ITEMS[b"k11"]
        with db.open_value(b"k11") as file:
            assert file.read() == ITEMS[b"k11"]
        assert {key: bytes(each) for key, each in db.items(copy=False)} == expected
    assert lsmkv.verify(path).findings == []
    with big(path, **options) as db:
        assert dict(db.iterator()) == expected
        db.compact_range()
        assert dict(db.iterator()) == expected
    assert lsmkv.verify(path).findings == []
    with big(path, "r") as db:
        assert dict(db.iterator()) == expected


def test_several_tables_have_a_value_log_each(path, tmp_path):
    tables = [write(tmp_path / f"{i}.sst", {b"%d%d" % (i, j): value(10 * i + j) for j in range(3)}) for i in range(3)]
    expected = {b"%d%d" % (i, j): value(10 * i + j) for i in range(3) for j in range(3)}
    with big(path) as db:
        keep_still(db)
        db.ingest(tables)
        assert len(with_suffix(path, ".vlog")) == 3
        assert dict(db.iterator()) == expected
        db.compact_range()
        assert dict(db.iterator()) == expected
        assert db.stats().value_logs.garbage_bytes == 3 * 64


def test_expiries_and_tombstones_go_along(path, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "t.sst", **WRITER) as writer:
        writer.put(b"a", value(1), ttl=3600)
        writer.delete(b"b")
        writer.put(b"c", value(3), expire_at=1)
        writer.put(b"d", b"x" * 999, ttl=3600)
    with big(path) as db:
        db.put(b"b", b"older")
        db.ingest([tmp_path / "t.sst"])
        for _ in range(2):
            assert dict(db.iterator()) == {b"a": value(1), b"d": b"x" * 999}
            assert 3590 < db.ttl(b"a") <= 3600
            db.compact_range()


def test_a_database_of_format_1_is_upgraded(path, tmp_path):
    shutil.copytree(os.path.join(os.path.dirname(__file__), "../../golden/format-1"), path)
    with lsmkv.open(path) as db:
        assert db._versions.state.format_version == 1
        db.ingest([write(tmp_path / "t.sst")])
        assert db._versions.state.format_version == 2
        assert db[b"k11"] == ITEMS[b"k11"]
    with lsmkv.open(path) as db:
        assert db[b"k11"] == ITEMS[b"k11"]


def test_into_a_keyspace(path, tmp_path):
    with big(path) as db:
        db.keyspace("users").ingest([write(tmp_path / "t.sst")])
        assert dict(db.keyspace("users").iterator()) == ITEMS
        assert dict(db.iterator()) == {}
    with big(path) as db:
        assert dict(db.keyspace("users").iterator()) == ITEMS
        db.drop_keyspace("users")
        wait_for_value_logs(db, 0)


def test_the_same_table_twice_has_two_value_logs(path, tmp_path):
    table = write(tmp_path / "t.sst")
    with big(path) as db:
        keep_still(db)
        db.ingest([table])
        db.ingest([table])
        assert len(with_suffix(path, ".vlog")) == 2
        assert dict(db.iterator()) == ITEMS
        db.compact_range()
        assert dict(db.iterator()) == ITEMS
        # The values of the first ingest are hidden: their value log goes with the last table that names it.
        wait_for_value_logs(db, 1)


def test_a_snapshot_keeps_the_value_log(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
        with db.snapshot() as before:
            db.clear()
            db.compact_range()
            assert dict(before.iterator()) == ITEMS
            assert len(with_suffix(path, ".vlog")) == 1
        wait_for_value_logs(db, 0)


def test_the_values_are_collected(path, tmp_path):
    with big(path, value_gc_ratio=1.1) as db:
        db.ingest([write(tmp_path / "t.sst")])
        (before,) = with_suffix(path, ".vlog")
        for i in range(4, 11):
            db.put(b"k%02d" % i, b"small")
        db.compact_range()
        expected = {**ITEMS, **{b"k%02d" % i: b"small" for i in range(4, 11)}}
        assert dict(db.iterator()) == expected
        wait_until(lambda: before not in with_suffix(path, ".vlog"))
    with big(path) as db:
        assert dict(db.iterator()) == expected


def test_a_filter_rebuild_keeps_the_pointers(path, tmp_path):
    with big(path) as db:
        keep_still(db)
        db.ingest([write(tmp_path / "t.sst", seed=db.seed)])
        (before,) = with_suffix(path, ".sst")
        db.set_options(bits_per_key=20)
        assert db.rebuild_filters() == 1
        wait_until(lambda: before not in with_suffix(path, ".sst"))
        assert dict(db.iterator()) == ITEMS
        (f,) = db._versions.state.files()
        assert f.own_log == f.value_logs[0].number != 0
    assert lsmkv.verify(path).findings == []
    with big(path) as db:
        assert dict(db.iterator()) == ITEMS


def test_a_checkpoint_has_the_value_log(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
        db.checkpoint(tmp_path / "copy")
        db.clear()
    with big(tmp_path / "copy") as db:
        assert dict(db.iterator()) == ITEMS
    assert lsmkv.verify(tmp_path / "copy").findings == []


def test_a_backup_has_the_value_log(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
        lsmkv.backup(db, tmp_path / "backups")
        db.clear()
    lsmkv.restore(tmp_path / "backups", tmp_path / "copy")
    with big(tmp_path / "copy") as db:
        assert dict(db.iterator()) == ITEMS
    assert lsmkv.verify(tmp_path / "copy").findings == []


def test_after_a_kill_the_values_are_there(path, tmp_path):
    db = big(path)
    db.ingest([write(tmp_path / "t.sst")])
    kill(db)
    with big(path) as db:
        assert dict(db.iterator()) == ITEMS


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(db, path, tables, error, match=None):
    before = names(path)
    with pytest.raises(error, match=match):
        db.ingest(tables)
    assert names(path) == before
    assert dict(db.iterator()) == {}


def test_a_table_without_its_value_log_is_refused(path, tmp_path):
    table = write(tmp_path / "t.sst")
    os.unlink(tmp_path / "t.vlog")
    with big(path) as db:
        refused(db, path, [table], lsmkv.CorruptionError, "missing")


def test_a_value_log_of_another_table_is_refused(path, tmp_path):
    table = write(tmp_path / "t.sst")
    write(tmp_path / "other.sst")
    os.replace(tmp_path / "other.vlog", tmp_path / "t.vlog")
    with big(path) as db:
        refused(db, path, [table], lsmkv.CorruptionError, "not the one")


def test_every_flipped_byte_of_the_value_log_is_refused(path, tmp_path):
    table = write(tmp_path / "t.sst", {b"a": value(1, 1001)})
    log = tmp_path / "t.vlog"
    sound = log.read_bytes()
    padding = {64 + 24 + 1001 + 8 + i for i in range(8)}
    with big(path) as db:
        for at in range(0, len(sound), 7):
            flip(log, at)
            if at not in padding:
                refused(db, path, [table], (lsmkv.CorruptionError, lsmkv.FormatError))
            log.write_bytes(sound)
        log.write_bytes(sound[:-20])
        refused(db, path, [table], lsmkv.CorruptionError)


def test_a_table_of_a_database_is_refused(path, tmp_path):
    with big(tmp_path / "other") as db:
        db.put(b"a", value(1))
    (table,) = with_suffix(tmp_path / "other", ".sst")
    with big(path) as db:
        refused(db, path, [tmp_path / "other" / table], ValueError, "value logs of a database")


def test_all_or_nothing(path, tmp_path):
    good = write(tmp_path / "good.sst", {b"a": value(1)})
    bad = write(tmp_path / "bad.sst", {b"b": value(2)})
    flip(tmp_path / "bad.vlog", 200)
    with big(path) as db:
        refused(db, path, [good, bad], lsmkv.CorruptionError)


def test_a_failed_copy_leaves_nothing(path, tmp_path, monkeypatch):
    def fail(source, target):
        shutil.copy(source, target)
        if target.endswith(".sst"):
            return
        raise OSError(28, "No space left on device", target)

    table = write(tmp_path / "t.sst")
    with big(path) as db:
        db.put(b"before", b"1")
        db.flush()
        before = with_suffix(path, ".sst")
        monkeypatch.setattr("lsmkv.ingest.copy_file", fail)
        with pytest.raises(lsmkv.IOError):
            db.ingest([table])
        assert with_suffix(path, ".sst") == before
        assert with_suffix(path, ".vlog") == []


# --- what is on disk -------------------------------------------------------------------------------------------------


def test_both_files_are_synced_before_the_edit(path, tmp_path, monkeypatch):
    events = []
    table = write(tmp_path / "t.sst")
    with big(path) as db:
        versions = db._versions

        def note(name, call):
            def noted(*args, **kwargs):
                events.append(name)
                return call(*args, **kwargs)

            return noted

        monkeypatch.setattr("lsmkv.checkpoint.sync_file", note("file", lsmkv.files.sync_file))
        monkeypatch.setattr("lsmkv.ingest.sync_directory", note("directory", lsmkv.files.sync_directory))
        monkeypatch.setattr(versions, "_stage", note("edit", versions._stage))
        db.ingest([table])
    assert events[:4] == ["file", "file", "directory", "edit"]


def test_the_manifest_names_the_value_log(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
        (f,) = db._versions.state.files()
    table, log = table_and_log(path)
    assert f.own_log == f.value_logs[0].number == int(os.path.basename(log).split(".")[0])
    assert f.own_log != f.number == int(os.path.basename(table).split(".")[0])
    assert f.value_logs[0].identity == ValueLog(log).identity
    assert ValueLog(log).stored_number == 0


def edit(extensions):
    """An edit of format 2 that adds a table with these extensions."""
    numbers = bytes([1, 7, 100, 1, 0, 0, 1, 1, 0, 40, 50, 20, 0, 0, 0, 0, 0, 0])  # level 1, file 7
    body = numbers + b"\x01a\x01b" + extensions
    return bytes([5, len(body)]) + body


USE = bytes([9]) + bytes(range(1, 9)) + bytes([1, 40, 100])
USES = bytes([2, len(USE)]) + USE


def test_extension_3_names_the_only_value_log():
    ((_, f),) = decode_edit(edit(USES + b"\x03\x01\x09"), format_version=2).trees[0].added
    assert (f.own_log, f.value_logs[0].number) == (9, 9)
    ((_, f),) = decode_edit(edit(USES), format_version=2).trees[0].added
    assert f.own_log == 0


@pytest.mark.parametrize(
    "extensions",
    [b"\x03\x01\x09", USES + b"\x03\x01\x08", USES + b"\x03\x01\x00", USES + b"\x03\x02\x09\x00", USES + b"\x03\x00"],
)
def test_a_malformed_extension_3_is_corruption(extensions):
    with pytest.raises(lsmkv.CorruptionError):
        decode_edit(edit(extensions), format_version=2)


def test_a_missing_or_wrong_value_log_refuses_the_open(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
    _, log = table_and_log(path)
    other = write(tmp_path / "other.sst").with_suffix(".vlog")
    for replacement in (None, other):
        sound = shutil.move(log, tmp_path / "sound")
        if replacement is not None:
            shutil.copy(replacement, log)
        assert lsmkv.verify(path).findings
        with pytest.raises(lsmkv.CorruptionError):
            big(path)
        shutil.move(sound, log)
    assert lsmkv.verify(path).findings == []


def test_verify_finds_a_damaged_value(path, tmp_path):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst", {b"a": value(1), b"b": value(2)})])
    _, log = table_and_log(path)
    with open(log, "r+b") as file:
        file.seek(200)
        file.write(b"x" * 8)
    (finding,) = lsmkv.verify(path).findings
    assert finding.file == os.path.basename(log)
    with big(path) as db:
        assert db[b"b"] == value(2)
        with pytest.raises(lsmkv.CorruptionError) as caught:
            db.get(b"a")
        assert caught.value.file == log


# --- repair ----------------------------------------------------------------------------------------------------------


def test_repair_with_a_manifest_keeps_the_table(path, tmp_path):
    with big(path) as db:
        db.put(b"x", value(99))
        db.flush()
        db.ingest([write(tmp_path / "t.sst")])
    assert lsmkv.repair(path, apply=False).losses == []
    os.unlink(os.path.join(path, "CURRENT"))
    assert lsmkv.repair(path).losses == []
    with big(path) as db:
        assert dict(db.iterator()) == {**ITEMS, b"x": value(99)}


def test_repair_without_a_manifest_finds_the_value_logs_by_their_identity(path, tmp_path):
    tables = [write(tmp_path / f"{i}.sst", {b"%d%d" % (i, j): value(10 * i + j) for j in range(3)}) for i in range(3)]
    expected = {b"%d%d" % (i, j): value(10 * i + j) for i in range(3) for j in range(3)}
    with big(path) as db:
        keep_still(db)
        db.put(b"x", value(99))
        db.flush()
        db.ingest(tables)
        db.put(b"11", b"newer")
        db.flush()
        assert sum(f.own_log != 0 for f in db._versions.state.files()) == 3
    for name in with_suffix(path, "CURRENT") + [n for n in names(path) if n.startswith("MANIFEST")]:
        os.unlink(os.path.join(path, name))
    report = lsmkv.repair(path)
    assert report.rebuilt
    assert report.losses == []
    with big(path) as db:
        assert dict(db.iterator()) == {**expected, b"x": value(99), b"11": b"newer"}
    assert lsmkv.verify(path).findings == []


@pytest.mark.parametrize("manifest", [True, False])
def test_repair_without_the_value_log_saves_the_small_values(path, tmp_path, manifest):
    with big(path) as db:
        db.ingest([write(tmp_path / "t.sst")])
    _, log = table_and_log(path)
    os.unlink(log)
    if not manifest:
        for name in [n for n in names(path) if n.startswith(("MANIFEST", "CURRENT"))]:
            os.unlink(os.path.join(path, name))
    assert lsmkv.repair(path).losses
    with big(path) as db:
        assert dict(db.iterator()) == {key: each for key, each in ITEMS.items() if len(each) < THRESHOLD}

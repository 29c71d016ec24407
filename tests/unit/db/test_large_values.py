"""Large values: they are in a value log, and every read, job and recovery finds them there."""

import os
import random
import shutil
import struct
import subprocess
import threading

import pytest
from databases import answers, keep_still, names

import lsmkv
from lsmkv.compaction.picker import Hints, choose
from lsmkv.recovery import stored_state
from lsmkv.version.version import TableMeta, Version
from lsmkv_ext.table.meta import ValueLogUse
from lsmkv_ext.wal.dump import LogDump

THRESHOLD = 1000


def value(seed, size=5000):
    return random.Random(seed).randbytes(size)


def big(path, flag="c", **options):
    return lsmkv.open(path, flag, **{"large_value_threshold": THRESHOLD, "large_value_compression": None, **options})


def vlogs(path):
    return sorted(name for name in os.listdir(path) if name.endswith(".vlog"))


def operations(path):
    """The names of the operations in all logs."""
    found = []
    for name in names(path):
        if name.endswith(".wal"):
            dump = LogDump(os.path.join(path, name))
            next(dump)
            found += [op[0] for record in dump if "operations" in record for op in record["operations"]]
    return found


def leave(db):
    pass


def flush(db):
    db.flush()


def compact(db):
    db.compact_range()


@pytest.mark.parametrize("settle", [leave, flush, compact])
@pytest.mark.parametrize("options", [{}, {"wal": "write"}, {"wal": None}, {"large_value_compression": "lz4"}])
def test_every_read_finds_the_value(path, settle, options):
    with big(path, **options) as db:
        keep_still(db)
        expected = {b"k%02d" % i: value(i, 100 * i) + bytes(50 * i) for i in range(40)}
        for key, each in expected.items():
            db.put(key, each)
        before = db.snapshot()
        settle(db)
        db.put(b"k39", b"newer")
        for key in (b"k00", b"k05", b"k10", b"k38"):
            assert answers(db, key) == {expected[key]}
            assert answers(before, key) == {expected[key]}
        assert answers(db, b"k39") == {b"newer"}
        assert answers(before, b"k39") == {expected[b"k39"]}
        assert dict(before.iterator()) == expected
        before.close()
    assert vlogs(path)
    with big(path, **options) as db:
        assert dict(db.iterator()) == {**expected, b"k39": b"newer"}
    assert lsmkv.verify(path).findings == []


def test_values_below_the_threshold_stay_inline(path):
    with big(path) as db:
        db.put(b"small", b"x" * (THRESHOLD - 1))
        assert not vlogs(path)
        db.put(b"large", b"x" * THRESHOLD)
        assert len(vlogs(path)) == 1
        assert operations(path) == ["put", "put_pointer"]
        assert answers(db, b"small") == {b"x" * (THRESHOLD - 1)}


def test_without_a_threshold_there_is_no_value_log(path):
    with lsmkv.open(path, large_value_threshold=None) as db:
        db.put(b"large", bytes(1 << 20))
        db.flush()
        assert not vlogs(path)


def test_a_batch_keeps_its_order_and_its_keyspaces(path):
    with big(path) as db:
        users = db.keyspace("users", large_value_threshold=None)
        with db.write_batch() as batch:
            batch.put(b"a", value(1))
            batch.put(b"a", value(2))
            batch.put(b"b", value(3), keyspace=users)
            batch.delete(b"c")
            batch.put(b"d", b"small", ttl=3600)
            batch.put(b"e", value(4), ttl=3600)
            batch.delete_range(b"x", b"y")
        assert operations(path)[-7:] == [
            *("put_pointer", "put_pointer", "put", "delete", "put", "put_pointer", "delete_range")
        ]
        expected = {b"a": value(2), b"d": b"small", b"e": value(4)}
        assert dict(db.iterator()) == expected
        assert dict(users.iterator()) == {b"b": value(3)}
        assert 3590 < db.ttl(b"e") <= 3600
        db.flush()
        assert dict(db.iterator()) == expected
    with big(path) as db:
        assert dict(db.iterator()) == expected
        assert dict(db.keyspace("users").iterator()) == {b"b": value(3)}
        assert db.ttl(b"a") is None


def test_updates_and_transactions_see_large_values(path):
    with big(path) as db:
        db.put(b"k", value(1))
        assert db.append(b"k", b"tail") == 5004
        assert db[b"k"] == value(1) + b"tail"
        assert db.compare_and_set(b"k", value(1) + b"tail", value(2))
        assert not db.compare_and_set(b"k", value(1), value(3))
        assert db.modify(b"k", lambda old: old + old) == value(2) * 2
        assert db.touch(b"k", 60)
        assert db[b"k"] == value(2) * 2
        with db.transaction() as t:
            assert t.get(b"k") == value(2) * 2
            t.put(b"other", value(4))
        assert db.pop(b"k") == value(2) * 2
        assert dict(db.iterator()) == {b"other": value(4)}


def test_a_value_log_is_full_before_recovery_has_to_read_much(path):
    with big(path, write_buffer_size=32768) as db:
        keep_still(db)
        for i in range(40):
            db.put(b"k%02d" % i, value(i, 4000))
        sizes = [os.path.getsize(os.path.join(path, name)) for name in vlogs(path)]
        assert len(sizes) >= 4
        assert max(sizes) < 32768 + 4100
        db.flush()
        assert {db[b"k%02d" % i] == value(i, 4000) for i in range(40)} == {True}


@pytest.mark.parametrize("move", [flush, compact])
def test_a_flush_cuts_off_what_was_written_ahead(path, tmp_path, move):
    """After a crash it stays, and nothing takes it for values."""
    copy = tmp_path / "crashed"
    with big(path) as db:
        keep_still(db)
        for i in range(60):
            db.put(b"k%02d" % i, value(i, 4000))
        (name,) = vlogs(path)
        assert os.path.getsize(os.path.join(path, name)) > db.stats().value_logs.bytes
        subprocess.run(["cp", "-r", path, copy], check=True)
        move(db)
        sizes = [os.path.getsize(os.path.join(path, name)) for name in vlogs(path)]
        assert sum(sizes) == db.stats().value_logs.bytes < 60 * 4100
    assert lsmkv.verify(copy).findings == []
    with big(copy) as db:
        assert {db[b"k%02d" % i] == value(i, 4000) for i in range(60)} == {True}


def test_a_value_log_of_overwritten_values_is_removed_by_its_flush(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"k", value(1))
        db.put(b"k", b"small")
        assert len(vlogs(path)) == 1
        db.flush()
        db._versions.collect_garbage()
        assert vlogs(path) == []
        assert db[b"k"] == b"small"


def test_a_snapshot_keeps_the_value_log_it_reads(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"k", value(1))
        db.flush()
        before = db.snapshot()
        db.put(b"k", b"small")
        db.compact_range()
        assert len(vlogs(path)) == 1
        assert before[b"k"] == value(1)
        before.close()
        db._versions.collect_garbage()
        assert vlogs(path) == []


def crash(path, tmp_path, name="crashed"):
    """A copy of the files as a kill would leave them."""
    target = tmp_path / name
    shutil.copytree(path, target)
    return target


@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_after_a_kill_every_value_is_there(path, tmp_path, wal):
    expected = {}
    with big(path, wal=wal) as db:
        for i in range(60):
            expected[b"k%02d" % i] = value(i, 500 + 50 * i)
            db.put(b"k%02d" % i, expected[b"k%02d" % i], sync=i == 20)
        copy = crash(path, tmp_path)
    with big(copy, wal=wal) as db:
        assert dict(db.iterator()) == expected
    with big(copy, "r") as db:
        assert dict(db.iterator()) == expected
    assert lsmkv.verify(copy).findings == []


def test_a_reader_beside_the_writer_sees_large_values(path):
    with big(path) as db:
        db.put(b"a", value(1))
        with lsmkv.open(path, "r") as reader:
            assert reader[b"a"] == value(1)
            db.put(b"b", value(2))
            reader.refresh()
            assert dict(reader.iterator()) == {b"a": value(1), b"b": value(2)}
            db.flush()
            reader.refresh()
            assert dict(reader.iterator()) == {b"a": value(1), b"b": value(2)}


def last_value(path):
    """(file, offset) of the end of the last value log."""
    name = vlogs(path)[-1]
    return os.path.join(path, name), os.path.getsize(os.path.join(path, name))


def test_an_unsynced_record_without_its_value_is_a_torn_tail(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        db.sync()
        db.put(b"b", value(2))
        db.put(b"c", b"small")
        copy = crash(path, tmp_path)
    file, size = last_value(copy)
    os.truncate(file, size - 100)
    with big(copy) as db:
        assert dict(db.iterator()) == {b"a": value(1)}
        assert len(db.recovery_report.torn) == 1
    with big(copy) as db:
        assert dict(db.iterator()) == {b"a": value(1)}


def test_an_unsynced_record_with_a_damaged_value_is_a_torn_tail(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        db.sync()
        db.put(b"b", value(2))
        copy = crash(path, tmp_path)
    file, size = last_value(copy)
    with open(file, "r+b") as f:
        f.seek(size - 2000)
        f.write(b"damage")
    with lsmkv.open(copy, "r") as db:
        assert dict(db.iterator()) == {b"a": value(1)}
    with big(copy) as db:
        assert dict(db.iterator()) == {b"a": value(1)}


def test_a_synced_record_without_its_value_is_corruption(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        db.put(b"b", value(2))
        db.sync()
        copy = crash(path, tmp_path)
    file, size = last_value(copy)
    os.truncate(file, size - 100)
    before = {name: (copy / name).read_bytes() for name in names(copy)}
    with pytest.raises(lsmkv.CorruptionError):
        big(copy)
    assert before == {name: (copy / name).read_bytes() for name in names(copy)}
    with big(copy, recovery="salvage") as db:
        assert dict(db.iterator()) == {b"a": value(1)}


def test_a_lost_value_log_above_the_watermark_is_a_torn_tail(path, tmp_path):
    with big(path) as db:
        db.put(b"a", b"small")
        db.put(b"b", value(2))
        copy = crash(path, tmp_path)
    os.unlink(last_value(copy)[0])
    with big(copy) as db:
        assert dict(db.iterator()) == {b"a": b"small"}


def test_a_value_log_of_another_identity_counts_as_missing(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        copy = crash(path, tmp_path)
        db.put(b"b", value(2))
        other = crash(path, tmp_path, "other")
    with big(other) as db:
        db.flush()
    with big(tmp_path / "third") as db:
        db.put(b"a", value(1))
        shutil.copy(last_value(tmp_path / "third")[0], last_value(copy)[0])
    with big(copy) as db:
        assert dict(db.iterator()) == {}


def test_a_table_whose_value_log_is_missing_or_short_refuses_the_open(path):
    with big(path) as db:
        db.put(b"a", value(1))
    file, size = last_value(path)
    os.truncate(file, size - 50)
    with pytest.raises(lsmkv.CorruptionError, match="shorter"):
        big(path)
    os.unlink(file)
    with pytest.raises(lsmkv.CorruptionError, match="missing"):
        big(path)


def test_a_damaged_value_raises_when_it_is_read_and_names_its_file(path):
    with big(path) as db:
        db.put(b"a", value(1))
        db.put(b"b", value(2))
    file, size = last_value(path)
    with open(file, "r+b") as f:
        f.seek(size - 2000)
        f.write(b"damage")
    with big(path) as db:
        assert db[b"a"] == value(1)
        for read in (lambda: db[b"b"], lambda: db.multi_get([b"a", b"b"]), lambda: list(db.iterator())):
            with pytest.raises(lsmkv.CorruptionError) as caught:
                read()
            assert caught.value.file == file
        assert b"b" in db
        assert list(db.iterator(include_value=False)) == [b"a", b"b"]


def test_orphans_are_swept(path):
    with big(path) as db:
        db.put(b"a", value(1))
    keep = vlogs(path)
    with open(os.path.join(path, "000999.vlog"), "wb") as f:
        f.write(b"lsmkvVLG")
    with big(path) as db:
        assert db[b"a"] == value(1)
        assert "000999.vlog" in db.recovery_report.orphans_removed
    assert vlogs(path) == keep


def test_a_database_of_format_1_is_upgraded_by_its_first_large_value(path, tmp_path):
    golden = os.path.join(os.path.dirname(__file__), "..", "..", "golden")
    old = next(name for name in sorted(os.listdir(golden)) if os.path.isdir(os.path.join(golden, name)))
    shutil.copytree(os.path.join(golden, old), tmp_path / "old")
    with big(tmp_path / "old") as db:
        db.put(b"large", value(1))
        assert db._versions.state.format_version == 2
        assert db[b"large"] == value(1)


def test_destroy_removes_value_logs(path):
    with big(path) as db:
        db.put(b"a", value(1))
    lsmkv.destroy(path)
    assert not os.path.exists(path)


def test_the_threshold_changes_on_an_open_database(path):
    with lsmkv.open(path, large_value_threshold=None) as db:
        db.put(b"a", value(1))
        db.set_options(large_value_threshold=THRESHOLD, large_value_compression="lz4")
        db.put(b"b", bytes(5000))
        assert operations(path) == ["put", "put_pointer"]
        db.set_options(large_value_threshold=None)
        db.put(b"c", value(3))
        assert operations(path)[-1] == "put"
        assert dict(db.iterator()) == {b"a": value(1), b"b": bytes(5000), b"c": value(3)}
        assert os.path.getsize(last_value(path)[0]) < 1000


def test_explain_names_the_place_of_the_value(path):
    with big(path) as db:
        db.put(b"a", value(1))
        place = db._explain(b"a")["value"]
        assert place["size"] == 5000
        assert f"{place['value_log']:06d}.vlog" in vlogs(path)


def test_the_manifest_counts_what_a_table_points_to(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"a", value(1, 4096))
        db.put(b"a", value(2, 4096))
        db.put(b"b", value(3, 4096))
        db.flush()
        (f,) = db._versions.state.files()
        (use,) = f.value_logs
        assert (use.values, use.bytes) == (2, 2 * (24 + 4096 + 8))
        assert use.end == os.path.getsize(last_value(path)[0])
        assert f.raw_bytes == 2 * 33


def test_a_hostile_pointer_in_a_log_is_corruption(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        copy = crash(path, tmp_path)
    name = next(name for name in names(copy) if name.endswith(".wal"))
    data = bytearray((copy / name).read_bytes())
    number = int(vlogs(copy)[-1].split(".")[0])
    at = data.index(struct.pack("<QQ", number, 64))
    data[at + 8] = 65  # no multiple of 8
    (copy / name).write_bytes(data)
    with big(copy) as db:  # the checksum of the record ends the log
        assert dict(db.iterator()) == {}


# Collection ---------------------------------------------------------------------------------------------------


def vlog_bytes(path):
    return sum(os.path.getsize(os.path.join(path, name)) for name in vlogs(path))


def settle(db):
    """Runs every compaction that is due."""
    work = db._work
    while True:
        with db._versions.lock:
            plan = work.claims.choose(work.compactions._read_hints())
            claim = None if plan is None else work.claims.add(plan)
        if claim is None:
            break
        work.compactions.run_claimed(claim)
    db._versions.collect_garbage()


def overwrite(db, rounds, keys=40, size=4000):
    rng = random.Random(rounds)
    expected = {}
    for n in range(rounds * keys):
        key = b"k%03d" % (n if n < keys else rng.randrange(keys))
        expected[key] = value(n, size)
        db.put(key, expected[key])
    return expected


TIGHT = {"write_buffer_size": 32768, "target_file_size": 8192, "max_background_jobs": 1}


def test_collection_bounds_the_bytes_of_value_logs(path):
    with big(path, **TIGHT) as db:
        keep_still(db)
        expected = overwrite(db, 6)
        db.flush()
        db.compact_range()
        settle(db)
        live = sum(use.bytes for f in db._versions.state.files() for use in f.value_logs)
        assert live <= 40 * 4200
        assert vlog_bytes(path) <= 1.5 * live
        assert dict(db.iterator()) == expected
    with big(path, **TIGHT) as db:
        assert dict(db.iterator()) == expected
    assert lsmkv.verify(path).findings == []


@pytest.mark.parametrize("size", [4 << 10, 16 << 10, 100 << 10, 1 << 20])
@pytest.mark.parametrize("logged", [1, 6])
def test_idle_value_logs_take_at_most_half_more_than_their_values(path, size, logged):
    """Values that all compactions which are due leave behind, with one or a few of them in a value log."""
    never = {"l0_slowdown_trigger": 1000, "l0_stop_trigger": 1000}
    with big(path, write_buffer_size=max(64 << 10, logged * size), max_background_jobs=1, **never) as db:
        keep_still(db)
        expected = overwrite(db, 3, keys=30, size=size)
        db.flush()
        settle(db)
        live = sum(use.bytes for f in db._versions.state.files() for use in f.value_logs)
        assert live >= 30 * size
        assert vlog_bytes(path) <= 1.5 * live
        assert db.stats().value_logs.bytes == vlog_bytes(path)
        assert all(db[key] == each for key, each in expected.items())


def test_readers_keep_what_is_collected(path):
    with big(path, **TIGHT) as db:
        keep_still(db)
        first = overwrite(db, 1)
        db.flush()
        before = db.snapshot()
        walking = db.iterator()
        next(walking)
        expected = overwrite(db, 5)
        db.flush()
        db.compact_range()
        settle(db)
        assert dict(before.iterator()) == first
        assert dict(walking) == {key: each for key, each in first.items() if key != b"k000"}
        assert dict(db.iterator()) == expected
        before.close()
        walking.close()
        settle(db)
        live = sum(use.bytes for f in db._versions.state.files() for use in f.value_logs)
        assert vlog_bytes(path) <= 1.5 * live


def test_a_damaged_value_is_not_collected_and_stops_no_compaction(path):
    with big(path, **TIGHT, value_gc_ratio=100) as db:
        keep_still(db)
        db.put(b"damaged", value(1))
        db.put(b"good", value(2))
        db.flush()
        file, _ = last_value(path)
        for i in range(8):
            db.put(b"other", value(i + 10))
        db.flush()
    with open(file, "r+b") as f:
        f.seek(200)
        f.write(b"damage")
    with big(path, **TIGHT) as db:
        keep_still(db)
        db.put(b"more", value(3))
        db.compact_range()
        settle(db)
        assert os.path.exists(file)
        assert (db[b"good"], db[b"more"]) == (value(2), value(3))
        with pytest.raises(lsmkv.CorruptionError):
            db.get(b"damaged")


def test_a_kill_in_a_collection_loses_nothing(path, tmp_path):
    """The edit that names the new value log is the step that counts: before it the old files are whole."""
    with big(path, **TIGHT) as db:
        keep_still(db)
        expected = overwrite(db, 3)
        db.flush()
        copies = []
        apply = db._versions.apply

        def watched(*args, **kwargs):
            copies.append(crash(path, tmp_path, f"before{len(copies)}"))
            apply(*args, **kwargs)
            copies.append(crash(path, tmp_path, f"after{len(copies)}"))

        db._versions.apply = watched
        db.compact_range()
        settle(db)
        assert dict(db.iterator()) == expected
        db._versions.apply = apply
    assert len(copies) > 2
    for copy in copies:
        with big(copy, **TIGHT) as db:
            assert dict(db.iterator()) == expected


def test_a_checkpoint_has_the_value_logs_and_shares_them(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        db.checkpoint(tmp_path / "copy")
        db.put(b"a", value(2))
        db.compact_range()
        settle(db)
        (name,) = vlogs(tmp_path / "copy")
        assert not os.path.exists(os.path.join(path, name))
    with big(tmp_path / "copy") as db:
        assert db[b"a"] == value(1)
        db.put(b"b", value(3))
    assert lsmkv.verify(tmp_path / "copy").findings == []


def test_dropping_a_keyspace_frees_its_value_logs(path):
    with big(path) as db:
        db.keyspace("users").put(b"a", value(1))
        db.flush()
        assert len(vlogs(path)) == 1
        db.drop_keyspace("users")
        db._versions.collect_garbage()
        assert vlogs(path) == []


def test_a_filter_rebuild_keeps_the_pointers(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"a", value(1))
        db.flush()
        db.set_options(bits_per_key=20)
        db.rebuild_filters()
        assert db[b"a"] == value(1)
    with big(path) as db:
        assert db[b"a"] == value(1)
    assert lsmkv.verify(path).findings == []


def test_a_reader_that_misses_a_value_log_is_mended_by_refresh(path):
    with big(path, **TIGHT) as db:
        keep_still(db)
        first = overwrite(db, 1, keys=60)
        db.flush()
        with lsmkv.open(path, "r", max_open_files=8) as reader:
            expected = overwrite(db, 4, keys=60)
            db.flush()
            db.compact_range()
            settle(db)
            raised = 0
            for key, each in first.items():
                try:
                    assert reader[key] == each
                except lsmkv.IOError as error:
                    assert "refresh()" in str(error)
                    raised += 1
            assert raised
            reader.refresh()
            assert dict(reader.iterator()) == expected


# Verify and repair ----------------------------------------------------------------------------------------------


def damage(file, at=300):
    with open(file, "r+b") as f:
        f.seek(at)
        f.write(b"damage")


def test_verify_finds_a_damaged_value_of_a_table_and_of_a_log(path, tmp_path):
    with big(path) as db:
        db.put(b"a", value(1))
        copy = crash(path, tmp_path)
    for folder in (path, copy):
        damage(last_value(folder)[0])
        assert not lsmkv.verify(folder).ok


def test_repair_without_a_manifest_finds_the_values(path):
    with big(path, **TIGHT) as db:
        keep_still(db)
        expected = overwrite(db, 2)
        db.flush()
    for name in names(path):
        if name.startswith(("MANIFEST", "CURRENT")):
            os.unlink(os.path.join(path, name))
    report = lsmkv.repair(path)
    assert report.rebuilt and not report.losses
    with big(path) as db:
        assert dict(db.iterator()) == expected


@pytest.mark.parametrize("manifest", [True, False])
def test_repair_saves_the_values_of_the_other_value_logs(path, manifest):
    with big(path) as db:
        keep_still(db)
        db.put(b"lost", value(1))
        db.put(b"small", b"small")
        db.flush()
        lost, _ = last_value(path)
        db.put(b"kept", value(2))
        db.flush()
    os.unlink(lost)
    if not manifest:
        os.unlink(os.path.join(path, "CURRENT"))
        for name in names(path):
            if name.startswith("MANIFEST"):
                os.unlink(os.path.join(path, name))
    assert lsmkv.repair(path).losses
    with big(path) as db:
        assert dict(db.iterator()) == {b"kept": value(2), b"small": b"small"}


def test_repair_leaves_operations_out_whose_values_are_missing(path, tmp_path):
    with big(path) as db:
        db.put(b"a", b"small")
        db.put(b"b", value(1))
        db.put(b"c", b"small")
        db.sync()
        copy = crash(path, tmp_path)
    os.unlink(last_value(copy)[0])
    with pytest.raises(lsmkv.CorruptionError):
        big(copy)
    report = lsmkv.repair(copy)
    assert any("values are missing" in loss for loss in report.losses)
    with big(copy) as db:
        assert dict(db.iterator()) == {b"a": b"small", b"c": b"small"}


def test_a_close_without_a_flush_keeps_the_value_logs_of_its_log(path):
    db = big(path)
    db.put(b"a", value(1))
    db._versions.values.arrived()  # as a rotation says
    db._shut(flush=False)
    with big(path) as db:
        assert db[b"a"] == value(1)


def test_a_collection_merges_tables_of_l0_down():
    use = ValueLogUse(7, 1, 1, 100, 164)
    tables = [
        TableMeta(number=n, size=10, entries=1, smallest=b"a", largest=b"b", max_seq=n, value_logs=(use,))
        for n in (1, 2)
    ]
    version = Version().with_levels({0: tables})
    plan = choose(version, lsmkv.Options(l0_compaction_trigger=4), hints=Hints(collect=frozenset({7})))
    assert (plan.level, plan.output_level, len(plan.inputs)) == (0, 1, 2)
    assert choose(version, lsmkv.Options(l0_compaction_trigger=4), hints=Hints(collect=frozenset({8}))) is None


# Views and statistics ---------------------------------------------------------------------------------------------


def test_a_view_shows_the_value_and_keeps_it(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"large", value(1, 100_000))
        db.put(b"small", b"small")
        view, small = db.get(b"large", copy=False), db.get(b"small", copy=False)
        assert isinstance(view, memoryview) and view.readonly
        assert bytes(view) == value(1, 100_000)
        assert bytes(small) == b"small"
        assert db.get(b"missing", copy=False) is None
        db.flush()
        flushed = db.get(b"large", copy=False)
        db.put(b"large", b"gone")
        db.compact_range()
        settle(db)
        assert bytes(view) == bytes(flushed) == value(1, 100_000)
        assert len(vlogs(path)) == 1
        del view, flushed
        settle(db)
        assert vlogs(path) == []


def test_a_view_outlives_the_database(path):
    with big(path) as db:
        db.put(b"large", value(1))
        view = db.get(b"large", copy=False)
    assert bytes(view) == value(1)


def test_a_view_of_a_compressed_value_is_a_copy(path):
    with big(path, large_value_compression="lz4") as db:
        db.put(b"large", bytes(5000))
        assert bytes(db.get(b"large", copy=False)) == bytes(5000)


def test_a_view_of_a_damaged_value_is_refused(path):
    with big(path) as db:
        db.put(b"large", value(1))
    damage(last_value(path)[0])
    with big(path) as db, pytest.raises(lsmkv.CorruptionError):
        db.get(b"large", copy=False)


def test_the_statistics_tell_live_bytes_from_garbage(path):
    with big(path) as db:
        keep_still(db)
        for i in range(6):
            db.put(b"k%d" % (i % 4), value(i, 4096))
        db.flush()
        found = db.stats()
        (size,) = [os.path.getsize(os.path.join(path, name)) for name in vlogs(path)]
        assert (found.value_logs.files, found.value_logs.bytes) == (1, size)
        assert found.value_logs.live_bytes == 4 * 4128
        assert found.value_logs.garbage_bytes == size - 4 * 4128
        assert found.value_logs.written_bytes == 6 * 4128
        assert 1 < found.writes.written_per_byte < 1.2


def test_repair_keeps_the_expiries_of_what_it_saves(path):
    with big(path) as db:
        keep_still(db)
        db.put(b"lost", value(1))
        db.put(b"timed", b"small", ttl=3600)
        db.flush()
    os.unlink(last_value(path)[0])
    assert lsmkv.repair(path).losses
    with big(path) as db:
        assert dict(db.iterator()) == {b"timed": b"small"}
        assert 3500 < db.ttl(b"timed") <= 3601


def test_a_reader_starts_over_if_a_value_log_goes_while_it_reads(path, monkeypatch):
    """Otherwise the log of a flush, whose value log is gone, would look torn."""
    with big(path) as db:
        keep_still(db)
        db.put(b"k", value(1))
        db.put(b"k", b"small")
        db.put(b"last", b"small")
        check, moved = stored_state.check_logs, []

        def late(versions, report):
            if not moved:
                moved.append(True)
                log = next(name for name in names(path) if name.endswith(".wal"))
                kept = (path / log).read_bytes()
                flusher = threading.Thread(target=db.flush)  # this thread is inside an open
                flusher.start()
                flusher.join()
                db._versions.collect_garbage()
                (path / log).write_bytes(kept)  # the reader has it open
                try:
                    return check(versions, report)
                finally:
                    (path / log).unlink()
            return check(versions, report)

        monkeypatch.setattr(stored_state, "check_logs", late)
        with lsmkv.open(path, "r") as reader:
            assert dict(reader.iterator()) == {b"k": b"small", b"last": b"small"}
    assert moved


def test_the_end_of_a_deleted_range_is_no_value(path):
    """It went the way of large values, where a full disk lost the delete."""
    with big(path, large_value_threshold=64) as db:
        db[b"a"] = b"small"
        db.delete_range(b"a", b"b" * 100)
        assert list(db) == [] and vlogs(path) == []


def test_a_new_value_log_keeps_its_writer_beside_the_removal_of_unused_ones(path):
    """Without its writer it was never synced."""
    with big(path) as db:
        db[b"a"] = value(1)  # a first writer, or nothing would be removed
        versions = db._versions
        created = []
        creator = threading.Thread(target=lambda: created.append(versions.new_value_log()))

        class Writers(dict):
            def items(self):
                creator.start()
                creator.join(0.3)
                return super().items()

        versions.values._writers = Writers(versions.values._writers)
        with versions.lock:
            versions.values.unused(versions.state.files())
        creator.join()
        assert created[0].log.number in versions.values._writers


def test_a_new_value_log_keeps_its_writer_until_the_engine_has_it(path):
    with big(path) as db:
        db[b"a"] = value(1)
        versions = db._versions
        writer = versions.new_value_log()
        for arrived in (False, True):
            with versions.lock:
                versions.values.unused(versions.state.files())
            assert (writer.number in versions.values._writers) is not arrived
            versions.values.arrived()


def test_a_conflict_leaves_no_garbage(path):
    with big(path) as db:
        tx = db.transaction()
        tx.get(b"k")
        tx.put(b"k", value(1))
        db[b"k"] = b"small"
        with pytest.raises(lsmkv.ConflictError):
            tx.commit()
        assert vlogs(path) == [] and tx.committed == 0

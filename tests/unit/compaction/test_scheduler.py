"""The background threads: errors, idle work, closing."""

import os
import shutil
import subprocess
import threading
import time

import pytest

import lsmkv
from lsmkv.compaction import automatic
from lsmkv.compaction.picker import l0_worth_merging


def test_a_corrupt_block_stops_its_compaction_and_nothing_else(tmp_path):
    path = tmp_path / "db"
    options = {"l0_compaction_trigger": 100, "l0_slowdown_trigger": 100, "l0_stop_trigger": 100}
    with lsmkv.open(path, **options) as db:
        for prefix in (b"a", b"m"):
            for i in range(300):
                db[prefix + b"%04d" % i] = os.urandom(50)
            db.flush()
    victim = min(path.glob("*.sst"))
    data = bytearray(victim.read_bytes())
    data[40] ^= 1
    victim.write_bytes(bytes(data))
    with lsmkv.open(path, **options) as db:
        with pytest.raises(lsmkv.CorruptionError, match=victim.name) as raised:
            db.get(b"a0000")
        assert raised.value.file.endswith(victim.name)
        assert raised.value.offset is not None
        assert db.get(b"a0299") is not None
        for i in range(10):
            db[b"a%04d" % i] = b"new"
            db[b"m%04d" % i] = b"new"
        db.flush()
        with pytest.raises(lsmkv.CorruptionError):
            db.compact_range(b"a", b"b")
        assert victim.exists()
        assert db[b"a0000"] == b"new" and db[b"m0000"] == b"new" and len(db[b"m0299"]) == 50
        db[b"z"] = b"writes go on"
        db.flush()
    assert db.closed


def test_a_full_disk_heals(tmp_path):
    """A quota in the shape of a small file system: skipped where none can be mounted."""
    mount = tmp_path / "small"
    mount.mkdir()
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or os.system(f"mount -t tmpfs -o size=24m none {mount} 2>/dev/null")
    ):
        pytest.skip("needs to mount a small tmpfs")
    try:
        filler = mount / "filler"
        with lsmkv.open(mount / "db", write_buffer_size=65536) as db:
            db[b"before"] = b"1"
            db.flush()
            with open(filler, "wb", buffering=0) as file, pytest.raises(OSError):
                while file.write(b"x" * 4096):
                    pass
            acknowledged = {}
            with pytest.raises(lsmkv.IOError) as raised:
                for i in range(100_000):
                    key = b"%06d" % i
                    db[key] = os.urandom(100)
                    acknowledged[key] = db[key]
            assert raised.value.errno == 28
            assert db[b"before"] == b"1"
            assert all(db[key] == value for key, value in acknowledged.items())
            filler.unlink()
            db[b"after"] = b"2"
            db.flush()
            assert db[b"after"] == b"2"
            assert all(db[key] == value for key, value in acknowledged.items())
        with lsmkv.open(mount / "db") as db:
            assert db[b"after"] == b"2"
            assert all(db[key] == value for key, value in acknowledged.items())
    finally:
        # A closed database holds nothing: its note of what is synced once stayed mapped.
        subprocess.run(["umount", mount], check=True)


def test_closing_ends_a_manual_compaction(tmp_path):
    db = lsmkv.open(tmp_path / "db", l0_compaction_trigger=100, l0_slowdown_trigger=100, l0_stop_trigger=100)
    for part in range(2):
        with db.write_batch() as batch:
            for i in range(100_000):
                batch.put(b"%08d" % (i * 2 + part), b"v" * 50)
        db.flush()
    outcome = []

    def compact():
        try:
            db.compact_range()
            outcome.append("done")
        except lsmkv.ClosedError:
            outcome.append("closed")

    thread = threading.Thread(target=compact)
    thread.start()
    while not db._scheduler.running.progress() and thread.is_alive():
        time.sleep(0)
    db.close()
    thread.join()
    assert outcome in (["done"], ["closed"])
    assert lsmkv.verify(tmp_path / "db")


@pytest.mark.parametrize(("young", "merged"), [(2000, True), (20, False)])
def test_an_idle_database_merges_the_last_table_of_l0_if_that_is_worth_it(tmp_path, monkeypatch, young, merged):
    monkeypatch.setattr(automatic, "IDLE_SECONDS", 0.05)
    with lsmkv.open(tmp_path / "db", level_size_ratio=4) as db:
        for i in range(4000):
            db[b"%06d" % i] = b"old%d" % i
        db.compact_range()
        for i in range(0, 4000, 4000 // young):
            db[b"%06d" % i] = b"new%d" % i
        db.flush()
        assert merged or not l0_worth_merging(db._versions.default.current, db.options)
        deadline = time.monotonic() + 60
        while merged and db._versions.default.current.levels[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [len(files) for files in db._versions.default.current.levels[:2]] == ([0, 1] if merged else [1, 1])
        assert db[b"000000"] == b"new0"

"""`verify` finds any flipped byte in any file; `repair` recovers the database."""

import random
import shutil
from pathlib import Path

import pytest
from toolrunner import tool

import lsmkv

FLIPS_PER_FILE = 60


def build(path, wal):
    """Make a database with every kind of file, and a log with synced and unsynced records."""
    scratch = path.with_name("scratch")
    with lsmkv.open(scratch, wal=wal) as db:
        db._work.claims.suspended += 1
        for i in range(300):
            db.put(b"k%04d" % i, b"v%d" % i * 3)
        db.delete_range(b"k0010", b"k0012")
        db.flush()
        db._scheduler.wait_idle()  # the flush also removes its log
        for i in range(10):
            db.put(b"m%04d" % i, b"w" * 20, sync=i % 3 == 0)
        shutil.copytree(scratch, path, ignore=shutil.ignore_patterns("*.tmp"))


def offsets(size, is_log):
    """Return offsets spread over the file from a random start; of a log mostly its header and records."""
    dense = min(size, 5200) if is_log else size
    step = max(1, dense // FLIPS_PER_FILE)
    found = list(range(random.randrange(step), dense, step))
    return found + ([size - 1, size // 2] if size > dense else [])


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["shallow", "deep"])
@pytest.mark.parametrize("wal", ["mmap", "write"])
def test_each_flipped_byte_is_found_and_its_file_named(tmp_path, wal, deep):
    db = tmp_path / "db"
    build(db, wal)
    assert tool("verify", db, *deep).code == 0
    kinds = set()
    for path in sorted(db.iterdir()):
        data = path.read_bytes()
        kinds.add(path.name.rstrip("0123456789") if "MANIFEST" in path.name else path.suffix or path.name)
        with path.open("r+b", buffering=0) as file:
            for offset in offsets(len(data), path.suffix == ".wal"):
                flip = 1 << random.randrange(8)
                file.seek(offset)
                file.write(bytes([data[offset] ^ flip]))
                outcome = tool("verify", db, *deep)
                assert outcome.code == 1, f"{path.name}: byte {offset} ^ {flip} is not found"
                assert path.name in outcome.out, f"{path.name}: byte {offset} ^ {flip}: {outcome.out}"
                file.seek(offset)
                file.write(data[offset : offset + 1])
    assert kinds == {".sst", ".wal", "MANIFEST-", "CURRENT", "OPTIONS", "SYNCED", "LOCK"}
    assert tool("verify", db, *deep).code == 0


def test_the_finding_has_file_and_offset(tmp_path):
    db = tmp_path / "db"
    build(db, "write")
    (table,) = db.glob("*.sst")
    data = bytearray(table.read_bytes())
    data[5] ^= 1
    table.write_bytes(data)
    found = tool("verify", db, "--json").json["result"]
    assert [(row["file"], row["offset"]) for row in found["rows"]] == [(table.name, 0)]
    assert found["files"] == len(list(db.iterdir()))


@pytest.mark.parametrize("victim", ["*.sst", "MANIFEST-*", "CURRENT", "*.wal"])
def test_a_missing_file_is_found(tmp_path, victim):
    db = tmp_path / "db"
    build(db, "write")
    path = min(db.glob(victim))  # the live log; the next one may exist already
    path.unlink()
    outcome = tool("verify", db)
    assert outcome.code == 1 and path.name in outcome.out


@pytest.mark.parametrize("victim", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_repair_recovers_a_damaged_database(tmp_path, victim):
    db = tmp_path / "db"
    build(db, "write")
    (path,) = db.glob(victim)
    data = bytearray(path.read_bytes())
    data[200 if victim.startswith("MANIFEST") else len(data) // 2] ^= 1  # not only a note in the manifest's head
    path.write_bytes(data)
    before = {p.name: p.read_bytes() for p in db.iterdir() if p.is_file()}
    dry = tool("repair", db)
    assert dry.code == 1 and "Nothing was changed" in dry.out
    assert {p.name: p.read_bytes() for p in db.iterdir() if p.is_file()} == before
    done = tool("repair", db, "--apply", "--yes", "--json")
    assert done.code in (0, 1) and done.json["result"]["applied"]
    assert (done.code == 1) == bool(done.json["result"]["losses"])
    assert tool("verify", db, "--deep").code == 0
    with lsmkv.open(db, "r") as handle:
        assert handle.get(b"m0009") == b"w" * 20
        if victim != "*.sst":
            assert handle.get(b"k0299") == b"v299" * 3 and handle.get(b"k0011") is None


def test_repair_without_yes_and_terminal_is_refused(tmp_path):
    db = tmp_path / "db"
    build(db, "write")
    assert tool("repair", db, "--apply").code == 2
    assert tool("repair", db).code == 0


def test_repair_says_each_thing_once(lab):
    table = min(Path("mydb").glob("*.sst"))
    for victim in (*Path("mydb").glob("MANIFEST-*"), *Path("media").glob("*.vlog")):
        victim.unlink()
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    for db in ("mydb", "media"):
        lines = tool("repair", db).out.splitlines()
        assert any(line.startswith("lost: ") for line in lines)
        assert len(set(lines)) == len(lines)

"""The `vlog` commands, and what the others say about large values."""

import os
import random

import pytest
from toolrunner import rows, tool

import lsmkv


@pytest.fixture
def large(tmp_path):
    path = str(tmp_path / "large")
    with lsmkv.open(path, large_value_threshold=1000, wal="write") as db:
        db._work.claims.suspended += 1
        for i in range(8):
            db.put(b"k%d" % (i % 6), random.Random(i).randbytes(5000))
        db.put(b"small", b"small")
        db.flush()
        db.put(b"logged", bytes(2000))
        db._shut(flush=False)
    return path


def test_ls_tells_live_values_from_garbage(large):
    first, second = rows("vlog", "ls", large)
    assert (first["tables"], first["values"], second["tables"]) == (1, 6, 0)
    assert first["live"] == 6 * 5032
    assert first["garbage"] == first["size"] - first["live"]
    assert "garbage" in tool("vlog", "ls", large).out


def test_info_prints_the_head(large):
    first, _ = rows("vlog", "info", large)
    assert first["file"].endswith(f"{first['number']:06d}.vlog")
    assert len(first["identity"]) == 16


def test_verify_finds_a_damaged_value(large):
    done = tool("vlog", "verify", large)
    assert done.code == 0
    file = rows("vlog", "ls", large)[0]["file"]
    with open(file, "r+b") as f:
        f.seek(os.path.getsize(file) - 100)
        f.write(b"damage")
    assert tool("vlog", "verify", large).code == 1
    assert tool("verify", large).code == 1


def test_verify_skips_a_table_that_a_running_database_has_not_finished(large):
    with lsmkv.open(large):
        with open(os.path.join(large, "000900.sst"), "wb") as f:
            f.write(b"unfinished")
        assert tool("vlog", "verify", large).code == 0
    with open(os.path.join(large, "000900.sst"), "wb") as f:
        f.write(b"left over")
    assert tool("vlog", "verify", large).code == 1


def test_the_dump_of_a_log_names_the_place_of_a_value(large):
    (row,) = [row for row in rows("wal", "dump", large) if row["op"] == "put_pointer"]
    assert row["value"].endswith(".vlog:64, 2000 bytes")

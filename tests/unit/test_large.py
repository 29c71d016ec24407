"""The largest values and keys, and scans of more than fits the memory they may use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lsmkv

LARGEST = 1 << 30

SCAN = """
import sys, lsmkv
def resident():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
db = lsmkv.open(sys.argv[1], "r", block_cache_size=1 << 20, row_cache_size=0)
def scan(reverse=False):
    return sum(len(key) + len(value) for key, value in db.items(reverse=reverse))
sum(1 for _ in db.items(stop=b"0010"))
before = resident()
total = scan() + scan(True)
print(total, resident() - before)
"""


def available():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory")
def test_memory_stays_flat_over_a_full_scan(tmp_path):
    with lsmkv.open(tmp_path / "db", compression=None, wal=None) as db:
        for n in range(6000):
            db.put(b"%04d" % n, os.urandom(64) * 160)
    run = [sys.executable, "-c", SCAN, str(tmp_path / "db")]
    total, grown = map(int, subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())
    assert total == 2 * 6000 * (4 + 10240)
    assert grown < total // 2 // 4


def test_a_value_of_a_gibibyte(tmp_path):
    """In the log, the memtable and a table, each of which is a copy."""
    if available() < 10 * LARGEST:
        pytest.skip("a value of 1 GiB needs 10 GiB of free memory")
    value = bytes(LARGEST)
    with lsmkv.open(tmp_path / "db", block_cache_size=0) as db:
        db._work.claims.suspended += 1  # an idle database would merge its L0 meanwhile
        db.put(b"k" * 65535, value)
        db.flush()
        assert db.get(b"k" * 65535) == value
        assert len(db._versions.default.current.levels[0]) == 1


def test_larger_values_are_refused(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        with pytest.raises(ValueError, match="1 GiB"):
            db.put(b"k", bytes(LARGEST + 1))
        with db.write_batch() as batch, pytest.raises(ValueError, match="1 GiB"):
            batch.put(b"k", bytes(LARGEST + 1))
        assert list(db) == []

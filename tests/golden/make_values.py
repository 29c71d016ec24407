"""Makes the database of format 2 with value logs: `python tests/golden/make_values.py` (once)."""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv

TARGET = Path(__file__).parent / "values-2"
LATEST = 90_000_000_000  # an expiry, in seconds
OPTIONS = {"large_value_threshold": 1000, "target_file_size": 8192, "block_size": 1024}


def value(seed, size):
    """Half of it shrinks."""
    return random.Random(seed).randbytes(size // 2) + bytes(size - size // 2)


def contents():
    rows = {b"key%03d" % i: value(i, 100 * i) for i in range(40)}
    rows |= {b"key%03d" % i: value(i + 1000, 2000) for i in range(0, 40, 5)}
    rows |= {b"wide": value(7, 150_000), b"logged": value(8, 3000), b"small": b"small"}
    return rows, {b"packed%d" % i: value(i, 5000) for i in range(6)}


def make(path):
    db = lsmkv.open(path, **OPTIONS)
    db._work.claims.suspended += 1
    packed = db.keyspace("packed", large_value_compression="lz4")
    for i in range(40):
        db.put(b"key%03d" % i, value(i, 100 * i), expire_at=LATEST if i % 2 else None)
    for key, each in contents()[1].items():
        packed.put(key, each)
    db.flush()
    for i in range(0, 40, 5):
        db.put(b"key%03d" % i, value(i + 1000, 2000))
    # A compaction copies values out of the first value log.
    db.set_options(value_gc_ratio=1.1)
    db.compact_range()
    db.put(b"wide", value(7, 150_000))
    db.put(b"logged", value(8, 3000))
    db.put(b"small", b"small")
    db.sync()
    db._shut(flush=False)


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK", "RESERVE"))
    cut_logs(TARGET)

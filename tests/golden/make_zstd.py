"""Makes the database of format 2 with zstd: `python tests/golden/make_zstd.py` (once)."""

import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv

TARGET = Path(__file__).parent / "zstd-2"
OPTIONS = {"target_file_size": 16384, "block_size": 1024, "compression": ["lz4", "zstd"], "large_value_threshold": 4000}


def record(i):
    return b'{"id": %d, "name": "person %d", "plan": "%s", "active": true}' % (i * 977, i % 90, b"basic" * (i % 3))


def contents():
    rows = {b"key%05d" % i: record(i) for i in range(900) if not 100 <= i < 200}
    rows |= {b"logged%02d" % i: record(i) * 2 for i in range(20)}
    texts = {b"text%d" % i: record(i) * 120 for i in range(6)} | {b"zeros": bytes(100_000), b"": b"the empty key"}
    return rows, texts


def make(path):
    db = lsmkv.open(path, **OPTIONS)
    db._work.claims.suspended += 1
    texts = db.keyspace("texts", compression="zstd", large_value_compression="zstd")
    texts._work.claims.suspended += 1
    for i in range(900):
        db.put(b"key%05d" % i, record(i))
    db.delete_range(b"key00100", b"key00200")
    for key, value in contents()[1].items():
        texts.put(key, value)
    db.flush()
    db.compact_range()
    for i in range(20):
        db.put(b"logged%02d" % i, record(i) * 2)
        if i == 9:
            db.flush()
    db.sync()
    db._shut(flush=False)


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK", "RESERVE"))
    cut_logs(TARGET)

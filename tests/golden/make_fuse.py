"""Makes the database of format 2 with fuse filters: `python tests/golden/make_fuse.py` (once)."""

import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv
from lsmkv_ext.filter.fuse import set_min_keys

TARGET = Path(__file__).parent / "fuse-2"
OPTIONS = {"target_file_size": 8192, "block_size": 1024, "prefix_extractor": 4, "filter": "fuse"}


def contents():
    rows = {b"key%05d" % i: b"value %d" % i for i in range(0, 1800, 2)}
    return rows, {b"key%05d" % i: b"narrow" for i in range(300)}


def make(path):
    """Widths 8, 4 and 12, Bloom filters beside them, and a table for which two attempts failed."""
    from lsmkv_ext.filter.fuse import fail_next

    rows, narrow = contents()
    db = lsmkv.open(path, **OPTIONS, bits_per_key=[9, 13.5])
    db._work.claims.suspended += 1
    other = db.keyspace("narrow", bits_per_key=4.5)
    for key in list(rows)[::2]:
        db.put(key, rows[key])
    for key, value in narrow.items():
        other.put(key, value)
    db.flush()
    for key in list(rows)[1::2]:
        db.put(key, rows[key])
    db.compact_range()
    for key in list(rows)[::3]:
        db.put(key, rows[key])
    fail_next(2)
    db.flush()
    db.set_options(filter="bloom")
    for key in list(rows)[::5]:
        db.put(key, rows[key])
    db.flush()
    db.close()


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    set_min_keys(100)
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK", "RESERVE"))
    cut_logs(TARGET)

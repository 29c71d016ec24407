"""Makes the database whose fuse filters have four positions: `python tests/golden/make_fuse_four.py` (once)."""

import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv

TARGET = Path(__file__).parent / "fuse-four-2"
KEYS = 20_000  # the fewest with four positions
OPTIONS = {"filter": "fuse", "bits_per_key": 9, "compression": "zstd"}


def key(i):
    return b"%05x" % i


def make(path):
    """Widths 8 and 5; for the second filter two attempts failed. Only even numbers are keys."""
    from lsmkv_ext.filter.fuse import fail_next

    db = lsmkv.open(path, **OPTIONS)
    narrow = db.keyspace("narrow", bits_per_key=6)
    for i in range(0, 2 * KEYS, 2):
        db.put(key(i), b"")
    db.flush()
    for i in range(0, 2 * KEYS, 2):
        narrow.put(key(i), b"")
    fail_next(2)
    db.flush()
    db.close()


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK", "RESERVE"))
    cut_logs(TARGET)

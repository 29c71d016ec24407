"""Makes the database of format 2 with prefixes of several lengths: `python tests/golden/make_prefixes.py` (once)."""

import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv

TARGET = Path(__file__).parent / "prefixes-2"
OPTIONS = {"prefix_extractor": [2, 5, 9], "bits_per_key": 20}


def contents():
    orders = [(customer, order) for customer in range(6) for order in range(customer, 30, 3)]
    rows = {b"c%02d:o%04d:%d" % (*each, line): b"%d" % line for each in orders for line in range(2)}
    return rows | {b"c": b"short"}


def make(path):
    with lsmkv.open(path, **OPTIONS) as db:
        db._work.claims.suspended += 1
        for n, (key, value) in enumerate(contents().items()):
            db.put(key, value)
            if n % 40 == 39:
                db.flush()


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK", "RESERVE"))
    cut_logs(TARGET)

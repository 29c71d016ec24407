"""Makes the database of format 2 with expiries: `python tests/golden/make_expiry.py` (once)."""

import shutil
import sys
import tempfile
from pathlib import Path

from make import cut_logs

import lsmkv

TARGET = Path(__file__).parent / "expiry-2"
BEGIN, END = 1_000_000, 1_000_100  # when it was made, in seconds
SOON, LATER, LATEST = BEGIN + 50, 3_000_000, 90_000_000_000  # expiries
OPTIONS = {"write_buffer_size": 64 << 10, "target_file_size": 8192, "block_size": 1024, "compression": [None, "lz4"]}


def expiry(i):
    """Of the i-th key, or None."""
    return (None, SOON, LATER, LATEST)[i % 4]


def lives(i, now):
    return expiry(i) is None or expiry(i) > now


def contents(now):
    """What the database holds at this time, and what its keyspace holds."""
    rows = {b"key%04d" % i: b"new %d" % i for i in range(200) if lives(i, now)}
    rows |= {b"plain%03d" % i: b"value" for i in range(50)}
    rows |= {b"log%03d" % i: b"in the log %d" % i for i in range(40) if lives(i, now)}
    rows |= {b"ingested%02d" % i: b"from a table" for i in range(20) if lives(i, now)}
    sessions = {b"s%03d" % i: b"session" for i in range(30)} if now < END + 1000 else {}
    return rows, sessions


def make(path):
    clock = lsmkv.ManualClock(BEGIN)
    db = lsmkv.open(path, clock=clock, **OPTIONS)
    db._work.claims.suspended += 1
    for i in range(200):
        db.put(b"key%04d" % i, b"old %d" % i)
    db.compact_range()
    for i in range(200):
        db.put(b"key%04d" % i, b"new %d" % i, expire_at=expiry(i))
        if i == 99:
            db.flush()
    for i in range(50):
        db.put(b"plain%03d" % i, b"value")
    db.flush()
    clock.set(END)
    # A half of what is expired by now becomes tombstones, which the edit tells with the clock.
    db.compact_range(b"key0100", b"key0150")
    with tempfile.TemporaryDirectory() as folder:
        with lsmkv.SSTWriter(f"{folder}/t.sst") as writer:
            for i in range(20):
                writer.put(b"ingested%02d" % i, b"from a table", expire_at=expiry(i))
        db.ingest([f"{folder}/t.sst"])
    sessions = db.keyspace("sessions", default_ttl=1000)
    with db.write_batch() as batch:
        for i in range(40):
            batch.put(b"log%03d" % i, b"in the log %d" % i, expire_at=expiry(i))
            if i < 30:
                batch.put(b"s%03d" % i, b"session", keyspace=sessions)
    db.sync()
    db._shut(flush=False)


if __name__ == "__main__":
    if TARGET.exists():
        sys.exit(f"{TARGET} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", TARGET, ignore=shutil.ignore_patterns("LOCK"))
    cut_logs(TARGET)

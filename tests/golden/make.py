"""Makes the database of the current format version: `python tests/golden/make.py` (once per format version)."""

import shutil
import sys
import tempfile
from pathlib import Path

import lsmkv

FORMAT = 2
HERE = Path(__file__).parent


def contents():
    """What the database holds, in order."""
    rows = {b"key%05d" % i: b"value %d " % i * (i % 7 + 1) for i in range(900)}
    for i in range(100, 200):
        del rows[b"key%05d" % i]
    for i in range(0, 900, 10):
        rows.pop(b"key%05d" % i, None)
    rows.update({b"ingested%02d" % i: b"from a table" for i in range(20)})
    rows.update({b"log%03d" % i: b"only in the log" for i in range(30)})
    rows[b""] = b"the empty key"
    rows[b"empty"] = b""
    rows[b"\xff" * 300] = b"\x00\xff" * 500
    return dict(sorted(rows.items()))


def keyspaces(format_version=FORMAT):
    """What the named keyspaces hold, by name."""
    if format_version == 1:
        return {}
    users = {b"key%05d" % i: b"user %d" % i for i in range(300) if not 50 <= i < 80}
    users.update({b"log%03d" % i: b"of users" for i in range(30)})
    posts = {b"key%05d" % i: b"post %d " % i * 9 for i in range(300)}
    posts.update({b"ingested%02d" % i: b"from a table" for i in range(20)})
    del posts[b"key00007"]
    return {"posts": posts, "users": users}


def make(path):
    options = {
        "write_buffer_size": 8192,
        "target_file_size": 8192,
        "l0_compaction_trigger": 2,
        "level_size_ratio": 4,
        "compression": [None, "lz4"],
        "bits_per_key": [12, 10, 8],
        "prefix_extractor": 3,
    }
    db = lsmkv.open(path, **options)
    for i in range(900):
        n = i * 7 % 900
        db[b"key%05d" % n] = b"value %d " % n * (n % 7 + 1)
    db.flush()
    db._scheduler.wait_idle()
    db._work.claims.suspended += 1
    make_keyspaces(db)
    db.delete_range(b"key00100", b"key00200")
    for i in range(0, 900, 10):
        db.delete(b"key%05d" % i)
    db.flush()
    with tempfile.TemporaryDirectory() as folder:
        with lsmkv.SSTWriter(f"{folder}/t.sst") as writer:
            for i in range(20):
                writer.put(b"ingested%02d" % i, b"from a table")
        db.ingest([f"{folder}/t.sst"])
        db.keyspace("posts").ingest([f"{folder}/t.sst"])
    db.put(b"", b"the empty key")
    db.put(b"empty", b"")
    db.put(b"\xff" * 300, b"\x00\xff" * 500)
    with db.write_batch() as batch:
        for i in range(30):
            batch.put(b"log%03d" % i, b"only in the log")
            batch.put(b"log%03d" % i, b"of users", keyspace=db.keyspace("users"))
        batch.delete(b"key00007", keyspace=db.keyspace("posts"))
    db.sync()
    db._shut(flush=False)


def make_keyspaces(db):
    """Two that stay, with batches across them, and one that is dropped."""
    users, posts = db.keyspace("users"), db.keyspace("posts", bits_per_key=14, compression=None)
    dropped = db.keyspace("dropped")
    for each in (users, posts, dropped):
        each._work.claims.suspended += 1
    for i in range(300):
        with db.write_batch() as batch:
            batch.put(b"key%05d" % i, b"user %d" % i, keyspace=users)
            batch.put(b"key%05d" % i, b"post %d " % i * 9, keyspace=posts)
            batch.put(b"key%05d" % i, b"dropped", keyspace=dropped)
    db.drop_keyspace("dropped")
    users.delete_range(b"key00050", b"key00080")


def cut_logs(folder):
    """A log's preallocated tail is zeros and holds nothing."""
    for log in folder.glob("*.wal"):
        data = log.read_bytes().rstrip(b"\0")
        log.write_bytes(data + b"\0" * (-len(data) % 4096))


if __name__ == "__main__":
    target = HERE / f"format-{FORMAT}"
    if target.exists():
        sys.exit(f"{target} exists: a format that was released does not change")
    with tempfile.TemporaryDirectory() as folder:
        make(f"{folder}/db")
        shutil.copytree(f"{folder}/db", target, ignore=shutil.ignore_patterns("LOCK"))
    cut_logs(target)

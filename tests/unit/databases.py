"""Small databases: options that make many files of few keys, and ways to fill them."""

import os
import shutil
from pathlib import Path

import lsmkv

TINY = {
    "write_buffer_size": 8192,
    "target_file_size": 8192,
    "l0_compaction_trigger": 2,
    "level_size_ratio": 4,
}


def fill(db, n=500, size=100, prefix=b"key"):
    for i in range(n):
        db[prefix + b"%06d" % i] = (b"%06d" % i) * (size // 6)


def fill_with(db, n=500, start=0, value=b"v"):
    for i in range(start, start + n):
        db[b"key%06d" % i] = value * 50


def keep_still(db):
    """Suspends automatic compaction: the tree must not change under an assertion."""
    db._work.claims.suspended += 1


def copy_running(path, copy):
    """Copies an open database. A log that is being created is a .tmp file, which vanishes."""
    return shutil.copytree(path, copy, ignore=shutil.ignore_patterns("*.tmp"))


def kill(db):
    """Closes the database and leaves its files as they are now, as a kill would."""
    path = Path(db.path)
    copy = copy_running(path, path.with_name(path.name + ".copy"))
    db.close()
    shutil.rmtree(path)
    copy.rename(path)


def names(path):
    return sorted(os.listdir(path))


def write_sst(path, items, **options):
    with lsmkv.SSTWriter(path, **options) as writer:
        for key, value in items:
            if value is None:
                writer.delete(key)
            else:
                writer.put(key, value)
    return path

"""Small databases: options that make many files of few keys, and ways to fill them."""

import os
import shutil
from contextlib import suppress
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


def copy_files(path, copy):
    """Copies an open database whose compactions are suspended. The next log and unneeded tables may go away."""

    def copy_if_there(source, target):
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

    return shutil.copytree(path, copy, copy_function=copy_if_there, ignore=shutil.ignore_patterns("*.tmp"))


def kill(db):
    """Closes the database and leaves its files as they are now, as a kill would."""
    path = Path(db.path)
    copy = copy_files(path, path.with_name(path.name + ".copy"))
    db.close()
    shutil.rmtree(path)
    copy.rename(path)


def answers(reader, key):
    """The answers of every kind of read about one key."""
    with reader.cursor() as cursor:
        found = cursor.seek(key) and cursor.key() == key
        by_cursor = cursor.value() if found else None
    items = dict(reader.iterator())
    assert items == dict(reader.iterator(reverse=True))
    assert set(reader.iterator(include_value=False)) == set(items)
    return {
        reader.get(key),
        reader.get(bytearray(key)),
        reader.multi_get([b"other", key])[1],
        items.get(key),
        by_cursor,
        reader[key] if key in reader else None,  # noqa: SIM401
    }


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

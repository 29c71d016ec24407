"""The small database and files that examples, documentation and tests use."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

USERS = 5000


def user(i: int, edition: int = 0) -> tuple[bytes, bytes]:
    value = {"name": f"Person {i}", "age": (i * 7) % 90, "edition": edition}
    return b"user:%05d" % i, json.dumps(value).encode()


def make_database(path: Path) -> None:
    """Make a database with two levels, overwrites, tombstones, a range tombstone and an unflushed log."""
    import lsmkv

    small: dict[str, Any] = {
        "write_buffer_size": 64 << 10,
        "target_file_size": 96 << 10,
        "l0_compaction_trigger": 12,
        "stats_export": True,
        "wal": "write",  # does not preallocate, which keeps copies of the directory small
    }
    scratch = path.with_name(path.name + ".open")
    with lsmkv.open(scratch, **small) as db:
        for i in range(USERS):
            db.put(*user(i))
        db.compact_range()
        for edition in (1, 2):
            for i in range(edition, USERS, 7 * edition):
                db.put(*user(i, edition))
            db.flush()
        db.delete(b"user:00007")
        db.delete_range(b"user:00100", b"user:00110")
        db.flush()
        db.put(*user(42, 3), sync=True)
        db.delete(b"user:00043")
        for i in range(0, 2 * USERS, 3):
            db.get(b"user:%05d" % i)
        wait_for_export(scratch / "STATS")
        shutil.copytree(scratch, path)
    lsmkv.destroy(scratch)


def make_shop(path: Path) -> None:
    """Make a database with two named keyspaces, whose batches span them, and an unflushed log."""
    import lsmkv

    db = lsmkv.open(path, wal="write")
    users, orders = db.keyspace("users"), db.keyspace("orders", bits_per_key=12)
    users.put(b"ada", b"Ada Lovelace")
    for i in range(300):
        with db.write_batch() as batch:
            batch.put(b"order:%05d" % i, b"ada", keyspace=orders)
            batch.put(b"last order", b"%d" % i)
        if i == 250:
            db.flush()
    db.sync()
    db._shut(flush=False)


def make_media(path: Path) -> None:
    """Make a database with Bloom and fuse filters, keyspaces, entries that expire and large values in value logs."""
    import lsmkv

    random = Random(1)
    scratch = path.with_name(path.name + ".open")
    with lsmkv.open(
        scratch,
        write_buffer_size=4 << 20,
        target_file_size=96 << 10,
        l0_compaction_trigger=12,
        filter="auto",
        large_value_threshold=2000,
        stats_export=True,
        wal="write",
    ) as db:
        for i in range(4000):
            db.put(*user(i))
            if i % 800 == 799:
                db.flush()
        db.compact_range()
        for i in range(0, 4000, 7):
            db.put(*user(i, 1))
        sessions = db.keyspace("sessions", default_ttl=30 * 86400, bits_per_key=12)
        for _ in range(1500):
            sessions.put(random.randbytes(8).hex().encode(), b"token")
        photos = db.keyspace("photos", filter="fuse")
        for i in range(21_000):  # a table with fewer than 20,000 keys gets a Bloom filter
            photos.put(b"photo/%06d.jpg" % i, random.randbytes(4000) if i % 1000 == 0 else b"-")
        db.flush()
        db.put(*user(42, 2), sync=True)
        for i in range(0, 8000, 3):
            db.get(b"user:%05d" % i)
            photos.get(b"photo/%06d.png" % i)
        wait_for_export(scratch / "STATS")
        shutil.copytree(scratch, path)
    lsmkv.destroy(scratch)


def make_damaged(source: Path, path: Path) -> None:
    """Copy a database and flip a bit in a table's data, in a table's filter and in a value log."""
    from lsmkv_ext.table.table import Table
    from lsmkv_ext.table.table_inspect import sections

    shutil.copytree(source, path)
    first, second, *_ = sorted(path.glob("*.sst"))
    parts = {name: offset for name, offset, _ in sections(Table(str(second)))}
    log = min(path.glob("*.vlog"))
    for file, offset in ((first, 100), (second, parts["filter"] + 200), (log, log.stat().st_size - 100)):
        data = bytearray(file.read_bytes())
        data[offset] ^= 1
        file.write_bytes(data)


def wait_for_export(stats: Path) -> None:
    """Wait until the database has written its statistics again."""
    began = time.time()
    while not stats.exists() or stats.stat().st_mtime < began:
        time.sleep(0.02)


def make_samples(directory: Path) -> None:
    """Make the databases mydb, shop, media, damaged and old, the files table.sst, new.sst and new.jsonl, and the
    repository backups.
    """
    import lsmkv
    from lsmkv_ext.table.sst_writer import SSTWriter

    make_database(directory / "mydb")
    lsmkv.backup(directory / "mydb", directory / "backups")
    make_shop(directory / "shop")
    make_media(directory / "media")
    make_damaged(directory / "media", directory / "damaged")
    with lsmkv.open(directory / "old") as db:
        db.put(b"a", b"1")
    with SSTWriter(directory / "table.sst") as writer:
        for i in range(300):
            writer.put(*user(i), seq=i + 1)
        writer.delete(b"user:99998", seq=400)
    with SSTWriter(directory / "new.sst") as writer:
        writer.put(b"user:70000", b"{}")
    rows = [{"key": f"user:{80000 + i}", "value": "{}"} for i in range(3)]
    (directory / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

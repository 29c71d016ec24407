"""A small database and the files around it that the examples, the documentation and the tests use."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

USERS = 5000


def user(i: int, edition: int = 0) -> tuple[bytes, bytes]:
    value = {"name": f"Person {i}", "age": (i * 7) % 90, "edition": edition}
    return b"user:%05d" % i, json.dumps(value).encode()


def database(path: Path) -> None:
    """Two levels, overwritten and deleted keys, a range tombstone, and a log that its owner left unflushed."""
    import lsmkv

    small: dict[str, Any] = {
        "write_buffer_size": 64 << 10,
        "target_file_size": 96 << 10,
        "l0_compaction_trigger": 12,
        "stats_export": True,
        "wal": "write",  # no space allocated ahead, so that copies of the folder are small
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


def wait_for_export(stats: Path) -> None:
    """Until the figures were written anew."""
    began = time.time()
    while not stats.exists() or stats.stat().st_mtime < began:
        time.sleep(0.02)


def make(folder: Path) -> None:
    """mydb, old (to be destroyed), table.sst, new.jsonl and new.sst in `folder`."""
    import lsmkv

    database(folder / "mydb")
    with lsmkv.open(folder / "old") as db:
        db.put(b"a", b"1")
    from lsmkv_ext.table.sst import SSTWriter

    with SSTWriter(folder / "table.sst") as writer:
        for i in range(300):
            writer.put(*user(i), seq=i + 1)
        writer.delete(b"user:99998", seq=400)
    with SSTWriter(folder / "new.sst") as writer:
        writer.put(b"user:70000", b"{}")
    rows = [{"key": f"user:{80000 + i}", "value": "{}"} for i in range(3)]
    (folder / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

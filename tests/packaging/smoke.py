"""Opens a database with an installed lsmkv, in a folder of its own."""

import tempfile
from pathlib import Path

import lsmkv

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "db")
    with lsmkv.open(path) as db:
        db.put(b"k", b"v", sync=True)
        db.put(b"large", bytes(100_000))
        db.flush()
        db.compact_range()
    with lsmkv.open(path, "r") as db:
        assert dict(db) == {b"k": b"v", b"large": bytes(100_000)}
    assert lsmkv.verify(path).ok

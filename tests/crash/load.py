"""Random batches for writers whose every step an oracle records."""

from __future__ import annotations

import io
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import lsmkv

from .expiries import TAG, expire, keep
from .oracle import Batch

# Small buffers and files, so that a few hundred writes flush, compact and rotate logs many times.
TINY: dict[str, Any] = {
    "write_buffer_size": 64 << 10,
    "target_file_size": 32 << 10,
    "block_size": 1024,
    "l0_compaction_trigger": 2,
    "level_size_ratio": 4,
    "block_cache_size": 256 << 10,
}

LOG_MODES = ("mmap", "write")
# Small enough for recovery to write several tables, as it does for logs of very many operations.
PIECES = 4000


class Load:
    """A seeded stream of batches over the keys of one writer; sync_every=0 never asks for a sync. With `streams` some
    values are put from file objects, with `ingests` some tables are ingested.
    """

    def __init__(
        self,
        seed: int | str,
        prefix: bytes,
        keys: int = 400,
        sync_every: int = 8,
        *,
        streams: bool = False,
        ingests: bool = False,
    ) -> None:
        self._files = [b"s"] * streams + [b"i"] * ingests
        self._rng = random.Random(seed)
        self._prefix = prefix
        self._keys = keys
        self._sync_every = sync_every
        self._count = 0

    def _key(self) -> bytes:
        return b"%s%05d" % (self._prefix, self._rng.randrange(self._keys))

    def _put(self) -> tuple[bytes, ...]:
        # The count makes each value its own, so that a stale answer cannot pass for a fresh one.
        self._count += 1
        value = b"%x.%x." % (self._count, self._rng.getrandbits(32)) + self._rng.randbytes(self._rng.randrange(300))
        roll = self._rng.random()
        if roll < 0.15:
            return (b"t", self._key(), TAG + value)
        return (b"x" if roll < 0.22 else b"p", self._key(), value)

    def _from_files(self) -> tuple[Batch, bool]:
        """A value that is streamed, or a table that is ingested, which is durable once it returns."""
        kind = self._rng.choice(self._files)
        keys = {self._key() for _ in range(1 if kind == b"s" else self._rng.randrange(1, 5))}
        batch: Batch = []
        for key in sorted(keys):
            self._count += 1
            size = self._rng.choice([10, 200, 1000, 70_000])
            batch.append((kind, key, b"%x.%x." % (self._count, self._rng.getrandbits(32)) + self._rng.randbytes(size)))
        return batch, kind == b"i" or (self._sync_every > 0 and self._rng.random() < 0.3)

    def next(self) -> tuple[Batch, bool]:
        if self._files and self._rng.random() < 0.06:
            return self._from_files()
        roll = self._rng.random()
        if roll < 0.65:
            batch: Batch = [self._put()]
        elif roll < 0.75:
            batch = [(b"d", self._key())]
        elif roll < 0.78:
            low, high = sorted([self._key(), self._key()])
            batch = [(b"r", low, min(high, low + b"\xff"))]
        else:
            batch = [
                self._put() if self._rng.random() < 0.8 else (b"d", self._key())
                for _ in range(self._rng.randrange(2, 12))
            ]
        return batch, self._sync_every > 0 and self._rng.randrange(self._sync_every) == 0


def write(db: Any, batch: Batch, sync: bool) -> None:
    """Carries out one batch: by the plain calls where it is a single edit, and some by a transaction."""
    if batch[0][0] == b"i":
        _ingest(db, batch)
        return
    if len(batch) == 1:
        kind, *parts = batch[0]
        _call(db, kind)(*parts, sync=sync)
        return
    if len(batch) % 3 == 0:
        _write_in_transaction(db, batch, sync)
        return
    with db.write_batch(sync=sync) as out:
        for kind, *parts in batch:
            _call(out, kind)(*parts)


def _ingest(db: Any, batch: Batch) -> None:
    """By one table, or in one synced batch if the keys are in several keyspaces."""
    homes = {id(db.home(key)) for _, key, _ in batch} if hasattr(db, "home") else {0}
    if len(homes) > 1:
        with db.write_batch(sync=True) as out:
            for _, key, value in batch:
                out.put(key, value)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.sst")
        with lsmkv.SSTWriter(path, large_value_threshold=128, large_value_compression=None) as table:
            for _, key, value in batch:
                table.put(key, value)
        # Copied: a link to a file outside of the watched folder would not be in the trace.
        (db.home(batch[0][1]) if hasattr(db, "home") else db).ingest([path])


def _stream(target: Any, key: bytes, value: bytes, **options: Any) -> None:
    target.put(key, io.BytesIO(value), length=len(value), **options)


def _write_in_transaction(db: Any, batch: Batch, sync: bool) -> None:
    """It never conflicts: nobody else writes these keys."""
    with db.transaction() as tx:
        for kind, *parts in batch:
            tx.get(parts[0])
            _call(tx, kind)(*parts)
        tx.commit(sync=sync)


def _call(target: Any, kind: bytes) -> Any:
    """The call of a database or a batch for one kind of edit."""
    if kind in (b"t", b"x"):
        return partial(keep if kind == b"t" else expire, target)
    if kind == b"s":
        return partial(_stream, target)
    return {b"p": target.put, b"d": target.delete, b"r": target.delete_range}[kind]

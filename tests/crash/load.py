"""Random batches for writers whose every step an oracle records."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

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
    """A seeded stream of batches over the keys of one writer; sync_every=0 never asks for a sync."""

    def __init__(self, seed: int | str, prefix: bytes, keys: int = 400, sync_every: int = 8) -> None:
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

    def next(self) -> tuple[Batch, bool]:
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
    return {b"p": target.put, b"d": target.delete, b"r": target.delete_range}[kind]

"""The same random operations on a database and on a sorted model must give the same answers.

The operations depend on the seed alone, never on an answer, so a seed replays exactly:

    python -m crash.metamorphic --seed 7 --options "tiny blocks" --operations 5000     (in tests/)
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sortedcontainers import SortedDict
from timed_model import TimedModel

import lsmkv
from lsmkv_ext.filter.fuse import set_min_keys

# Small tables get fuse filters too.
set_min_keys(10)

Operation = tuple[Any, ...]

_SMALL: dict[str, Any] = {"write_buffer_size": 64 << 10, "target_file_size": 32 << 10, "block_size": 1024}

OPTION_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small": _SMALL,
    "small, write log": {**_SMALL, "wal": "write"},
    "small, no log": {**_SMALL, "wal": None},
    "small, synced": {**_SMALL, "sync": True},
    "small, sync interval": {**_SMALL, "sync_interval_ms": 1},
    "tiny blocks": {**_SMALL, "block_size": 256},
    "large blocks": {**_SMALL, "block_size": 16384},
    "large values": {**_SMALL, "large_value_threshold": 64},
    "large values, no log": {**_SMALL, "large_value_threshold": 64, "large_value_compression": "lz4", "wal": None},
    "no compression": {**_SMALL, "compression": None},
    "compression per level": {**_SMALL, "compression": [None, None, "lz4"]},
    "zstd": {**_SMALL, "compression": "zstd"},
    "zstd in deep levels": {**_SMALL, "compression": ["lz4", "lz4", "zstd"]},
    "large values, zstd": {**_SMALL, "large_value_threshold": 64, "large_value_compression": "zstd"},
    "no filters": {**_SMALL, "bits_per_key": 0},
    "weak filters": {**_SMALL, "bits_per_key": 2},
    "strong filters": {**_SMALL, "bits_per_key": 20},
    "filters per level": {**_SMALL, "bits_per_key": [14, 10, 4]},
    "filters by budget": {**_SMALL, "bits_per_key": "auto"},
    "filters for hits": {**_SMALL, "optimize_filters_for_hits": True},
    "filters for hits, measured": {**_SMALL, "optimize_filters_for_hits": "auto"},
    "unchecked filters": {**_SMALL, "verify_filters": False},
    "prefix filters": {**_SMALL, "prefix_extractor": 5},
    "prefix filters of two lengths": {**_SMALL, "prefix_extractor": [2, 5]},
    "prefix filters by separator": {**_SMALL, "prefix_extractor": b"/"},
    "fuse filters": {**_SMALL, "filter": "fuse"},
    "fuse filters, narrow": {**_SMALL, "filter": "fuse", "bits_per_key": 4.5, "prefix_extractor": 5},
    "kinds of filters by level": {**_SMALL, "filter": ["bloom", "fuse"], "filter_debt_ratio": 0.1},
    "kinds of filters by budget": {**_SMALL, "filter": "auto", "bits_per_key": "auto", "filter_debt_ratio": 0.1},
    "filter debt": {**_SMALL, "filter_debt_ratio": 0.1, "bits_per_key": [16, 8, 4]},
    "no cache": {**_SMALL, "block_cache_size": 0},
    "small cache": {**_SMALL, "block_cache_size": 16 << 10},
    "one size for all memory": {**_SMALL, "memory": 512 << 10},
    "cached index and filters": {**_SMALL, "cache_index_and_filter_blocks": True},
    "eager compaction": {**_SMALL, "l0_compaction_trigger": 1, "level_size_ratio": 2},
    "lazy compaction": {**_SMALL, "l0_compaction_trigger": 12},
    "deep tree": {**_SMALL, "target_file_size": 8 << 10, "level_size_ratio": 2, "l0_compaction_trigger": 2},
    "every level": {
        **_SMALL,
        "write_buffer_size": 4096,
        "target_file_size": 4096,
        "level_size_ratio": 2,
        "l0_compaction_trigger": 1,
        "compression": None,
    },
    "one background job": {**_SMALL, "max_background_jobs": 1},
    "four background jobs": {**_SMALL, "max_background_jobs": 4, "max_write_buffers": 6},
    "few descriptors": {**_SMALL, "max_open_files": 8},
}


# ---- what is done ------------------------------------------------------------------------------

_WEIGHTS: dict[str, float] = {
    "put": 30, "delete": 6, "batch": 5, "delete_range": 1, "clear": 0.03, "get": 25, "contains": 6, "multi_get": 3,
    "scan": 6, "walk": 4, "snapshot": 1, "snapshot_get": 4, "snapshot_scan": 1, "release": 1, "length": 0.2,
    "flush": 0.25, "compact": 0.1, "sync": 0.2, "reopen": 0.12, "rebuild_filters": 0.05, "checkpoint": 0.02,
    "put_for": 6, "wait": 0.5, "touch": 1, "ttl": 2, "append": 1, "transact": 1,
}  # fmt: skip
SNAPSHOTS = 3
START = 1000.0  # of the clock


class Generator:
    """Yields operations from a seed, most of them on a pool of keys, which `known` ones may join."""

    weights = _WEIGHTS

    def __init__(self, seed: int | str, known: Iterable[bytes] = ()) -> None:
        self._rng = random.Random(seed)
        self._pool = [*(self._fresh_key() for _ in range(600)), *known]
        self._serial = 0

    def operations(self, count: int) -> Iterator[Operation]:
        names = self._rng.choices(list(self.weights), list(self.weights.values()), k=count)
        for name in names:
            yield (name, *getattr(self, f"_{name}")())

    def _fresh_key(self) -> bytes:
        rng = self._rng
        shape = rng.randrange(4)
        if shape == 0:
            return b"user:%06d" % rng.randrange(10**6)
        if shape == 1:
            return rng.randbytes(rng.randrange(1, 20))
        if shape == 2:
            return b"a/" * rng.randrange(1, 12) + b"%d" % rng.randrange(100)
        return bytes(rng.choice(b"\x00\x01\x7f\xff") for _ in range(rng.randrange(1, 9)))

    def key(self) -> bytes:
        return self._rng.choice(self._pool) if self._rng.random() < 0.93 else self._fresh_key()

    def value(self) -> bytes:
        self._serial += 1
        size = self._rng.choice([0, 0, 10, 100, 100, 300, 300, 2000])
        if self._rng.random() < 0.003:
            size = 30_000
        filler = self._rng.randbytes(8) * (size // 8)
        return b"%d|" % self._serial + filler

    def _range(self) -> tuple[bytes, bytes]:
        low, high = sorted([self.key(), self.key()])
        return low, high if low < high else high + b"\0"

    def _edit(self) -> tuple[Any, ...]:
        roll = self._rng.random()
        if roll < 0.12:
            return self._expiring_edit()
        if roll < 0.75:
            return ("put", self.key(), self.value())
        if roll < 0.95:
            return ("delete", self.key())
        low = self.key()
        return ("delete_range", low, low + b"\x40")

    def _expiring_edit(self) -> tuple[Any, ...]:
        return ("put_for", *self._put_for())

    def _put(self):
        return self.key(), self.value()

    def _append(self):
        return self.key(), b"+%d" % self._rng.randrange(100)

    def _touch(self):
        return self.key(), self._rng.choice([None, 1, 5, 20])

    def _transact(self):
        """Reads of some keys, then writes."""
        return [self.key() for _ in range(4)], *self._batch()

    def _put_for(self):
        return self.key(), self.value(), self._rng.choice([1, 5, 20])

    def _wait(self):
        return (self._rng.choice([0.5, 1, 3]),)

    def _delete(self):
        return (self.key(),)

    def _batch(self):
        return ([self._edit() for _ in range(self._rng.randrange(1, 30))],)

    def _delete_range(self):
        if self._rng.random() < 0.1:
            return self._range()  # so wide that scans skip it and tables are dropped for it
        low = self.key()
        return (low, low + self._rng.choice([b"\0", b"\x30", b"\xff\xff"]))

    def _get(self):
        return (self.key(),)

    _contains = _ttl = _get

    def _multi_get(self):
        return ([self.key() for _ in range(self._rng.randrange(1, 40))],)

    def _scan(self):
        rng = self._rng
        start, stop = self._range()
        shape = rng.randrange(5)
        bounds: dict[str, Any] = [
            {}, {"start": start}, {"stop": stop}, {"start": start, "stop": stop},
            {"prefix": self.key()[: rng.randrange(1, 5)]},
        ][shape]  # fmt: skip
        limit = rng.choice([1, 5, 50, 10_000]) if rng.random() < 0.2 else rng.randrange(1, 20)
        return ({**bounds, "reverse": rng.random() < 0.4}, limit)

    def _walk(self):
        moves = [self._rng.choice("nnnppss") for _ in range(self._rng.randrange(2, 16))]
        return ([(move, self.key() if move == "s" else b"") for move in moves],)

    def _snapshot(self):
        return (self._rng.randrange(SNAPSHOTS),)

    _release = _snapshot

    def _snapshot_get(self):
        return self._rng.randrange(SNAPSHOTS), self.key()

    def _snapshot_scan(self):
        return self._rng.randrange(SNAPSHOTS), *self._scan()

    def _length(self):
        return ()

    _clear = _flush = _sync = _reopen = _rebuild_filters = _checkpoint = _length

    def _compact(self):
        return self._range() if self._rng.random() < 0.5 else (None, None)


# ---- the two that do it ------------------------------------------------------------------------


def _span(data: SortedDict, bounds: dict[str, Any], limit: int) -> list[tuple[bytes, bytes]]:
    prefix = bounds.get("prefix")
    start, stop = bounds.get("start"), bounds.get("stop")
    if prefix is not None:
        start = prefix
    keys = data.irange(start, stop, (True, False), bounds["reverse"])
    if prefix is not None:
        keys = [k for k in keys if k.startswith(prefix)]
    return [(k, data[k]) for k in islice(keys, limit)]


class Model:
    """The answers as a sorted dict gives them."""

    def __init__(self) -> None:
        self.data = TimedModel()
        self._now = START
        self._snapshots: dict[int, SortedDict] = {}

    def do(self, operation: Operation) -> Any:
        name, *arguments = operation
        return getattr(self, name)(*arguments)

    def put(self, key, value):
        self.data[key] = value

    def put_for(self, key, value, ttl):
        self.data.put(key, value, self._now + ttl)

    def wait(self, seconds):
        self._now += seconds
        self.data.expire(self._now)

    def touch(self, key, ttl):
        if key not in self.data:
            return False
        self.data[key] = self.data[key]
        if ttl is not None:
            self.data.expiries[key] = self._now + ttl
        return True

    def ttl(self, key):
        if key not in self.data:
            return "missing"
        return self.data.expiries[key] - self._now if key in self.data.expiries else None

    def append(self, key, suffix):
        expiry = self.data.expiries.get(key) if key in self.data else None
        self.data[key] = self.data.get(key, b"") + suffix
        if expiry is not None:
            self.data.expiries[key] = expiry
        return len(self.data[key])

    def transact(self, keys, edits):
        found = self.multi_get(keys)
        self.batch(edits)
        return found

    def delete(self, key):
        self.data.pop(key, None)

    def delete_range(self, start, stop):
        for key in list(self.data.irange(start, stop, (True, False))):
            del self.data[key]

    def clear(self):
        self.data.clear()

    def batch(self, edits):
        for name, *arguments in edits:
            getattr(self, name)(*arguments)

    def get(self, key):
        return self.data.get(key)

    def contains(self, key):
        return key in self.data

    def multi_get(self, keys):
        return [self.data.get(key) for key in keys]

    def scan(self, bounds, limit):
        return _span(self.data, bounds, limit)

    def walk(self, moves):
        """An iterator stands between entries: next returns the one after it, prev the one before it."""
        keys, at, out = self.data.keys(), 0, []
        for move, key in moves:
            if move == "s":
                at = self.data.bisect_left(key)
            elif move == "n":
                out.append(keys[at] if at < len(keys) else None)
                at = min(at + 1, len(keys))
            else:
                out.append(keys[at - 1] if at > 0 else None)
                at = max(at - 1, 0)
        return [key if key is None else (key, self.data[key]) for key in out]

    def snapshot(self, slot):
        self._snapshots[slot] = SortedDict(self.data)

    def release(self, slot):
        self._snapshots.pop(slot, None)

    def snapshot_get(self, slot, key):
        return self._snapshots.get(slot, self.data).get(key)

    def snapshot_scan(self, slot, bounds, limit):
        return _span(self._snapshots.get(slot, self.data), bounds, limit)

    def length(self):
        return len(self.data)

    def reopen(self):
        self._snapshots.clear()

    def checkpoint(self):
        return list(self.data.items())

    def flush(self):
        pass

    sync = rebuild_filters = flush

    def compact(self, start, stop):
        pass


@dataclass
class Store:
    """The answers as a database gives them."""

    path: Path
    options: dict[str, Any]
    db: Any = None
    _snapshots: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clock = lsmkv.ManualClock(START)
        self.db = self.open(self.path, clock=self._clock, **self.options)
        for name in ("put", "delete", "delete_range", "clear", "get", "multi_get", "flush", "sync", "touch", "append"):
            setattr(self, name, lambda *a, _n=name: getattr(self.db, _n)(*a))

    def open(self, path: Path, flag: str = "c", **options: Any) -> Any:
        return lsmkv.open(path, flag, **options)

    def do(self, operation: Operation) -> Any:
        name, *arguments = operation
        return getattr(self, name)(*arguments)

    def put_for(self, key, value, ttl):
        self.db.put(key, value, ttl=ttl)

    def wait(self, seconds):
        self._clock.advance(seconds)

    def ttl(self, key):
        try:
            return self.db.ttl(key)
        except KeyError:
            return "missing"

    def batch(self, edits):
        with self.db.write_batch() as out:
            self.write_edits(out, edits)

    def transact(self, keys, edits):
        with self.db.transaction() as tx:
            found = tx.multi_get(keys)
            self.write_edits(tx, edits)
        return found

    def write_edits(self, target, edits):
        """Adds the edits to a batch, a transaction or a table."""
        for name, *arguments in edits:
            if name == "put_for":
                target.put(*arguments[:2], ttl=arguments[2])
            else:
                getattr(target, name)(*arguments)

    def contains(self, key):
        return key in self.db

    def scan(self, bounds, limit):
        return list(islice(self.db.items(**bounds), limit))

    def walk(self, moves):
        out = []
        with self.db.iterator() as it:
            for move, key in moves:
                if move == "s":
                    it.seek(key)
                else:
                    out.append(self._step(it.next if move == "n" else it.prev))
        return out

    @staticmethod
    def _step(call):
        try:
            return call()
        except StopIteration:
            return None

    def snapshot(self, slot):
        self.release(slot)
        self._snapshots[slot] = self.db.snapshot()

    def release(self, slot):
        old = self._snapshots.pop(slot, None)
        if old is not None:
            old.close()

    def snapshot_get(self, slot, key):
        return self._snapshots.get(slot, self.db).get(key)

    def snapshot_scan(self, slot, bounds, limit):
        return list(islice(self._snapshots.get(slot, self.db).items(**bounds), limit))

    def length(self):
        return len(self.db)

    def reopen(self):
        if self.options.get("wal", "mmap") is None:
            self.db.flush()
        self._snapshots.clear()
        self.db.close()
        self.db = self.open(self.path, clock=self._clock, **self.options)

    def compact(self, start, stop):
        self.db.compact_range(start, stop)

    def rebuild_filters(self):
        self.db.rebuild_filters()

    def checkpoint(self):
        copy = self.path.with_name(self.path.name + ".checkpoint")
        self.db.checkpoint(copy)
        try:
            with self.open(copy, "r", clock=self._clock) as db:
                return list(db.items())
        finally:
            shutil.rmtree(copy)


def run(seed: int | str, name: str, count: int, folder: Path) -> str | None:
    """One run; returns the first mismatch in words, or None."""
    model, store = Model(), Store(folder / "db", OPTION_SETS[name])
    try:
        for number, operation in enumerate(Generator(seed).operations(count)):
            wanted, got = model.do(operation), store.do(operation)
            if wanted != got:
                return f"seed {seed}, {name!r}, operation {number} {operation!r}: {got!r}, not {wanted!r}"
        if list(store.db.items()) != list(model.data.items()):
            return f"seed {seed}, {name!r}: the final contents differ"
    finally:
        store.db.close()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--options", choices=OPTION_SETS, default="small")
    parser.add_argument("--operations", type=int, default=5000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
    try:
        print(run(given.seed, given.options, given.operations, folder) or "no mismatch")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""What the threads of a history do: one short function for each kind of operation.

`@operation(weight)` adds a kind. A function draws its arguments from `worker.rng`, calls the database inside
`worker.call(...)`, and says what it wrote and read. `@maintenance(weight)` adds a kind that changes no answer.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import lsmkv

from . import expiries
from .linearizability import ABSENT
from .random_options import draw_live

if TYPE_CHECKING:
    from .histories import Worker, World

# Few keys, so that operations meet.
KEYS = [b"k%02d" % number for number in range(20)]
END = b"k99"
NOWHERE = -1  # the tag of a value that nobody wrote

# These take long beside busy writers, and their round waits for them.
SLOW = {"ingest", "checkpoint", "refresh"}

OPERATIONS: dict[str, tuple[float, Callable[[Worker], None]]] = {}
MAINTENANCE: dict[str, tuple[float, Callable[[World, random.Random], None]]] = {}


def operation(weight: float) -> Callable[[Callable[[Worker], None]], Callable[[Worker], None]]:
    def add(function: Callable[[Worker], None]) -> Callable[[Worker], None]:
        OPERATIONS[function.__name__] = (weight, function)
        return function

    return add


def maintenance(weight: float) -> Callable[..., Callable[[World, random.Random], None]]:
    def add(function: Callable[[World, random.Random], None]) -> Callable[[World, random.Random], None]:
        MAINTENANCE[function.__name__] = (weight, function)
        return function

    return add


# Values ------------------------------------------------------------------------------------------------------


def value_of(tag: int) -> bytes:
    """The tag, and as many more bytes as the tag says, up to several blocks."""
    head = b"%d|" % tag
    return head + head * (tag * 2654435761 >> 9 & 63 if tag % 50 else 500)


def tag_of(value: bytes | None) -> int:
    if value is None:
        return ABSENT
    head = value.partition(b"|")[0]
    return int(head) if head.isdigit() and value_of(int(head)) == value else NOWHERE


def seen_by_key(keys: Iterable[bytes], values: Iterable[bytes | None]) -> list[tuple[bytes, int]]:
    return [(key, tag_of(value)) for key, value in zip(keys, values, strict=True)]


def seen(entries: Iterable[tuple[bytes, bytes]], keys: Iterable[bytes] = KEYS) -> list[tuple[bytes, int]]:
    """What a scan over all of `keys` says about each of them. Other keys are ballast."""
    found = dict(entries)
    return [(key, tag_of(found.get(key))) for key in keys]


# Writes ------------------------------------------------------------------------------------------------------


@operation(30)
def put(worker: Worker) -> None:
    key, tag, sync = worker.key(), worker.tag(), worker.sync()
    with worker.call("put", {key: tag}):
        worker.db.put(key, value_of(tag), sync=sync)


@operation(4)
def put_with_ttl(worker: Worker) -> None:
    key, tag, sync = worker.key(), worker.tag(), worker.sync()
    with worker.call("put_with_ttl", {key: tag}):
        expiries.keep(worker.db, key, value_of(tag), sync=sync)


@operation(4)
def put_expired(worker: Worker) -> None:
    """A delete to every reader."""
    key, tag, sync = worker.key(), worker.tag(), worker.sync()
    with worker.call("put_expired", {key: ABSENT}):
        expiries.expire(worker.db, key, value_of(tag), sync=sync)


@operation(6)
def delete(worker: Worker) -> None:
    key, sync = worker.key(), worker.sync()
    with worker.call("delete", {key: ABSENT}):
        worker.db.delete(key, sync=sync)


@operation(2)
def delete_range(worker: Worker) -> None:
    keys, sync = worker.span(), worker.sync()
    with worker.call("delete_range", dict.fromkeys(keys, ABSENT)):
        worker.db.delete_range(keys[0], keys[-1] + b"\0", sync=sync)


@operation(12)
def batch(worker: Worker) -> None:
    tag, sync, kind = worker.tag(), worker.sync(), worker.rng.random()
    covered = worker.span() if kind < 0.2 else []
    keys = worker.keys()
    gone = [worker.key()] if kind > 0.7 else []
    writes = dict.fromkeys(covered, ABSENT) | dict.fromkeys(keys, tag) | dict.fromkeys(gone, ABSENT)
    with worker.call("batch", writes), worker.db.write_batch(sync=sync) as out:
        if covered:
            out.delete_range(covered[0], covered[-1] + b"\0")
        for key in keys:
            out.put(key, value_of(tag))
        for key in gone:
            out.delete(key)


@operation(3)
def ingest(worker: Worker) -> None:
    tag = worker.tag()
    writes = {key: tag if worker.rng.random() < 0.8 else ABSENT for key in sorted(worker.keys())}
    path = worker.scratch("sst")
    with lsmkv.SSTWriter(path) as table:
        for key, written in writes.items():
            if written == ABSENT:
                table.delete(key)
            else:
                table.put(key, value_of(tag), ttl=expiries.LONG if tag % 3 == 0 else None)
    with worker.call("ingest", writes):
        worker.db.ingest([path], move=worker.rng.random() < 0.5)
    path.unlink(missing_ok=True)


@operation(0.3)
def clear(worker: Worker) -> None:
    with worker.call("clear", dict.fromkeys(KEYS, ABSENT)):
        worker.db.clear()


# Reads -------------------------------------------------------------------------------------------------------


@operation(25)
def get(worker: Worker) -> None:
    key = worker.key()
    with worker.call("get") as op:
        op.reads.append((key, tag_of(worker.db.get(key))))


@operation(5)
def multi_get(worker: Worker) -> None:
    keys = worker.keys()
    with worker.call("multi_get") as op:
        op.reads.extend(seen_by_key(keys, worker.db.multi_get(keys)))


@operation(6)
def scan(worker: Worker) -> None:
    keys, reverse = worker.span(), worker.rng.random() < 0.4
    with worker.call("scan") as op:
        op.reads.extend(seen(worker.db.items(keys[0], keys[-1] + b"\0", reverse=reverse), keys))


@operation(3)
def iterate(worker: Worker) -> None:
    """The state is that of the iterator's creation, however long it walks."""
    keys = worker.span()
    iterator = None
    with worker.call("iterate") as op:
        iterator = worker.db.iterator(start=keys[0], stop=keys[-1] + b"\0")
    if iterator is not None:
        with iterator:
            op.reads.extend(seen(worker.slowly(iterator), keys))


# Snapshots ---------------------------------------------------------------------------------------------------


@operation(2)
def snapshot(worker: Worker) -> None:
    with worker.call("snapshot") as op:
        worker.snapshots.append((worker.db.snapshot(), op))


@operation(10)
def read_snapshot(worker: Worker) -> None:
    """What a snapshot says at any time counts as read when it was taken."""
    if not worker.snapshots:
        return
    taken, op = worker.rng.choice(worker.snapshots)
    roll = worker.rng.random()
    if roll < 0.6:
        key = worker.key()
        op.reads.append((key, tag_of(taken.get(key))))
    elif roll < 0.8:
        keys = worker.keys()
        op.reads.extend(seen_by_key(keys, taken.multi_get(keys)))
    else:
        keys = worker.span()
        op.reads.extend(seen(taken.items(keys[0], keys[-1] + b"\0", reverse=roll < 0.9), keys))


@operation(1.5)
def release_snapshot(worker: Worker) -> None:
    if worker.snapshots:
        taken, _ = worker.snapshots.pop(worker.rng.randrange(len(worker.snapshots)))
        taken.close()


# Other databases with the same contents ----------------------------------------------------------------------


@operation(1)
def checkpoint(worker: Worker) -> None:
    path = worker.scratch("checkpoint")
    with worker.call("checkpoint") as op:
        worker.db.checkpoint(path)
    if op.responded is not None:
        with lsmkv.open(path, "r") as copy:
            op.reads.extend(seen(copy.items()))
        shutil.rmtree(path)


@operation(0.5)
def refresh(worker: Worker) -> None:
    """A read-only handle beside the writer. One thread at a time, because it moves the handle on."""
    reader, lock = worker.world.reader, worker.world.reader_lock
    if reader is None or not lock.acquire(blocking=False):
        return
    try:
        with worker.call("refresh") as op:
            reader.refresh()
        if op.responded is not None:
            op.reads.extend(seen(reader.items()))
    finally:
        lock.release()


# What changes no answer --------------------------------------------------------------------------------------


@maintenance(4)
def ballast(world: World, rng: random.Random) -> None:
    """Keys between the others, which nobody looks at: they make the tree deeper."""
    with world.db.write_batch() as batch:
        for _ in range(rng.randrange(1, 30)):
            key = b"%s/%03d" % (rng.choice(KEYS), rng.randrange(200))
            batch.put(key, rng.randbytes(rng.randrange(300)))


@maintenance(3)
def flush(world: World, rng: random.Random) -> None:
    world.db.flush(wait=rng.random() < 0.7)


@maintenance(1)
def compact_range(world: World, rng: random.Random) -> None:
    low, high = sorted([rng.choice(KEYS), rng.choice([*KEYS, END])])
    span = (None, None) if rng.random() < 0.3 or low == high else (low, high)
    world.db.compact_range(*span, wait=rng.random() < 0.8)


@maintenance(1)
def rebuild_filters(world: World, rng: random.Random) -> None:
    world.db.rebuild_filters(level=rng.choice([None, None, 0, 1, 2]))


@maintenance(2)
def set_options(world: World, rng: random.Random) -> None:
    world.db.set_options(**draw_live(rng, world.can_sync))


@maintenance(1)
def sync(world: World, rng: random.Random) -> None:
    world.db.sync()


@maintenance(1)
def inspect(world: World, rng: random.Random) -> None:
    db = world.db
    db.explain(rng.choice(KEYS))
    db.stats()
    db.filter_debt()
    db.approximate_size()

"""Operations of a history that read and write in one step: updates, transactions, and batches over two keyspaces.

A transaction counts as one step. If it commits, that step is its commit; if it conflicts, it wrote nothing, and its
reads are of the moment it began. An order that explains all answers is then a serial order of the transactions: a lost
update, a write skew or a phantom has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lsmkv

from . import expiries
from .history_operations import KEYS, operation, seen, seen_by_key, tag_of, value_of
from .linearizability import ABSENT, Op

if TYPE_CHECKING:
    from .histories import Worker

# The second keyspace has some keys of the same names. In the history they are told apart by a prefix.
SIDE = "side"
PREFIX = b"side/"
SIDE_KEYS = KEYS[:4]


def in_side(key: bytes) -> bytes:
    return PREFIX + key


def seen_in_side(entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
    return [(in_side(key), tag) for key, tag in seen(entries, SIDE_KEYS)]


# Updates -----------------------------------------------------------------------------------------------------


@operation(5)
def modify(worker: Worker) -> None:
    key, tag = worker.key(), worker.tag()
    with worker.call("modify") as op:

        def change(value: bytes | None) -> bytes:
            op.reads[:] = [(key, tag_of(value))]
            op.writes[key] = tag
            return value_of(tag)

        worker.db.modify(key, change)


@operation(4)
def compare_and_set(worker: Worker) -> None:
    key, tag = worker.key(), worker.tag()
    expected = worker.db.get(key)
    with worker.call("compare_and_set", {key: tag}) as op:
        op.reads.append((key, tag_of(expected)))
        if not worker.db.compare_and_set(key, expected, value_of(tag)):
            op.reads.clear()
            op.writes.clear()


@operation(2)
def pop(worker: Worker) -> None:
    key = worker.key()
    with worker.call("pop", {key: ABSENT}) as op:
        op.reads.append((key, tag_of(worker.db.pop(key, None))))


@operation(2)
def setdefault(worker: Worker) -> None:
    key, tag = worker.key(), worker.tag()
    with worker.call("setdefault", {key: tag}) as op:
        found = tag_of(worker.db.setdefault(key, value_of(tag)))
        op.reads.append((key, ABSENT if found == tag else found))
        if found != tag:
            op.writes.clear()


@operation(3)
def touch(worker: Worker) -> None:
    """Writes the value again, and must not bring back an older one."""
    key = worker.key()
    with worker.call("touch") as op:
        if not worker.db.touch(key, worker.rng.choice([None, expiries.LONG])):
            op.reads.append((key, ABSENT))


# Transactions ------------------------------------------------------------------------------------------------


@contextmanager
def committed(worker: Worker, name: str) -> Iterator[tuple[Any, Op]]:
    """A transaction and its record. The body notes what it reads and writes, before the commit."""
    with worker.call(name) as op:
        try:
            with worker.db.transaction() as tx:
                yield tx, op
        except lsmkv.ConflictError:
            op.writes.clear()
            worker.world.counts["conflicts"] += 1


@operation(8)
def transaction(worker: Worker) -> None:
    """Reads some keys, then writes others: the shape of lost updates and write skews."""
    read, written, tag, gone = worker.keys()[:3], worker.keys()[:2], worker.tag(), worker.rng.random() < 0.3
    with committed(worker, "transaction") as (tx, op):
        for key in worker.slowly(read):
            op.reads.append((key, tag_of(tx.get(key))))
        tx.put(written[0], value_of(tag), ttl=expiries.LONG if tag % 3 == 0 else None)
        if gone:
            tx.delete(written[1])
        else:
            tx.put(written[1], value_of(tag))
        own = seen_by_key(written, tx.multi_get(written))
        op.writes.update({written[0]: tag, written[1]: ABSENT if gone else tag})
        assert dict(own) == op.writes, f"a transaction reads {own} of its own writes {op.writes}"


@operation(4)
def transaction_over_a_range(worker: Worker) -> None:
    """Reads a range, then writes into another: the shape of phantoms."""
    span, reverse, key, tag = worker.span(), worker.rng.random() < 0.4, worker.key(), worker.tag()
    covered = worker.span() if worker.rng.random() < 0.3 else []
    with committed(worker, "transaction_over_a_range") as (tx, op):
        op.reads.extend(seen(worker.slowly(tx.items(span[0], span[-1] + b"\0", reverse=reverse)), span))
        if covered:
            tx.delete_range(covered[0], covered[-1] + b"\0")
        tx.put(key, value_of(tag))
        op.writes.update({**dict.fromkeys(covered, ABSENT), key: tag})


@operation(2)
def read_in_transaction(worker: Worker) -> None:
    """Never conflicts."""
    keys = worker.keys()
    with worker.call("read_in_transaction") as op, worker.db.transaction() as tx:
        op.reads.extend(seen_by_key(keys, tx.multi_get(keys)))


@operation(4)
def transaction_over_keyspaces(worker: Worker) -> None:
    """Moves what one keyspace has to the other."""
    key, tag = worker.rng.choice(SIDE_KEYS), worker.tag()
    here, there = (None, worker.world.side) if worker.rng.random() < 0.5 else (worker.world.side, None)
    names = {space: in_side(key) if space is not None else key for space in (here, there)}
    with committed(worker, "transaction_over_keyspaces") as (tx, op):
        op.reads.append((names[here], tag_of(tx.get(key, keyspace=here))))
        op.reads.append((names[there], tag_of(tx.get(key, keyspace=there))))
        tx.delete(key, keyspace=here)
        tx.put(key, value_of(tag), keyspace=there)
        op.writes.update({names[here]: ABSENT, names[there]: tag})


# Keyspaces ---------------------------------------------------------------------------------------------------


@operation(5)
def batch_over_keyspaces(worker: Worker) -> None:
    keys, tag, sync = worker.rng.sample(SIDE_KEYS, 2), worker.tag(), worker.sync()
    writes = {keys[0]: tag, in_side(keys[0]): tag, in_side(keys[1]): ABSENT}
    with worker.call("batch_over_keyspaces", writes), worker.db.write_batch(sync=sync) as out:
        out.put(keys[0], value_of(tag))
        out.put(keys[0], value_of(tag), keyspace=worker.world.side)
        out.delete(keys[1], keyspace=worker.world.side)


@operation(4)
def read_both(worker: Worker) -> None:
    """A snapshot is of one moment in all keyspaces."""
    with worker.call("read_both") as op, worker.db.snapshot() as taken:
        op.reads.extend(seen_in_side(taken.keyspace(worker.world.side).items()))
        op.reads.extend(seen_by_key(SIDE_KEYS, taken.multi_get(SIDE_KEYS)))


@operation(3)
def get_in_side(worker: Worker) -> None:
    key = worker.rng.choice(SIDE_KEYS)
    with worker.call("get_in_side") as op:
        op.reads.append((in_side(key), tag_of(worker.world.side.get(key))))

"""Range tombstones of one memtable: right at every snapshot, and found in few steps however many there are."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lsmkv

EDGES = st.integers(0, 60)


def key(n):
    return b"%06d" % n


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with lsmkv.open(tmp_path_factory.mktemp("tombstones") / "db") as db:
        yield db


def fresh(db):
    """The active memtable, empty."""
    db.flush()
    return db._engine.active


def newest_over(deletes, at, snapshot):
    """(start, stop, seq) in the order they were made -> the largest seq over `at`, 0 for none."""
    return max((seq for start, stop, seq in deletes if seq <= snapshot and start <= at < stop), default=0)


@settings(max_examples=60)
@given(st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=150), st.lists(st.integers(0, 150), max_size=4))
def test_every_snapshot_sees_its_newest_range_tombstone(db, pairs, moments):
    memtable = fresh(db)
    first = db._engine.last_seq
    deletes = []
    for start, stop in pairs:
        if start != stop:
            db.delete_range(key(min(start, stop)), key(max(start, stop)))
            deletes.append((min(start, stop), max(start, stop), db._engine.last_seq))
    assert len(memtable.range_tombstones) == len(deletes)
    for snapshot in [db._engine.last_seq, *(first + moment for moment in moments)]:
        for at in range(61):
            assert memtable.range_tombstone_over(key(at), snapshot)[0] == newest_over(deletes, at, snapshot)


def test_ten_thousand_range_tombstones_in_a_memtable_are_searched_in_few_steps(db):
    """They were looked at one by one."""
    memtable = fresh(db)
    rng = random.Random("tombstones")
    first, count = db._engine.last_seq, 10_000
    for _ in range(count):
        start = rng.randrange(1_000_000)
        db.delete_range(key(start), key(start + rng.randrange(1, 200)))
    assert db._engine.active is memtable and len(memtable.range_tombstones) == count
    nodes = math.log2(count)
    for snapshot in (db._engine.last_seq, first + count // 3, first + 17):
        steps = [memtable.range_tombstone_over(key(rng.randrange(1_000_000)), snapshot)[1] for _ in range(200)]
        assert max(steps) < nodes * (nodes + 2) + 32


@pytest.mark.parametrize("count", [3, 15, 16, 17, 300])
def test_reads_and_walks_agree_with_a_model(db, count):
    fresh(db)
    rng = random.Random(count)
    model = {}
    moment = None
    for number in range(count):
        for _ in range(5):
            n = rng.randrange(400)
            model[key(n)] = value = b"%d" % number
            db.put(key(n), value)
        start = rng.randrange(400)
        stop = start + rng.randrange(1, 40)
        db.delete_range(key(start), key(stop))
        model = {k: v for k, v in model.items() if not key(start) <= k < key(stop)}
        if number == count // 2:
            moment = db.snapshot(), dict(model)
    snapshot, then = moment
    with snapshot:
        for source, wanted in ((db, model), (snapshot, then)):
            assert dict(source.items()) == wanted
            assert list(source.keys(reverse=True)) == sorted(wanted, reverse=True)
            assert all(source.get(key(n)) == wanted.get(key(n)) for n in range(400))
    db.flush()
    assert dict(db.items()) == model
    db.delete_range(key(0), key(1000))

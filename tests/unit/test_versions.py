"""Many versions of few keys in one memtable: walks in both directions see the version a snapshot saw."""

from __future__ import annotations

import random

import pytest

import lsmkv

# Of one length, as most keys are, and of many, some the beginnings of others.
NAMES = {
    "alike": [b"%06d" % n for n in range(30)],
    "mixed": [b"k" * (n % 11) + bytes([n % 3]) * (n % 4) for n in range(60)],
}


def check(view, model) -> None:
    expected = sorted(model.items())
    assert list(view.items()) == expected
    assert list(view.items(reverse=True)) == expected[::-1]
    for key in (b"", b"000015", b"kkkkk\1", b"z"):
        assert list(view.items(start=key)) == [item for item in expected if item[0] >= key]
        assert list(view.items(stop=key, reverse=True)) == [item for item in expected[::-1] if item[0] < key]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_walks_over_many_versions(tmp_path, names, seed):
    rng = random.Random(seed)
    keys, model, kept = NAMES[names], {}, []
    with lsmkv.open(tmp_path / "db") as db:
        for step in range(6000):
            # One key in three writes is a counter, with thousands of versions.
            key = keys[7] if rng.random() < 0.3 else rng.choice(keys)
            if rng.random() < 0.1:
                db.delete(key)
                model.pop(key, None)
            else:
                value = b"%d" % step
                db.put(key, value)
                model[key] = value
            if step in (0, 1, 2) or rng.random() < 0.003:
                kept.append((db.snapshot(), dict(model)))
            if rng.random() < 0.002:
                check(db, model)  # sorts what came since the last time: another run
        assert db.stats().memtable.entries == 6000
        check(db, model)
        for snapshot, past in kept:
            check(snapshot, past)


def test_turning_around_between_versions(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for n in range(300):
            db.put(b"%d" % (n % 3), b"%d" % n)
        snapshot = db.snapshot()
        for _ in range(3000):
            db.put(b"1", b"new")
        walk = snapshot.iterator()
        assert [walk.next(), walk.next()] == [(b"0", b"297"), (b"1", b"298")]
        assert walk.prev() == (b"1", b"298")
        assert walk.next() == (b"1", b"298")
        assert walk.next() == (b"2", b"299")
        assert [walk.prev(), walk.prev(), walk.prev()] == [(b"2", b"299"), (b"1", b"298"), (b"0", b"297")]


@pytest.mark.parametrize("late", [b"x" * 9, b"x" * 5 + b"a", b"y", b"", b"x" * 12 + b"000100", b"x" * 40])
def test_a_key_that_shares_less_with_the_others_comes_late(tmp_path, late):
    """What all keys begin with is left out of the sort: it may turn out shorter when most were looked at."""
    model = {}
    with lsmkv.open(tmp_path / "db") as db:
        for n in range(200):
            key = b"x" * 12 + b"%06d" % (n * 7919 % 200)
            db.put(key, b"%d" % n)
            model[key] = b"%d" % n
        db.put(late, b"late")
        db.put(b"x" * 12, b"last")
        model |= {late: b"late", b"x" * 12: b"last"}
        check(db, model)
        db.flush()
        check(db, model)

"""`filter advise`: its prediction, checked by measurement."""

import random

import pytest
from toolrunner import tool

import lsmkv

KEYS, RUNS, LOOKUPS = 60_000, 6, 150_000


def build(path):
    """Make a large bottom level and six L0 tables over the same keys, all with 10 bits per key."""
    order = random.Random(5)
    with lsmkv.open(path, bits_per_key=10, l0_compaction_trigger=30, l0_slowdown_trigger=40, l0_stop_trigger=50) as db:
        for i in range(KEYS):
            db.put(b"%010d" % (i * 10), b"")
        db.compact_range()
        for _ in range(RUNS):
            # With both ends each table spans all keys.
            chosen = {0, KEYS - 1, *order.sample(range(KEYS), 1500)}
            for i in sorted(chosen):
                db.put(b"%010d" % (i * 10), b"")
            db.flush()


def wasted_reads(path):
    """Return the false positives per lookup of an absent key, as counted by the engine."""
    order = random.Random(9)
    with lsmkv.open(path, "r") as db:
        # Each once: a false positive is remembered.
        keys = [b"%010d" % (n // 9 * 10 + n % 9 + 1) for n in order.sample(range(9 * (KEYS - 1)), LOOKUPS)]
        assert db.multi_get(keys[:10]) == [None] * 10
        for key in keys:
            db.get(key)
        filters = db.stats().total.filter
        return filters.false_positives / (LOOKUPS + 10)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("advise") / "db"
    build(path)
    return path


def test_rebuild_saves_what_was_predicted(database):
    advice = tool("filter", "advise", database, "--absent", 1, "--json").json["result"]
    before = wasted_reads(database)
    assert before == pytest.approx(advice["wasted_now"], rel=0.1)
    assert advice["wasted_then"] < advice["wasted_now"] / 2
    assert advice["memory_then"] == pytest.approx(advice["memory_now"], rel=0.05)
    command = advice["command"].split()
    assert command[:3] == ["lsmkv-tool", "filter", "rebuild"]
    assert tool(*command[1:], "--yes").code == 0
    after = wasted_reads(database)
    predicted, measured = advice["wasted_now"] - advice["wasted_then"], before - after
    assert measured == pytest.approx(predicted, rel=0.2)
    again = tool("filter", "advise", database, "--absent", 1)
    assert "nothing to change" in again.out
    assert tool("verify", database, "--deep").code == 0

"""Large values are flushed once nothing is written any more, so that their garbage is collected."""

import os

import pytest
from waiting import wait_until

import lsmkv
from lsmkv.compaction import idle_flush
from lsmkv.compaction.idle_flush import IDLE_SECONDS, LONGEST_PAUSE, IdleFlush

SIZE = 5000
KEYS = 30


@pytest.fixture
def small(monkeypatch):
    """Any value log is worth a flush."""
    monkeypatch.setattr(idle_flush, "LEAST_BYTES", 1)
    monkeypatch.setattr(idle_flush, "SHARE", 1 << 40)


def big(path):
    return lsmkv.open(path, large_value_threshold=1000, large_value_compression=None, write_buffer_size=1 << 20)


def overwrite(db, rounds):
    for number in range(rounds):
        for i in range(KEYS):
            db.put(b"%02d" % i, b"%d" % number * SIZE)


def vlog_bytes(path):
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.name.endswith(".vlog"))


def test_an_idle_database_keeps_no_garbage(path, small, monkeypatch):
    """Without a flush, a compaction or a close by the caller."""
    monkeypatch.setattr(idle_flush, "IDLE_SECONDS", 0.01)
    with big(path) as db:
        overwrite(db, 5)
        wait_until(lambda: vlog_bytes(path) <= 1.5 * KEYS * (SIZE + 40))
        assert db._engine.empty
        assert all(db[b"%02d" % i] == b"4" * SIZE for i in range(KEYS))
        overwrite(db, 6)  # the next value log
        wait_until(lambda: db._engine.empty and vlog_bytes(path) <= 1.5 * KEYS * (SIZE + 40))
        assert all(db[b"%02d" % i] == b"5" * SIZE for i in range(KEYS))


def test_nothing_is_flushed_beside_a_writer(path, small):
    with big(path) as db:
        idle = IdleFlush(db._versions, db._scheduler.flusher)
        for i in range(KEYS):
            db.put(b"%02d" % i, bytes(SIZE))
            assert idle.run(IDLE_SECONDS) == IDLE_SECONDS
        assert not db._engine.empty
        assert idle.run(IDLE_SECONDS) == 0.0
        assert db._engine.empty
        assert idle.run(0.0) == 0.0


def test_few_values_are_not_flushed_and_the_looks_become_rare(path):
    with big(path) as db:
        idle = IdleFlush(db._versions, db._scheduler.flusher)
        assert idle.run(0.0) == 0.0  # no value log
        overwrite(db, 1)
        pauses = [idle.run(0.0)]
        while pauses[-1] != LONGEST_PAUSE:
            pauses.append(idle.run(pauses[-1]))
        assert pauses == sorted(pauses) and pauses[0] == IDLE_SECONDS
        assert not db._engine.empty


def test_a_database_that_is_being_closed_is_left_alone(path, small):
    db = big(path)
    idle = IdleFlush(db._versions, db._scheduler.flusher)
    overwrite(db, 1)
    idle.run(0.0)
    db._versions.engine.seal()
    assert idle.run(IDLE_SECONDS) == 0.0
    db.close()
    assert idle.run(IDLE_SECONDS) == 0.0


def test_a_value_log_goes_once_its_last_reader_has_gone(path):
    """Nothing else happens in the database then."""
    with big(path) as db:
        overwrite(db, 1)
        view = db.get(b"00", copy=False)
        overwrite(db, 2)
        db.flush()
        db.compact_range()
        db._scheduler.wait_idle()
        wait_until(lambda: db._versions.values.totals(db._versions.state.files())["files"] == 2)
        assert bytes(view) == b"0" * SIZE
        assert vlog_bytes(path) > 2 * KEYS * SIZE
        del view
        wait_until(lambda: vlog_bytes(path) <= 1.5 * KEYS * (SIZE + 40))

"""Tables in which scans passed many tombstones are compacted, although their level is not full."""

import pytest
from databases import keep_still
from waiting import wait_until

import lsmkv

N = 5000


def by_iterator(db, start=None):
    return next(db.iterator(start=start))[0]


def by_cursor(db, start=None):
    with db.cursor(start=start) as cursor:
        assert cursor.seek_to_first()
        return cursor.key()


def key(i):
    return b"%06d" % i


def reasons(db):
    return db.stats().compaction.reasons


@pytest.mark.parametrize("first", [by_iterator, by_cursor])
def test_a_scan_draws_the_compaction(path, first):
    """One key in five is deleted: too few for the share of tombstones."""
    with lsmkv.open(path, l0_compaction_trigger=20) as db:
        for i in range(N):
            db.put(key(i), b"v")
        db.flush()
        db.compact_range()
        keep_still(db)
        for i in range(N // 5):
            db.delete(key(i + 1000))
        for i in range(N, N + 3000):
            db.put(key(i), b"v")
        db.flush()
        assert first(db, key(1000)) == key(1000 + N // 5)
        table = db._engine.state.levels[0][0]
        assert table.dead_passed == N // 5
        assert table.number in db._work.hints.read(db._versions.default.current, db.options).scanned_dead
        db._work.claims.suspended -= 1
        first(db)  # reports it
        wait_until(lambda: not db._engine.state.levels[0])
        assert "scanned tombstones" in reasons(db)
        wait_until(lambda: sum(f.deletes for f in db._versions.default.current.files()) == 0)
        assert next(db.iterator(start=key(1000)))[0] == key(1000 + N // 5)


def test_a_read_only_handle_compacts_nothing(path):
    with lsmkv.open(path) as db:
        for i in range(N):
            db.delete(key(i))
        db.put(key(N), b"v")
    with lsmkv.open(path, "r") as db:
        assert next(db.iterator())[0] == key(N)
        assert next(db.iterator())[0] == key(N)

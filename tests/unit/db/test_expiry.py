"""Expiry: no read returns an expired entry, and none uncovers an older version beneath it."""

import math
import time
from datetime import UTC, datetime, timedelta

import pytest
from databases import answers, keep_still, kill

import lsmkv
from lsmkv.recovery.reset_clock import reset_clock
from lsmkv.version.manifest import LATEST_FORMAT
from lsmkv_ext.port.wall_clock import encode_clock

START = 1_000_000.0


@pytest.fixture
def clock():
    return lsmkv.ManualClock(START)


@pytest.fixture
def open_db(path, clock):
    """Opens the database with the clock; closes all that are left."""
    opened = []

    def open_one(flag="c", **options):
        opened.append(lsmkv.open(path, flag, clock=clock, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def db(open_db):
    db = open_db()
    keep_still(db)
    return db


# How the entry got where it is read, newest first: in the memtable, in L0, deeper.
def leave(db):
    pass


def flush(db):
    db.flush()


def compact(db):
    db.flush()
    db.compact_range()


@pytest.mark.parametrize("settle", [leave, flush, compact])
@pytest.mark.parametrize("settle_older", [leave, flush, compact])
@pytest.mark.parametrize("older", [None, b"older"])
def test_an_expired_entry_hides_all_before_it(db, clock, settle, settle_older, older):
    if older is not None:
        db.put(b"k", older)
        settle_older(db)
    db.put(b"k", b"new", ttl=10)
    db.put(b"z", b"stays")
    settle(db)
    assert answers(db, b"k") == {b"new"}
    before = db.snapshot()
    clock.advance(9.999)
    assert answers(db, b"k") == {b"new"}
    clock.advance(0.001)
    assert answers(db, b"k") == {None}
    assert dict(db.items()) == {b"z": b"stays"}
    assert db.explain(b"k").found is False
    assert answers(before, b"k") == {b"new"}
    for step in (flush, compact):
        step(db)
        assert answers(db, b"k") == {None}
        assert answers(before, b"k") == {b"new"}
    db.put(b"k", b"again")
    assert answers(db, b"k") == {b"again"}


def test_a_scan_is_of_one_moment(db, clock):
    for n in range(1000):
        db.put(b"%04d" % n, b"v", ttl=5)
    iterator = db.iterator(include_value=False)
    first = next(iterator)
    clock.advance(5)
    assert [first, *iterator] == [b"%04d" % n for n in range(1000)]
    assert list(db) == []


def test_a_transaction_judges_by_the_moment_it_began(db, clock):
    db.put(b"k", b"v", ttl=5)
    with db.transaction() as tx:
        clock.advance(5)
        assert db.get(b"k") is None
        assert tx.get(b"k") == b"v" and list(tx.items()) == [(b"k", b"v")]
        tx.put(b"seen", tx[b"k"], ttl=60)
    assert db[b"seen"] == b"v" and db.ttl(b"seen") == 60


def test_the_ttl_of_a_key_is_a_read_of_a_transaction(db):
    db.put(b"k", b"v", ttl=5)
    tx = db.transaction()
    assert tx.ttl(b"k") == 5
    db.touch(b"k", 50)
    tx.put(b"seen", b"5 seconds")
    with pytest.raises(lsmkv.ConflictError):
        tx.commit()
    assert b"seen" not in db


def test_a_transaction_knows_the_expiries_of_its_own_writes(db, clock):
    users = db.keyspace("users", default_ttl=7)
    users.put(b"theirs", b"v", ttl=30)
    db.put(b"k", b"v", ttl=5)
    with db.transaction() as tx:
        tx.put(b"k", b"v", ttl=50)
        tx.put(b"k", b"v", keyspace=users)
        tx.put(b"past", b"v", expire_at=START)
        tx.put(b"inf", b"v", ttl=math.inf)
        clock.advance(1)  # the transaction stays at the moment it began
        assert tx.ttl(b"k") == 50 and tx.ttl(b"k", keyspace=users) == 7 and tx.ttl(b"theirs", keyspace=users) == 30
        assert tx.ttl(b"inf") is None
        assert tx.get(b"past") is None and b"past" not in tx and list(tx) == [b"inf", b"k"]
        tx.put(b"k", b"v")
        assert tx.ttl(b"k") is None
        tx.delete(b"inf")
        for missing in (b"inf", b"past", b"never"):
            with pytest.raises(KeyError):
                tx.ttl(missing)
    assert db.ttl(b"k") is None and users.ttl(b"k") == 7


def test_a_hot_row_expires_too(db, clock):
    db.put(b"k", b"v", ttl=5)
    db.put(b"plain", b"v")
    db.flush()
    for _ in range(10):
        assert db.get(b"k") == b"v" and db.get(b"plain") == b"v"
    clock.advance(5)
    assert db.get(b"k") is None and db.get(b"plain") == b"v"


@pytest.mark.parametrize(
    "ttl, left",
    [
        (10, 10),
        (2**31, 2**31),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
        (10**30, None),
        (math.inf, None),
        (1e300, None),
        (None, None),
    ],
)
def test_ttl_in_all_its_forms(db, ttl, left):
    db.put(b"k", b"v", ttl=ttl)
    assert db.ttl(b"k") == left


@pytest.mark.parametrize("when", [START + 10, datetime.fromtimestamp(START + 10, UTC)])
def test_expire_at_in_all_its_forms(db, clock, when):
    db.put(b"k", b"v", expire_at=when)
    assert db.ttl(b"k") == 10
    db.put(b"k", b"past", expire_at=START - 5)
    assert db.get(b"k") is None
    db.put(b"k", b"very old", expire_at=-5)
    assert db.get(b"k") is None


@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": -1}, ValueError),
        ({"ttl": -(10**30)}, ValueError),
        ({"ttl": math.nan}, ValueError),
        ({"ttl": "5"}, TypeError),
        ({"ttl": True}, TypeError),
        ({"ttl": b"5"}, TypeError),
        ({"ttl": 5, "expire_at": 5}, TypeError),
        ({"expire_at": datetime(2030, 1, 1)}, ValueError),
        ({"expire_at": "tomorrow"}, TypeError),
    ],
)
def test_a_wrong_expiry_is_refused(db, wrong, error):
    db.put(b"k", b"before")
    for put in (db.put, lsmkv.WriteBatch().put, db.transaction().put):
        with pytest.raises(error):
            put(b"k", b"v", **wrong)
    assert db[b"k"] == b"before" and db.ttl(b"k") is None


def test_ttl_of_a_missing_key(db, clock):
    for read in (db, db.snapshot(), db.prefixed_db(b"p")):
        with pytest.raises(KeyError):
            read.ttl(b"k")
    db.put(b"k", b"v", ttl=1)
    clock.advance(1)
    with pytest.raises(KeyError):
        db.ttl(b"k")


def test_touch(db, clock):
    db.put(b"k", b"v", ttl=5)
    assert db.touch(b"k", 50) and db.ttl(b"k") == 50 and db[b"k"] == b"v"
    assert db.touch(b"k") and db.ttl(b"k") is None
    assert db.touch(b"k", expire_at=START + 7) and db.ttl(b"k") == 7
    assert not db.touch(b"missing", 5) and b"missing" not in db
    clock.advance(7)
    assert not db.touch(b"k", 5) and db.get(b"k") is None


def test_updates_keep_the_expiry(db):
    for key in (b"add", b"max", b"append", b"modify", b"cas"):
        db.put(key, b"\0" * 8, ttl=30)
    db.add(b"add")
    db.max(b"max", 7)
    db.append(b"append", b"more")
    db.modify(b"modify", lambda value: value + b"!")
    db.compare_and_set(b"cas", b"\0" * 8, b"new")
    assert {db.ttl(key) for key in db} == {30}
    db.put(b"add", b"\0" * 8)
    db.add(b"add")
    assert db.ttl(b"add") is None
    assert db.compare_and_set(b"lock", None, b"mine", ttl=5) and db.ttl(b"lock") == 5
    assert db.pop(b"lock") == b"mine" and b"lock" not in db


def test_an_update_of_an_expired_key_starts_anew(db, clock):
    db.put(b"n", b"\5" + b"\0" * 7, ttl=5)
    clock.advance(5)
    assert db.add(b"n") == 1 and db.ttl(b"n") is None
    db.put(b"k", b"v", ttl=5)
    clock.advance(5)
    assert db.compare_and_set(b"k", None, b"new") and db.setdefault(b"k", b"other") == b"new"
    with pytest.raises(KeyError):
        db.pop(b"gone")


def test_default_ttl(open_db, clock):
    db = open_db(default_ttl=timedelta(seconds=20))
    sessions = db.keyspace("sessions", default_ttl=3)
    never = db.keyspace("never")
    db.put(b"a", b"v")
    db.put(bytearray(b"b"), bytearray(b"v"))
    db[b"c"] = b"v"
    db.put(b"forever", b"v", ttl=math.inf)
    db.put(b"own", b"v", ttl=7)
    db.add(b"n")
    with db.write_batch() as batch:
        batch.put(b"batch", b"v")
        batch.put(b"batch own", b"v", ttl=9)
        batch.put(b"k", b"v", keyspace=sessions)
        batch.delete(b"nothing")
    with db.transaction() as tx:
        tx.put(b"tx", b"v")
    free = lsmkv.WriteBatch()
    free.put(b"free", b"v")
    db.write(free)
    want = {
        b"a": 20, b"b": 20, b"c": 20, b"forever": None, b"own": 7, b"n": 20, b"batch": 20, b"batch own": 9, b"tx": 20,
        b"free": 20,
    }  # fmt: skip
    assert {key: db.ttl(key) for key in db} == want
    assert sessions.ttl(b"k") == 3
    never.put(b"k", b"v")
    assert never.ttl(b"k") == 20  # the option of the database
    db.set_options(default_ttl=None)
    db.put(b"a", b"v")
    assert db.ttl(b"a") is None
    sessions.put(b"k", b"v")
    assert sessions.ttl(b"k") == 3


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "5", True, 1e20])
def test_a_wrong_default_ttl_is_refused(path, wrong):
    with pytest.raises(lsmkv.OptionError, match="default_ttl"):
        lsmkv.open(path, default_ttl=wrong)


@pytest.mark.parametrize("wal", ["mmap", "write", None])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_expiries_survive_a_reopen(open_db, path, clock, wal, end):
    db = open_db(wal=wal)
    db.put(b"soon", b"v", ttl=5)
    db.put(b"later", b"v", ttl=50)
    db.put(b"later, large", b"v" * (2 << 20), ttl=50)  # replayed piece by piece
    db.put(b"never", b"v" * 100_000)
    if wal is None:
        db.flush()
    if end == "kill":
        kill(db)
    else:
        db.close()
    clock.advance(5)
    db = open_db(wal=wal)
    reader = open_db("r")
    for each in (db, reader):
        assert list(each) == [b"later", b"later, large", b"never"]
        assert each.ttl(b"later") == each.ttl(b"later, large") == 45
        assert each[b"later, large"] == b"v" * (2 << 20)
    clock.advance(45)
    assert list(reader) == list(db) == [b"never"]
    assert lsmkv.verify(path).findings == []


@pytest.mark.parametrize("end", ["close", "kill"])
def test_the_clock_of_a_database_never_runs_backward(open_db, path, clock, end):
    db = open_db()
    db.put(b"k", b"v", ttl=50)
    db.put(b"z", b"v", ttl=5000)
    db.flush()
    clock.advance(60)
    assert db.get(b"k") is None
    clock.set(START)
    assert db.get(b"k") is None and db.ttl(b"z") == 4940
    if end == "kill":
        kill(db)
    else:
        db.close()
    for flag in ("r", "c"):
        db = open_db(flag)
        assert db.get(b"k") is None and db.ttl(b"z") == 4940
        db.close()
    # The manifest has it now, and SYNCED is not needed.
    (path / "SYNCED").unlink()
    assert open_db().get(b"k") is None


def by_flush(db, clock):
    db.put(b"k", b"v", ttl=10)
    clock.advance(10)
    db.flush()


def by_compaction(db, clock):
    for _ in range(2):
        db.put(b"k", b"v", ttl=10)
        db.flush()
    clock.advance(10)
    db.compact_range()


def by_drop(db, clock):
    table_of_expired(db)
    clock.advance(10)
    allow_compactions(db)


@pytest.mark.parametrize("reclaim", [by_flush, by_compaction, by_drop])
def test_after_a_power_cut_all_is_expired_that_was_when_some_was_reclaimed(open_db, path, clock, reclaim):
    db = open_db()
    keep_still(db)
    other = db.keyspace("other")
    keep_still(other)
    other.put(b"a", b"v", ttl=10)
    db.flush()
    reclaim(db, clock)
    assert list(db) == []
    assert [f.expiring for f in db._versions.trees[other.keyspace_id].current.files()] == [1]
    kill(db)
    (path / "SYNCED").unlink()  # which is never synced
    clock.set(START)
    assert list(open_db().keyspace("other")) == []


def test_a_clock_ends_before_what_never_expires(open_db, clock):
    db = open_db()
    db.put(b"never", b"v", ttl=math.inf)
    db.put(b"k", b"v", ttl=50)
    clock.set(5e15)  # above the largest expiry, which is 2^62 ms
    assert list(db) == [b"never"]
    db.flush()
    for _ in range(2):
        db.close()
        db = open_db()
        assert list(db) == [b"never"]


@pytest.mark.parametrize("time", [1 << 62, 1 << 63, (1 << 64) - 1])
def test_an_impossible_clock_in_synced_is_ignored(open_db, path, time):
    db = open_db()
    db.put(b"k", b"v", ttl=50)
    db.flush()
    db.close()
    with open(path / "SYNCED", "r+b") as file:
        for offset, slot in encode_clock(time):
            file.seek(offset)
            file.write(slot)
    for flag in ("r", "c", "c"):
        db = open_db(flag)
        assert list(db) == [b"k"]
        db.close()


def test_a_clock_far_ahead_warns(open_db, path, clock, caplog):
    db = open_db()
    clock.set(4e9)  # the year 2096
    db.put(b"k", b"v", ttl=5)
    db.flush()
    db.close()
    assert caplog.messages == []
    lsmkv.open(path).close()
    assert any("days ahead of the system" in message for message in caplog.messages)


def test_the_clock_can_be_reset(open_db, path, clock):
    db = open_db()
    keep_still(db)  # what was reclaimed does not come back
    db.put(b"k", b"v")
    db.put(b"z", b"v", expire_at=3e9)
    db.flush()
    clock.set(4e9)
    assert list(db) == [b"k"]
    with pytest.raises(lsmkv.LockError):
        reset_clock(path)
    db.close()
    now = reset_clock(path) / 1000
    assert now == pytest.approx(time.time(), abs=60)
    with lsmkv.open(path) as db:
        assert list(db) == [b"k", b"z"] and db.ttl(b"z") == pytest.approx(3e9 - now, abs=60)
    assert lsmkv.verify(path).findings == []


def test_a_format_1_database_has_no_clock_to_reset(path):
    write_format_1(path)
    reset_clock(path)
    with lsmkv.open(path) as db:
        assert db._versions.state.format_version == 1 and dict(db) == {b"old": b"v"}


def test_a_compaction_reclaims_expired_entries(db, clock):
    for n in range(100):
        db.put(b"%03d" % n, b"x" * 1000, **({"ttl": 10} if n % 2 else {}))
    db.flush()
    db.compact_range()
    before = db.stats().expiry
    assert before.expired_bytes == 0 and before.reclaimed_bytes == 0
    clock.advance(10)
    during = db.stats().expiry
    assert during.expired_bytes == 50 * (3 + 8 + 1000)
    assert during.live_bytes == before.live_bytes - during.expired_bytes
    db.compact_range()
    after = db.stats().expiry
    assert (after.expired_bytes, after.live_bytes) == (0, during.live_bytes)
    assert after.reclaimed_bytes == during.expired_bytes
    (f,) = db._versions.default.current.files()
    assert (f.entries, f.deletes, f.expiring) == (50, 0, 0)
    assert db._versions.state.clock == (START + 10) * 1000


def table_of_expired(db, ttl=10, prefix=b"k"):
    for n in range(50):
        db.put(prefix + b"%02d" % n, b"v" * 100, ttl=ttl)
    db.flush()


def allow_compactions(db):
    db._work.claims.suspended -= 1
    db._scheduler.wait_idle()
    db._work.claims.suspended += 1


def test_a_table_of_expired_entries_is_dropped_unread(db, clock):
    table_of_expired(db)
    db.put(b"a", b"stays")
    db.flush()
    clock.advance(9)
    allow_compactions(db)
    assert db.background.drops == 0 and len(db._versions.tables) == 2
    clock.advance(1)
    allow_compactions(db)
    assert db.background.drops == 1 and db.background.compactions == 0
    assert [f.smallest for f in db._versions.default.current.files()] == [b"a"]
    assert db.background.expired_bytes == 50 * (3 + 8 + 100)
    assert db._versions.state.clock == (START + 10) * 1000
    assert dict(db) == {b"a": b"stays"}


def older_in_l0(db):
    db.put(b"k25", b"older")
    db.flush()
    table_of_expired(db)


def older_below(db):
    db.put(b"k25", b"older")
    db.compact_range()
    table_of_expired(db)


def one_that_stays(db):
    db.put(b"k25~", b"stays")
    table_of_expired(db)


def range_tombstone(db):
    db.put(b"m", b"older")
    db.compact_range()
    db.delete_range(b"m", b"n")
    table_of_expired(db)


@pytest.mark.parametrize("fill", [older_in_l0, older_below, one_that_stays, range_tombstone])
def test_a_table_that_hides_something_is_not_dropped(db, clock, fill):
    fill(db)
    clock.advance(10)
    want = dict(db)
    allow_compactions(db)
    assert db.background.reasons["expired"] == 0
    assert dict(db) == want and b"k25" not in db and b"m" not in db
    db.compact_range()
    assert dict(db) == want


def test_compaction_is_drawn_to_expired_entries(open_db, clock):
    db = open_db(target_file_size=4096, block_size=512, compression=None)
    keep_still(db)
    for n in range(200):
        db.put(b"%03d" % n, b"x" * 100)
    db.flush()
    for n in range(1, 60, 2):
        db.put(b"%03d" % n, b"x" * 100, ttl=10)
    db.compact_range()
    assert len(db._versions.tables) > 3
    allow_compactions(db)
    written = db.background.compaction_bytes_out
    clock.advance(10)
    allow_compactions(db)
    assert db.background.reasons["bottom tombstones"] > 0
    files = list(db._versions.default.current.files())
    assert sum(f.expiring for f in files) < 10
    # Tables without expired entries stay as they are.
    assert db.background.compaction_bytes_out - written < sum(f.size for f in files) / 2


def test_a_keyspace_has_expiries_of_its_own(db, clock):
    users = db.keyspace("users")
    users.put(b"k", b"user", ttl=5)
    db.put(b"k", b"v")
    db.flush()
    clock.advance(5)
    assert db[b"k"] == b"v" and users.get(b"k") is None
    with db.snapshot() as now:
        assert now.keyspace(users).get(b"k") is None


def test_ingested_tables_expire(db, path, tmp_path, clock):
    db.put(b"k", b"older")
    with lsmkv.SSTWriter(tmp_path / "a.sst") as table:
        table.put(b"k", b"v", expire_at=START + 10)
        table.put(b"m", b"v")
    db.ingest([tmp_path / "a.sst"])
    assert db[b"k"] == b"v" and db.ttl(b"k") == 10
    clock.advance(10)
    assert dict(db) == {b"m": b"v"}
    db.rebuild_filters()
    db.compact_range()
    assert dict(db) == {b"m": b"v"}


def test_a_filter_rebuild_keeps_expiries(open_db, path, clock):
    db = open_db(bits_per_key=5)
    keep_still(db)
    table_of_expired(db)
    db.put(b"a", b"stays")
    db.compact_range()
    before = {f.number: (f.expiring, f.min_expiry, f.max_expiry) for f in db._versions.default.current.files()}
    db.set_options(bits_per_key=15)
    db.rebuild_filters()
    after = {f.number: (f.expiring, f.min_expiry, f.max_expiry) for f in db._versions.default.current.files()}
    assert list(before.values()) == list(after.values()) and before.keys().isdisjoint(after)
    clock.advance(10)
    db.close()
    assert lsmkv.verify(path).findings == []
    assert dict(open_db()) == {b"a": b"stays"}


def test_a_table_outside_a_database_hides_what_expired(tmp_path):
    with lsmkv.SSTWriter(tmp_path / "a.sst") as table:
        table.put(b"k", b"v", expire_at=10)
        table.put(b"m", b"v", ttl=1000)
    assert table.summary["n_entries"] == 2
    with lsmkv.SSTReader(tmp_path / "a.sst") as reader:
        assert dict(reader.items()) == {b"m": b"v"} and len(reader) == 1
        assert reader.get(b"k") is None and b"k" not in reader and reader[b"m"] == b"v"
        assert [(key, expiry > 0) for key, _, _, expiry in reader.table.entries(expiries=True)] == [
            (b"k", True),
            (b"m", True),
        ]
        assert reader.properties["expiring"] == 2 and reader.properties["min_expiry"] == 10_000


def test_a_checkpoint_keeps_expiries_and_the_clock(db, tmp_path, clock):
    db.put(b"k", b"v", ttl=50)
    db.put(b"m", b"v", ttl=500)
    clock.advance(60)
    assert db.get(b"k") is None
    db.checkpoint(tmp_path / "copy")
    with lsmkv.open(tmp_path / "copy", clock=lsmkv.ManualClock(START)) as copy:
        assert list(copy) == [b"m"] and copy.ttl(b"m") == 440


@pytest.mark.parametrize("lost", ["", "CURRENT"])
def test_a_repair_keeps_expiries(open_db, path, clock, lost):
    db = open_db()
    db.put(b"table", b"v", ttl=50)
    db.flush()
    db.put(b"log", b"v", ttl=50)
    kill(db)
    if lost:
        (path / lost).unlink()
    lsmkv.repair(path)
    db = open_db()
    assert list(db) == [b"log", b"table"] and db.ttl(b"log") == db.ttl(b"table") == 50
    clock.advance(50)
    assert list(db) == []


def write_format_1(path):
    from lsmkv.recovery import open_writer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_writer, "LATEST_FORMAT", 1)
        with lsmkv.open(path) as db:
            db.put(b"old", b"v")


@pytest.mark.parametrize("how", ["put", "batch", "transaction", "add with a default", "ingest", "touch"])
def test_the_first_expiry_upgrades_a_format_1_database(path, tmp_path, clock, how):
    write_format_1(path)
    options = {"default_ttl": 10} if how == "add with a default" else {}
    with lsmkv.open(path, clock=clock, **options) as db:
        assert db._versions.state.format_version == 1
        if how == "put":
            db.put(b"k", b"v", ttl=10)
        elif how == "batch":
            with db.write_batch() as batch:
                batch.put(b"k", b"v", ttl=10)
        elif how == "transaction":
            with db.transaction() as tx:
                tx.put(b"k", b"v", ttl=10)
        elif how == "ingest":
            with lsmkv.SSTWriter(tmp_path / "a.sst") as table:
                table.put(b"k", b"v", expire_at=START + 10)
            db.ingest([tmp_path / "a.sst"])
        elif how == "touch":
            db.put(b"k", b"v")
            db.touch(b"k", 10)
        else:
            db.add(b"k")
        assert db._versions.state.format_version == LATEST_FORMAT
        assert db.ttl(b"k") == 10
    with lsmkv.open(path, clock=clock) as db:
        assert list(db) == [b"k", b"old"] and db.ttl(b"k") == 10


def test_without_expiries_a_format_1_database_stays_one(path, clock):
    write_format_1(path)
    with lsmkv.open(path, clock=clock) as db:
        with db.snapshot() as before:
            assert before[b"old"] == b"v"
        db.put(b"k", b"v", ttl=None)
        db.compact_range()
    with lsmkv.open(path) as db:
        assert db._versions.state.format_version == 1 and dict(db) == {b"k": b"v", b"old": b"v"}


def test_values_of_every_size(db, clock, path):
    values = {b"%03d" % n: b"v" * size for n, size in enumerate([0, 1, 7, 8, 9, 4000, 4096, 70_000, 1 << 20])}
    for key, value in values.items():
        db.put(key, value, ttl=10)
    for settle in (leave, flush, compact):
        settle(db)
        assert dict(db) == values and db.multi_get(list(values)) == list(values.values())
    assert lsmkv.verify(path).findings == []
    clock.advance(10)
    assert dict(db) == {}

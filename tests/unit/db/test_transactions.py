"""Transactions: serializable, whatever runs beside them."""

import gc
import itertools
import random
import threading

import pytest

import lsmkv


@pytest.fixture
def users(db):
    return db.keyspace("users")


def test_others_see_nothing_before_the_commit(db, users):
    with db.transaction() as tx:
        tx.put(b"a", b"1")
        tx.put(b"a", b"2", keyspace=users)
        assert tx.get(b"a") == b"1" and tx.get(b"a", keyspace=users) == b"2"
        assert b"a" not in db and b"a" not in users
    assert db[b"a"] == b"1" and users[b"a"] == b"2"


def test_a_block_that_raises_writes_nothing(db):
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx[b"a"] = b"1"
        raise ZeroDivisionError
    assert b"a" not in db and tx.closed


def test_reads_are_of_one_moment_and_see_own_writes(db, users):
    db[b"a"], db[b"b"], users[b"c"] = b"1", b"2", b"3"
    tx = db.transaction()
    db[b"a"], users[b"c"] = b"later", b"later"
    assert tx[b"a"] == b"1" and tx.get(b"c", keyspace=users) == b"3"
    del tx[b"b"]
    assert b"b" not in tx and tx.get(b"b", b"?") == b"?"
    with pytest.raises(KeyError):
        tx[b"b"]
    with pytest.raises(KeyError):
        del tx[b"b"]
    tx[b"b"] = b"4"
    tx.delete_range(b"a", b"b")
    assert tx.multi_get([b"a", b"b", b"x"]) == [None, b"4", None]
    tx.put(b"a", b"5")
    assert tx[b"a"] == b"5"
    tx.rollback()
    assert db[b"a"] == b"later" and db[b"b"] == b"2"


@pytest.mark.parametrize("reverse", [False, True])
def test_iteration_merges_own_writes(db, reverse):
    model = {}
    for i in range(0, 40, 2):
        db[b"%02d" % i] = model[b"%02d" % i] = b"old"
    rng = random.Random(1)
    with db.transaction() as tx:
        for _ in range(60):
            key = b"%02d" % rng.randrange(40)
            match rng.randrange(4):
                case 0:
                    tx.delete(key)
                    model.pop(key, None)
                case 1:
                    stop = b"%02d" % rng.randrange(40)
                    tx.delete_range(key, stop)
                    model = {k: v for k, v in model.items() if not key <= k < stop}
                case _:
                    tx.put(key, b"new")
                    model[key] = b"new"
            low, high = sorted(b"%02d" % rng.randrange(40) for _ in range(2))
            wanted = sorted((item for item in model.items() if low <= item[0] < high), reverse=reverse)
            assert list(tx.items(low, high, reverse=reverse)) == wanted
            wanted = sorted((item for item in model.items() if item[0].startswith(b"1")), reverse=reverse)
            assert list(tx.items(prefix=b"1", reverse=reverse)) == wanted
        assert sorted(tx) == sorted(model) and sorted(tx.values()) == sorted(model.values())
    assert dict(db) == model


def conflicts(db, read, write, *, between=lambda: None):
    """Whether a transaction that reads, and writes somewhere else, conflicts with a write meanwhile."""
    tx = db.transaction()
    read(tx)
    write()
    between()
    tx.put(b"elsewhere", b"1")
    try:
        tx.commit()
    except lsmkv.ConflictError:
        assert b"elsewhere" not in db
        return True
    db.delete(b"elsewhere")
    return False


WRITES = {
    "put": lambda place: place.put(b"m", b"new"),
    "delete": lambda place: place.delete(b"m"),
    "delete_range": lambda place: place.delete_range(b"l", b"n"),
    "clear": lambda place: place.clear(),
    "batch": lambda place: batch(place),
    "add": lambda place: place.modify(b"m", lambda value: b"modified"),
}
READS = {
    "get": lambda tx, place: tx.get(b"m", keyspace=place),
    "items": lambda tx, place: list(tx.items(keyspace=place)),
    "range": lambda tx, place: list(tx.items(b"l", b"n", keyspace=place)),
    "reverse": lambda tx, place: list(tx.items(reverse=True, keyspace=place)),
    "prefix": lambda tx, place: list(tx.items(prefix=b"m", keyspace=place)),
}


def batch(place):
    with place.write_batch() as out:
        out.put(b"x", b"1")
        out.put(b"m", b"1")


@pytest.mark.parametrize("between", ["nothing", "flush", "compact", "other writes"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("read", READS)
def test_a_read_that_changed_conflicts(db, users, read, write, named, between):
    place = users if named else db
    place[b"m"] = b"old"
    db.flush()
    steps = {
        "nothing": lambda: None,
        "flush": db.flush,
        "compact": lambda: (db.compact_range(), users.compact_range()),
        "other writes": lambda: [db.put(b"z%d" % i, b"") for i in range(10)],
    }
    assert conflicts(db, lambda tx: READS[read](tx, place), lambda: WRITES[write](place), between=steps[between])


@pytest.mark.parametrize("read", READS)
def test_an_ingest_conflicts(db, users, tmp_path, read):
    with lsmkv.SSTWriter(tmp_path / "x.sst", seed=db.seed) as writer:
        writer.put(b"m", b"1")
    users[b"m"] = b"0"
    assert conflicts(db, lambda tx: READS[read](tx, users), lambda: users.ingest([tmp_path / "x.sst"]))


def test_an_ingest_of_other_keys_does_not_conflict(db, users, tmp_path):
    numbers = itertools.count()

    def ingest():
        path = tmp_path / f"{next(numbers)}.sst"
        with lsmkv.SSTWriter(path, seed=db.seed) as writer:
            writer.put(b"m", b"1")
            writer.put(b"p", b"1")
        users.ingest([path])

    for key in (b"l", b"m", b"n", b"p", b"p1"):
        users[key] = b"0"
        assert conflicts(db, lambda tx, k=key: tx.get(k, keyspace=users), ingest) == (b"m" <= key <= b"p")
    assert not conflicts(db, lambda tx: list(tx.items(stop=b"m", keyspace=users)), ingest)
    assert not conflicts(db, lambda tx: list(tx.items(b"p0", keyspace=users)), ingest)
    assert conflicts(db, lambda tx: list(tx.items(b"p", keyspace=users)), ingest)
    assert not conflicts(db, lambda tx: tx.get(b"m"), ingest)


def test_a_dropped_keyspace_conflicts(db, users):
    users[b"m"] = b"0"
    assert conflicts(db, lambda tx: tx.get(b"m", keyspace=users), lambda: db.drop_keyspace("users"))


def test_what_was_not_read_does_not_conflict(db, users):
    for key in (b"a", b"m", b"z"):
        db[key] = users[key] = b"old"
    others = lambda: (db.put(b"a", b"1"), db.delete(b"z"), users.put(b"m", b"1"), db.delete_range(b"n", b"z"))  # noqa: E731
    assert not conflicts(db, lambda tx: tx.get(b"m"), others)
    assert not conflicts(db, lambda tx: list(tx.items(b"b", b"n")), others)
    assert not conflicts(db, lambda tx: next(tx.items(b"b")), others)
    assert not conflicts(db, lambda tx: next(tx.items(b"b", b"n", reverse=True)), others)
    # Its own writes are not read from the database.
    assert not conflicts(db, lambda tx: (tx.put(b"q", b"1"), tx.get(b"q")), lambda: db.put(b"q", b"2"))


def test_only_the_keys_that_were_passed_count_as_read(db):
    for i in range(10):
        db[b"%d" % i] = b"old"
    take = lambda count: lambda tx: list(itertools.islice(tx.items(), count))  # noqa: E731
    assert not conflicts(db, take(3), lambda: db.put(b"3", b"new"))
    assert conflicts(db, take(3), lambda: db.put(b"2", b"new"))
    assert conflicts(db, take(3), lambda: db.put(b"15", b"phantom"))
    assert conflicts(db, take(100), lambda: db.put(b"9999", b"phantom"))


def test_a_transaction_without_writes_never_conflicts(db):
    db[b"a"] = b"1"
    with db.transaction() as tx:
        assert tx[b"a"] == b"1"
        db[b"a"] = b"2"


def test_blind_writes_never_conflict(db):
    with db.transaction() as tx:
        tx[b"a"] = b"tx"
        db[b"a"] = b"other"
    assert db[b"a"] == b"tx"


def test_write_skew_is_refused(db):
    db[b"a"] = db[b"b"] = b"on call"
    one, two = db.transaction(), db.transaction()
    for tx in (one, two):
        assert tx[b"a"] == tx[b"b"] == b"on call"
    one[b"a"] = b"off"
    two[b"b"] = b"off"
    one.commit()
    with pytest.raises(lsmkv.ConflictError):
        two.commit()
    assert (db[b"a"], db[b"b"]) == (b"off", b"on call")


def test_deleted_and_compacted_away_is_still_a_change(db):
    """Tables keep no trace of it; the memtables kept for transactions do."""
    db[b"m"] = b"old"
    db.flush()
    tx = db.transaction()
    assert tx[b"m"] == b"old"
    db.delete(b"m")
    db.flush()
    db.compact_range()
    assert sum(1 for _ in db._tree.current.files()) == 0
    tx[b"x"] = b"1"
    with pytest.raises(lsmkv.ConflictError):
        tx.commit()


def test_what_is_kept_for_transactions_is_bounded(path):
    with lsmkv.open(path, write_buffer_size=1 << 20, large_value_threshold=None) as db:
        first = db.transaction()
        first.get(b"a")
        for i in range(90):
            db[b"%06d" % i] = b"x" * (1 << 20)
            db.flush()
        assert not conflicts(db, lambda tx: tx.get(b"b"), lambda: None)
        # More than the limit was flushed, so nothing proves that `a` is unchanged.
        first[b"c"] = b"1"
        with pytest.raises(lsmkv.ConflictError):
            first.commit()


def test_a_small_flush_does_not_disturb_a_transaction(db):
    tx = db.transaction()
    tx.get(b"a")
    list(tx.items(b"a", b"b"))
    for i in range(5):
        db[b"other%d" % i] = b"1"
        db.flush()
    db.compact_range()
    tx[b"a"] = b"1"
    tx.commit()
    assert db[b"a"] == b"1"


def test_an_ended_transaction_refuses_calls(db, users):
    tx = db.transaction()
    tx.commit()
    tx.rollback()
    calls = (
        lambda: tx.get(b"a"),
        lambda: tx.put(b"a", b"1"),
        lambda: tx.delete(b"a"),
        lambda: tx.delete_range(b"a", b"b"),
        lambda: list(tx.items()),
        lambda: tx.commit(),
    )
    for call in calls:
        with pytest.raises(lsmkv.ClosedError):
            call()
    tx = db.transaction()
    db.close()
    for call in calls:
        with pytest.raises(lsmkv.ClosedError):
            call()


def test_a_keyspace_of_another_database_is_refused(db, tmp_path):
    with lsmkv.open(tmp_path / "other") as other, db.transaction() as tx:
        for call in (lambda: tx.get(b"a", keyspace=other), lambda: tx.put(b"a", b"1", keyspace=other.keyspace("k"))):
            with pytest.raises(ValueError, match="another database"):
                call()
        with pytest.raises(TypeError, match="Keyspace"):
            tx.get(b"a", keyspace="users")


def test_a_keyspace_made_after_the_start_cannot_be_read(db):
    with db.transaction() as tx:
        late = db.keyspace("late")
        with pytest.raises(lsmkv.KeyspaceError):
            tx.get(b"a", keyspace=late)
        tx.put(b"a", b"1", keyspace=late)
    assert late[b"a"] == b"1"


def test_large_transactions(db):
    db[b"n"] = b"1"
    tx = db.transaction()
    assert tx[b"n"] == b"1"
    for i in range(3000):
        tx[b"%06d" % i] = b"x" * 100
    tx.commit()
    assert len(db) == 3001
    tx = db.transaction()
    assert tx[b"n"] == b"1"
    for i in range(3000):
        tx[b"%06d" % i] = b"y" * 100
    db[b"n"] = b"2"
    with pytest.raises(lsmkv.ConflictError):
        tx.commit()
    assert db[b"000000"] == b"x" * 100
    db[b"after"] = b"1"  # the turn is free


def test_a_committed_transaction_survives_a_reopen(path):
    with lsmkv.open(path) as db:
        users = db.keyspace("users")
        with db.transaction() as tx:
            tx.put(b"a", b"1")
            tx.put(b"a", b"2", keyspace=users)
        tx = db.transaction()
        tx.put(b"b", b"1")
        tx.commit(sync=True)
    with lsmkv.open(path) as db:
        assert dict(db) == {b"a": b"1", b"b": b"1"} and dict(db.keyspace("users")) == {b"a": b"2"}


def test_a_read_only_database_reads_in_transactions(db):
    db[b"a"] = b"1"
    with lsmkv.open(db.path, "r") as reader:
        with reader.transaction() as tx:
            assert tx[b"a"] == b"1"
        tx = reader.transaction()
        tx[b"a"] = b"2"
        with pytest.raises(lsmkv.ReadOnlyError):
            tx.commit()


def test_abandoned_transactions_are_forgotten(db):
    for _ in range(3):
        tx = db.transaction()
        tx.get(b"a")
        del tx
    db[b"a"] = b"1"
    db.flush()
    assert not conflicts(db, lambda tx: tx.get(b"a"), lambda: None)


def test_transact_runs_again_until_it_fits(db):
    runs = []

    def count(tx):
        runs.append(1)
        value = tx.get(b"n", b"")
        if len(runs) < 4:
            db[b"n"] = b"%d" % len(runs)
        tx[b"n"] = value + b"!"
        return value

    assert db.transact(count) == b"3" and db[b"n"] == b"3!" and len(runs) == 4
    with pytest.raises(lsmkv.ConflictError):
        db.transact(lambda tx: (tx.get(b"n"), db.add(b"m"), db.put(b"n", b"x"), tx.put(b"k", b"")), retries=2)
    assert db.add(b"m", 0) == 3
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda tx: 1 // 0)


def test_an_iterator_outlives_nothing(db):
    db[b"a"] = b"1"
    tx = db.transaction()
    items = tx.items()
    tx.rollback()
    assert list(items) in ([], [(b"a", b"1")])


@pytest.mark.parametrize("size", [1 << 14, 1 << 26])
def test_concurrent_transactions_are_as_if_one_after_the_other(path, size):
    """Every committed transaction must have read exactly what the ones committed before it left. Their order is that of
    their sequence numbers.
    """
    with lsmkv.open(path, write_buffer_size=size, l0_compaction_trigger=2) as db:
        spaces = [db, db.keyspace("a"), db.keyspace("b")]
        for space in spaces:
            for i in range(12):
                space[b"%02d" % i] = b"0"
        start = [dict(space) for space in spaces]
        committed, conflicted, errors = [], [], []
        stop = threading.Event()

        def work(seed):
            rng = random.Random(seed)
            try:
                for number in range(250):
                    tx, reads, writes = db.transaction(), [], []
                    for step in range(rng.randrange(1, 6)):
                        n, key = rng.randrange(3), b"%02d" % rng.randrange(14)
                        match rng.randrange(6):
                            case 0 | 1:
                                reads.append((n, key, None, tx.get(key, keyspace=spaces[n]), len(writes)))
                            case 2:
                                last = b"%02d" % rng.randrange(14)
                                found = list(tx.items(key, last, reverse=bool(step % 2), keyspace=spaces[n]))
                                reads.append((n, key, last, sorted(found), len(writes)))
                            case 3:
                                last = b"%02d" % min(13, int(key) + 2)
                                tx.delete_range(key, last, keyspace=spaces[n])
                                writes.append(("r", n, key, last))
                            case 4:
                                tx.delete(key, keyspace=spaces[n])
                                writes.append(("d", n, key, None))
                            case 5:
                                value = b"%d-%d-%d" % (seed, number, step)
                                tx.put(key, value, keyspace=spaces[n])
                                writes.append(("p", n, key, value))
                    try:
                        tx.commit()
                    except lsmkv.ConflictError:
                        conflicted.append(number)
                        continue
                    if tx.committed:
                        committed.append((tx.committed, reads, writes))
            except BaseException as error:
                errors.append(error)

        def disturb():
            while not stop.is_set():
                db.flush()
                spaces[1].compact_range()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        disturbing = threading.Thread(target=disturb)
        for thread in (*threads, disturbing):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        disturbing.join()
        assert not errors
        assert len({sequence for sequence, _, _ in committed}) == len(committed) > 300
        state = start
        for _, reads, writes in sorted(committed, key=lambda each: each[0]):
            for n, key, last, seen, own in reads:
                held = [dict(each) for each in state]
                for write in writes[:own]:
                    apply(held, write)
                if last is None:
                    assert held[n].get(key) == seen
                else:
                    assert sorted(item for item in held[n].items() if key <= item[0] < last) == seen
            for write in writes:
                apply(state, write)
        assert [dict(space) for space in spaces] == state


def apply(state, write):
    kind, n, key, more = write
    if kind == "p":
        state[n][key] = more
    elif kind == "d":
        state[n].pop(key, None)
    else:
        state[n] = {k: v for k, v in state[n].items() if not key <= k < more}


def test_a_transaction_in_a_cycle_is_collected(db):
    """The collector takes its fields away before it ends."""
    for _ in range(3):
        tx = db.transaction()
        tx.get(b"a")
        holder = [tx]
        holder.append(holder)
        tx.own_holder = holder
        del tx, holder
        gc.collect()
    db[b"a"] = b"1"
    db.flush()
    assert not conflicts(db, lambda tx: tx.get(b"a"), lambda: None)


def test_a_transaction_is_made_once(db):
    tx = db.transaction()
    tx[b"a"] = b"1"
    with pytest.raises(TypeError):
        tx.__init__(db)
    assert tx[b"a"] == b"1"
    tx.rollback()


def commit_while_the_writer_is_busy(db, tx, meanwhile):
    """Calls `meanwhile` while the commit waits for the writer's turn. Returns what the commit raised."""
    raised = []

    def commit():
        try:
            tx.commit()
        except lsmkv.Error as error:
            raised.append(error)

    committer = threading.Thread(target=commit)
    with db._engine.exclusive():
        committer.start()
        committer.join(0.3)  # it cannot end
        meanwhile()
    committer.join()
    return raised


def test_no_thread_can_write_to_a_transaction_that_is_being_committed(db):
    """The batch was moved in memory while the log copied it."""
    tx = db.transaction()
    tx.put(b"a", bytes(1 << 17))

    def write():
        with pytest.raises(BufferError):
            tx.put(b"b", bytes(1 << 20))

    assert commit_while_the_writer_is_busy(db, tx, write) == []
    assert list(db) == [b"a"]


def test_a_rollback_before_the_write_wins(db):
    tx = db.transaction()
    tx.get(b"a")
    tx.put(b"a", bytes(1 << 17))
    (error,) = commit_while_the_writer_is_busy(db, tx, tx.rollback)
    assert isinstance(error, lsmkv.ConflictError)
    assert list(db) == [] and tx.committed == 0

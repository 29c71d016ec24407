"""Atomic updates: one step for all threads, one record in the log."""

import struct
import threading

import pytest

import lsmkv

MOST, LEAST = (1 << 63) - 1, -(1 << 63)


@pytest.fixture(params=["db", "keyspace", "prefix"])
def place(request, db):
    """Everything that has these calls."""
    return {"db": db, "keyspace": db.keyspace("k"), "prefix": db.prefixed_db(b"p:")}[request.param]


def number(value):
    return struct.pack("<q", value)


def test_add_counts(place):
    assert [place.add(b"n"), place.add(b"n", 5), place.add(b"n", -10), place.add(b"m", 1, 100)] == [1, 6, -4, 101]
    assert place[b"n"] == number(-4)


@pytest.mark.parametrize("start, step", [(MOST, 1), (LEAST, -1), (MOST - 1, MOST), (-2, LEAST)])
def test_a_sum_that_does_not_fit_is_refused(place, start, step):
    place[b"n"] = number(start)
    with pytest.raises(OverflowError):
        place.add(b"n", step)
    assert place[b"n"] == number(start)


def test_numbers_reach_their_bounds(place):
    assert place.add(b"n", MOST) == MOST and place.add(b"n", LEAST) == -1
    assert place.min(b"n", LEAST) == LEAST and place.max(b"n", MOST) == MOST
    with pytest.raises(OverflowError):
        place.add(b"n", 1 << 63)


@pytest.mark.parametrize("value", [b"", b"1234567", b"123456789"])
def test_a_value_of_another_length_is_no_number(place, value):
    place[b"n"] = value
    for call in (place.add, place.max, place.min):
        with pytest.raises(ValueError, match="8"):
            call(b"n", 1)
    assert place[b"n"] == value


def test_max_and_min(place):
    assert [place.max(b"n", 3), place.max(b"n", 9), place.max(b"n", 5)] == [3, 9, 9]
    assert [place.min(b"n", 12), place.min(b"n", -4)] == [9, -4]


def test_append(place):
    assert [place.append(b"a", b"one"), place.append(b"a", bytearray(b"two")), place.append(b"a", b"")] == [3, 6, 6]
    assert place[b"a"] == b"onetwo"


def test_compare_and_set(place):
    assert not place.compare_and_set(b"a", b"", b"1")
    assert place.compare_and_set(b"a", None, b"1")
    assert not place.compare_and_set(b"a", None, b"2")
    assert not place.compare_and_set(b"a", b"2", b"3")
    assert place.compare_and_set(b"a", b"1", b"2") and place[b"a"] == b"2"
    assert place.compare_and_set(b"a", b"2", None) and b"a" not in place
    assert place.compare_and_set(b"a", None, None) and b"a" not in place


def test_modify(place):
    seen = []

    def grow(value):
        seen.append(value)
        return (value or b"") + b"x"

    assert [place.modify(b"a", grow) for _ in range(3)] == [b"x", b"xx", b"xxx"]
    assert seen == [None, b"x", b"xx"]
    assert place.modify(b"a", lambda value: None) is None and b"a" not in place


def test_modify_runs_again_after_another_write(place):
    seen = []

    def slow(value):
        seen.append(value)
        if len(seen) == 1:
            place[b"a"] = b"between"
        elif len(seen) == 2:
            place.delete_range(b"a", b"b")
        return (value or b"none") + b"!"

    place[b"a"] = b"first"
    assert place.modify(b"a", slow) == b"none!"
    assert seen == [b"first", b"between", None] and place[b"a"] == b"none!"


def test_modify_sees_an_ingest_and_a_flush(db, tmp_path):
    with lsmkv.SSTWriter(tmp_path / "x.sst", seed=db.seed) as writer:
        writer.put(b"a", b"ingested")
    steps = [lambda: db.ingest([tmp_path / "x.sst"]), db.flush, db.compact_range, lambda: None]
    seen = []

    def change(value):
        seen.append(value)
        if steps:
            steps.pop(0)()
        return value + b"!"

    db[b"a"] = b"1"
    assert db.modify(b"a", change) == b"ingested!" and seen[:2] == [b"1", b"ingested"]


def test_an_error_of_the_function_leaves_the_key(place):
    place[b"a"] = b"1"
    with pytest.raises(ZeroDivisionError):
        place.modify(b"a", lambda value: 1 // 0)
    with pytest.raises(TypeError):
        place.modify(b"a", lambda value: "text")
    assert place[b"a"] == b"1"


def test_pop(place):
    place[b"a"] = b"1"
    assert place.pop(b"a") == b"1" and place.pop(b"a", None) is None and b"a" not in place
    with pytest.raises(KeyError, match="a"):
        place.pop(b"a")


def test_setdefault(place):
    assert place.setdefault(b"a", b"1") == b"1" and place.setdefault(b"a", b"2") == b"1" == place[b"a"]


def test_popitem_takes_the_first_key(place):
    for key in (b"b", b"a", b"c"):
        place[key] = key
    assert [place.popitem() for _ in range(3)] == [(b"a", b"a"), (b"b", b"b"), (b"c", b"c")]
    with pytest.raises(KeyError):
        place.popitem()


def test_popitem_takes_a_smaller_key_that_comes_in_meanwhile(place, monkeypatch):
    """Between its read and its delete."""
    delete = lsmkv.Transaction.delete

    def delete_later(transaction, key):
        if b"a" not in place:
            place[b"a"] = b"1"
        delete(transaction, key)

    monkeypatch.setattr(lsmkv.Transaction, "delete", delete_later)
    place[b"b"] = b"2"
    assert place.popitem() == (b"a", b"1") and dict(place) == {b"b": b"2"}


def test_popitem_finds_a_key_that_comes_in_before_the_last_one_goes(place, monkeypatch):
    delete = lsmkv.Transaction.delete

    def delete_after_another(transaction, key):
        if b"a" in place:
            place[b"b"] = b"2"
            del place[b"a"]
        delete(transaction, key)

    monkeypatch.setattr(lsmkv.Transaction, "delete", delete_after_another)
    place[b"a"] = b"1"
    assert place.popitem() == (b"b", b"2") and not dict(place)


def test_values_in_tables_and_behind_tombstones(db):
    db[b"a"], db[b"n"] = b"1", number(41)
    db.flush()
    db.compact_range()
    assert db.add(b"n") == 42 and db.append(b"a", b"2") == 2 and db.pop(b"a") == b"12"
    db.flush()
    assert db.setdefault(b"a", b"3") == b"3" and db.add(b"n") == 43


def test_an_update_survives_a_reopen(path):
    with lsmkv.open(path) as db:
        db.add(b"n", 5, sync=True)
        db.keyspace("k").add(b"n", 7)
    with lsmkv.open(path) as db:
        assert db.add(b"n") == 6 and db.keyspace("k").add(b"n") == 8


def test_an_update_is_one_record(db):
    before = db.stats().writes
    db.add(b"n")
    db.modify(b"a", lambda value: b"1")
    db.pop(b"a")
    after = db.stats().writes
    assert (after.puts - before.puts, after.deletes - before.deletes) == (2, 1)


def test_updates_are_refused_where_writes_are(db, path):
    calls = (
        lambda place: place.add(b"n"),
        lambda place: place.append(b"n", b""),
        lambda place: place.max(b"n", 1),
        lambda place: place.compare_and_set(b"n", None, b""),
        lambda place: place.modify(b"n", lambda value: b""),
        lambda place: place.pop(b"n", None),
        lambda place: place.setdefault(b"n", b""),
        lambda place: place.popitem(),
    )
    with lsmkv.open(db.path, "r") as reader:
        for call in calls:
            with pytest.raises(lsmkv.ReadOnlyError):
                call(reader)
    db.close()
    for call in calls:
        with pytest.raises(lsmkv.ClosedError):
            call(db)


def test_a_function_that_closes_the_database(db):
    with pytest.raises(lsmkv.ClosedError):
        db.modify(b"a", lambda value: db.close() or b"1")


@pytest.mark.parametrize("size", [1 << 14, 1 << 26])
def test_no_update_is_lost_among_threads(path, size):
    """With a small write buffer memtables rotate and flush all the time."""
    with lsmkv.open(path, write_buffer_size=size) as db:
        spaces = [db, db.keyspace("k")]
        popped = [[] for _ in range(4)]
        for i in range(400):
            db[b"item%04d" % i] = b"x"

        def work(n):
            for i in range(1500):
                space = spaces[i % 2]
                space.add(b"n")
                space.modify(b"m", lambda value: number(struct.unpack("<q", value)[0] + 1 if value else 1))
                space.max(b"max", n * 10_000 + i)
                if i % 4 == 0:
                    space.append(b"tail", b"%d" % n)
                    space[b"pad%d" % (i % 20)] = b"y" * 100
                while not space.compare_and_set(b"cas", old := space.get(b"cas"), (old or b"")[-20:] + b"%d" % n):
                    pass
            for i in range(400):
                if db.pop(b"item%04d" % i, None) is not None:
                    popped[n].append(i)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for space in spaces:
            assert space.add(b"n", 0) == 3000 and space[b"m"] == number(3000)
            assert space.max(b"max", 0) == 31_499 - (space is db)
            assert len(space.get(b"tail", b"")) == (1500 if space is db else 0)
        assert sorted(i for each in popped for i in each) == list(range(400))


def test_one_pop_wins_each_item(path):
    with lsmkv.open(path) as db:
        for i in range(1000):
            db[b"%04d" % i] = b"%d" % i
        taken = [[] for _ in range(4)]

        def take(n):
            while True:
                try:
                    taken[n].append(db.popitem()[0])
                except KeyError:
                    return

        threads = [threading.Thread(target=take, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(key for each in taken for key in each) == [b"%04d" % i for i in range(1000)]

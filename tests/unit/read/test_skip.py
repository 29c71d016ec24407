"""A scan skips what a range tombstone covers, and only that."""

import itertools
import random

import pytest
from databases import keep_still, write_sst
from sortedcontainers import SortedDict

import lsmkv

N = 3000
# A skip comes after a few dead entries; without it a scan meets thousands.
FEW = 60


def key(i):
    return b"%06d" % i


def put(db, model, numbers, value=b"v"):
    for i in numbers:
        db[key(i)] = model[key(i)] = value


def delete_range(db, model, start, stop):
    db.delete_range(start, stop)
    for k in list(model.irange(start, stop, (True, False))):
        del model[k]


def check(reader, model):
    """Scans the whole and from the middle in both directions. Returns the most dead entries that one of them met."""
    dead = []
    bounds = ({}, {"start": key(N // 2)}, {"stop": key(N // 2)})
    for bound in bounds:
        expected = list(model.irange(bound.get("start"), bound.get("stop"), (True, False)))
        for reverse in (False, True):
            with reader.iterator(include_value=False, reverse=reverse, **bound) as it:
                assert list(it) == (expected[::-1] if reverse else expected)
                dead.append(it._dead)
    with reader.cursor() as cursor:
        for i in range(0, N, N // 7):
            cursor.seek(key(i))
            expected = next(model.irange(key(i)), None)
            assert (cursor.key() if cursor.valid else None) == expected
    return max(dead)


def to_memtable(db):
    pass


def to_l0(db):
    db.flush()


def to_levels(db):
    db.flush()
    db[key(0)] = b"v"  # a second table of L0: a single one would move down as it is
    db.flush()
    db.compact_range()
    assert len(db._versions.default.current.levels[1]) > 3


PLACES = pytest.mark.parametrize("place", [to_memtable, to_l0, to_levels])
OPTIONS = {"target_file_size": 8192, "block_size": 256, "compression": None}


@pytest.fixture
def model():
    return SortedDict()


@pytest.fixture
def db(path):
    with lsmkv.open(path, **OPTIONS) as db:
        keep_still(db)
        yield db


@PLACES
@pytest.mark.parametrize("flushed", [False, True])
def test_a_covered_range_is_skipped(db, model, place, flushed):
    put(db, model, range(N))
    place(db)
    delete_range(db, model, key(10), key(N - 10))
    if flushed:
        db.flush()
    assert check(db, model) < FEW


@PLACES
def test_clear_is_skipped(db, model, place):
    put(db, model, range(N))
    place(db)
    db.clear()
    model.clear()
    assert check(db, model) < FEW


@PLACES
def test_among_many_range_tombstones(db, model, place):
    """A memtable with that many has a tree of them, which a scan searches."""
    put(db, model, range(N))
    place(db)
    for i in range(40):
        delete_range(db, model, key(50 * i), key(50 * i + 2))
    delete_range(db, model, key(10), key(N - 10))
    assert check(db, model) < 2 * FEW


@pytest.mark.parametrize("place", [to_memtable, to_l0])
def test_point_tombstones_in_the_range_are_skipped(db, model, place):
    put(db, model, [0, N])
    db.flush()
    for i in range(1, N):
        db.delete(key(i))
    place(db)
    delete_range(db, model, key(1), key(N))
    assert check(db, model) < FEW


@PLACES
def test_newer_entries_in_the_range_are_kept(db, model, place):
    put(db, model, range(N))
    place(db)
    delete_range(db, model, key(10), key(N - 10))
    db.flush()
    put(db, model, range(0, N, 250), b"newer")
    assert check(db, model) < FEW
    db.flush()
    assert check(db, model) < FEW


def test_newer_entries_in_the_same_memtable_are_kept(db, model):
    put(db, model, range(N))
    delete_range(db, model, key(10), key(N - 10))
    put(db, model, range(0, N, 250), b"newer")
    delete_range(db, model, key(20), key(30))
    put(db, model, range(0, N, 300), b"newer")
    assert check(db, model) < FEW


def test_newer_entries_in_the_same_run_are_kept(db, model):
    """So many of them that the runs of the memtable are merged."""
    put(db, model, range(N))
    delete_range(db, model, key(10), key(N - 10))
    put(db, model, range(0, N, 2), b"newer")
    check(db, model)


def test_many_range_tombstones_among_the_entries(db, model):
    for i in range(100):
        put(db, model, range(30 * i, 30 * i + 30))
        delete_range(db, model, key(30 * i), key(30 * i + 20))
    check(db, model)
    db.flush()
    check(db, model)


@PLACES
def test_a_snapshot_skips_only_what_it_sees_deleted(db, model, place):
    put(db, model, range(N))
    place(db)
    with db.snapshot() as before:
        seen = SortedDict(model)
        delete_range(db, model, key(10), key(N - 10))
        with db.snapshot() as after:
            assert check(before, seen) == 0
            assert check(after, model) < FEW
            put(db, model, range(500, 600), b"newer")
            assert check(before, seen) == 0
            assert len(list(after.keys())) == 20
            db.flush()
            assert check(before, seen) == 0
            assert len(list(after.keys())) == 20
            check(db, model)


@PLACES
def test_nested_and_adjacent_ranges(db, model, place):
    put(db, model, range(N))
    place(db)
    delete_range(db, model, key(1000), key(2000))
    delete_range(db, model, key(10), key(1000))
    delete_range(db, model, key(2000), key(N - 10))
    delete_range(db, model, key(1200), key(1300))
    assert check(db, model) < 4 * FEW
    put(db, model, range(1250, 1260), b"newer")
    db.flush()
    delete_range(db, model, key(1255), key(1256))
    assert check(db, model) < 4 * FEW


def test_an_ingested_table_keeps_its_entries_under_its_own_range_tombstone(db, model, tmp_path):
    """Its entries and range tombstones have the same sequence number."""
    put(db, model, range(N))
    to_levels(db)
    with lsmkv.SSTWriter(tmp_path / "a.sst") as writer:
        writer.delete_range(key(10), key(N - 10))
        for i in range(100, 200):
            writer.put(key(i), b"ingested")
    db.ingest([tmp_path / "a.sst"])
    for k in list(model.irange(key(10), key(N - 10), (True, False))):
        del model[k]
    model.update({key(i): b"ingested" for i in range(100, 200)})
    assert check(db, model) < FEW


def test_an_ingested_table_is_skipped(db, model, tmp_path):
    db.ingest([write_sst(tmp_path / "a.sst", [(key(i), b"v") for i in range(N)])])
    model.update({key(i): b"v" for i in range(N)})
    delete_range(db, model, key(10), key(N - 10))
    assert check(db, model) < FEW


def test_a_newer_table_of_a_level_is_not_skipped(path, model):
    """Both levels have covered tables before and after one with newer entries."""
    with lsmkv.open(path, **OPTIONS) as db:
        keep_still(db)
        put(db, model, range(N))
        to_levels(db)
        delete_range(db, model, key(10), key(N - 10))
        db.flush()
        with lsmkv.SSTWriter(path.parent / "a.sst") as writer:
            for i in range(1500, 1600):
                writer.put(key(i), b"newer")
        numbers = [db._versions.numbers.next()]
        (path.parent / "a.sst").rename(path / f"{numbers[0]:06d}.sst")
        _replace_in_l1(db, numbers[0], key(1500), key(1599))
        model.update({key(i): b"newer" for i in range(1500, 1600)})
        assert check(db, model) < 3 * FEW


def _replace_in_l1(db, number, first, last):
    """Puts a table in the place of those of L1 that it overlaps, newer than all else."""
    versions, tree = db._versions, db._tree
    seq = versions.engine.last_seq + 1
    table = versions.open_table(number, seq)
    gone = [f.number for f in tree.current.levels[1] if f.largest >= first and f.smallest <= last]
    tree.apply([table], reason="", last_seq=seq, removed=tuple(gone), added=((1, table.meta),))


@PLACES
def test_a_range_that_ends_with_a_table(db, model, place):
    """Its stop is not part of the range, its start is."""
    put(db, model, range(N))
    place(db)
    tables = db._versions.default.current.levels[1] or db._versions.default.current.levels[0]
    ends = [key(N - 1), *(f.largest for f in tables)]
    starts = [key(0), *(f.smallest for f in tables)]
    for start, stop in itertools.product(starts[:3], ends[:3]):
        if start < stop:
            with db.snapshot() as before:
                seen = SortedDict(model)
                delete_range(db, model, start, stop)
                check(db, model)
                check(before, seen)
                put(db, model, range(N))
                place(db)


@PLACES
def test_a_scan_turns_round_beside_a_range(db, model, place):
    put(db, model, range(N))
    place(db)
    delete_range(db, model, key(10), key(N - 10))
    keys = list(model)
    with db.iterator(include_value=False) as it:
        for k in keys[:11]:
            assert next(it) == k
        for k in keys[10::-1]:
            assert it.prev() == k
        for k in keys:
            assert next(it) == k
        for k in keys[::-1]:
            assert it.prev() == k


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_against_a_model(path, tmp_path, seed):
    """Long ranges over a few hundred keys, so that scans skip; all states of the tree, snapshots among them."""
    rng = random.Random(seed)
    model, held = SortedDict(), []

    def bounds():
        low = rng.randrange(400)
        return low, low + rng.choice([1, 5, 50, 400])

    def ingest():
        low, high = bounds()
        name = tmp_path / f"{len(list(tmp_path.iterdir()))}.sst"
        with lsmkv.SSTWriter(name) as writer:
            if rng.random() < 0.5:
                start, stop = bounds()
                writer.delete_range(key(start), key(stop))
                for k in list(model.irange(key(start), key(stop), (True, False))):
                    del model[k]
            for i in range(low, high, 3):
                writer.put(key(i), b"ingested")
                model[key(i)] = b"ingested"
        db.ingest([name])

    def step():
        low, high = bounds()
        what = rng.randrange(12)
        if what < 4:
            put(db, model, range(low, high, rng.choice([1, 1, 7])), b"%d" % rng.randrange(1000))
        elif what < 7:
            delete_range(db, model, key(low), key(high))
        elif what == 7:
            db.flush()
        elif what == 8:
            db.compact_range(key(low), key(high))
        elif what == 9:
            ingest()
        elif what == 10:
            for i in range(low, high):
                db.delete(key(i))
                model.pop(key(i), None)
        else:
            held.append((db.snapshot(), SortedDict(model)))

    with lsmkv.open(path, **OPTIONS, write_buffer_size=32768, l0_compaction_trigger=3) as db:
        for _ in range(60):
            step()
            check(db, model)
            if held:
                check(*rng.choice(held))
        assert dict(db.items()) == dict(model)

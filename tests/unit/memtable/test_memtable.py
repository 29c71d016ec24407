"""The memtable: what it holds, and in which order a scan sees it."""

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lsmkv


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with lsmkv.open(tmp_path_factory.mktemp("memtable") / "db", write_buffer_size=64 << 20) as db:
        yield db


def fresh(db):
    """The active memtable, empty."""
    db.delete_range(b"", b"\xff" * 200)
    db.flush()
    assert db._engine.active.empty
    return db._engine.active


def test_its_figures(db):
    memtable = fresh(db)
    first = db._engine.last_seq
    for value in (b"1", b"2"):
        db.put(b"a", value)
    db.put(b"b", b"")
    db.delete(b"c")
    assert (memtable.entries, memtable.keys, memtable.deletes) == (4, 3, 1)
    assert (memtable.min_seq, memtable.max_seq) == (first + 1, first + 4)
    assert memtable.used_bytes > 4 * 32
    assert memtable.memory >= memtable.index_slots * 8


@pytest.mark.parametrize("write", ["put", "delete", "delete_range"])
def test_a_range_tombstone_counts_towards_the_smallest_sequence_number(db, write):
    memtable = fresh(db)
    first = db._engine.last_seq
    db.delete_range(b"a", b"b")
    {"put": db.put, "delete": lambda key, _: db.delete(key), "delete_range": db.delete_range}[write](b"c", b"d")
    assert (memtable.min_seq, memtable.max_seq) == (first + 1, first + 2)


def test_the_index_of_a_memtable_grows_in_one_step_to_what_the_last_one_needed(tmp_path):
    """It was moved at every doubling; and where it began that large, gets beside few writes missed the cache."""
    sizes = []
    with lsmkv.open(tmp_path / "db", write_buffer_size=64 << 20) as db:
        for _ in range(2):
            steps = []
            for i in range(100_000):
                db.put(b"%d" % i, b"")
                if not steps or steps[-1] != db._engine.active.index_slots:
                    steps.append(db._engine.active.index_slots)
            assert db._engine.active.keys == 100_000
            sizes.append(steps)
            db.flush()
        assert len(db) == 100_000
    assert sizes == [[1 << 12, 1 << 14, 1 << 16, 1 << 19], [1 << 12, 1 << 14, 1 << 16, 1 << 18]]


# --- order -----------------------------------------------------------------------------------------------------------

# Keys that share long prefixes, end within the eight bytes that are compared first, or differ only behind them.
KEYS = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([b"", b"a", b"a\0", b"a\0\0", b"prefix", b"prefix\0\0\0", b"prefix00000000"]),
    st.integers(0, 50).map(lambda n: b"shared by all of them " + b"%d" % n),
    st.integers(0, 50).map(lambda n: b"z" * n),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, st.booleans()), max_size=60), min_size=1, max_size=6))
def test_a_scan_sees_every_key_once_in_order(db, parts):
    """Each part is scanned, which sorts it into a run of its own or merges it with others."""
    fresh(db)
    model = {}
    moments = []
    for number, part in enumerate(parts):
        for key, delete in part:
            if delete:
                db.delete(key)
                model.pop(key, None)
            else:
                db.put(key, b"%d" % number)
                model[key] = b"%d" % number
        moments.append((db.snapshot(), dict(model)))
        assert list(db.items()) == sorted(model.items())
    for snapshot, then in moments:
        with snapshot:
            assert list(snapshot.items()) == sorted(then.items())
            assert list(snapshot.items(reverse=True)) == sorted(then.items(), reverse=True)


def test_many_versions_of_one_key_cost_no_order(db):
    fresh(db)
    for i in range(5000):
        db.put(b"counter", b"%d" % i)
        if i in (10, 4000):
            db.put(b"a", b"")
            db.put(b"z", b"")
    assert list(db.keys()) == [b"a", b"counter", b"z"]
    assert list(db.keys(reverse=True)) == [b"z", b"counter", b"a"]
    assert db.get(b"counter") == b"4999"


@pytest.mark.parametrize("depth", [1, 40, 1500])
def test_keys_that_share_ever_longer_prefixes(db, depth):
    """The sort goes one prefix deeper for each of them."""
    memtable = fresh(db)
    keys = [b"a" * (8 * i) + b"b" * 8 for i in range(depth)]
    for key in random.Random(depth).sample(keys, depth):
        db.put(key, b"")
    assert list(db.keys()) == sorted(keys)
    assert db._engine.active is memtable


def test_scans_beside_a_writer(db):
    """A scan sorts what was there when it began, while entries are appended and the index grows."""
    fresh(db)
    rng = random.Random(5)
    keys = [b"%08d" % rng.randrange(10**8) for _ in range(30_000)]
    done = threading.Event()
    problems = []

    def scan():
        try:
            while not done.is_set():
                snapshot = db.snapshot()
                first = list(snapshot.keys())
                assert first == sorted(set(first)) == list(snapshot.keys())
                assert all(snapshot.get(key) is not None for key in first[::97])
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=scan)
    thread.start()
    for start in range(0, len(keys), 500):
        with db.write_batch() as batch:
            for key in keys[start : start + 500]:
                batch.put(key, b"v")
    done.set()
    thread.join(60)
    assert not problems and list(db.keys()) == sorted(set(keys))

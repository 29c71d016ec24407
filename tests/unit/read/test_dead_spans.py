"""Scans jump over the ranges in which earlier scans found only deleted entries, and over nothing else."""

import threading

import pytest
from databases import keep_still, write_sst

import lsmkv
from lsmkv_ext.read import dead_spans

N = 1000
FEW = 30  # dead entries that a scan with spans may pass
OPTIONS = {"target_file_size": 8192, "block_size": 256, "compression": None, "large_value_threshold": 300}


def key(i):
    return b"%06d" % i


@pytest.fixture(autouse=True)
def least():
    before = dead_spans.set_least(8)
    yield
    dead_spans.set_least(before)


@pytest.fixture
def clock():
    return lsmkv.ManualClock(1000.0)


@pytest.fixture
def db(path, clock):
    with lsmkv.open(path, clock=clock, **OPTIONS) as db:
        keep_still(db)
        yield db


def fill(db, numbers=range(N)):
    for i in numbers:
        db.put(key(i), b"v")


def delete(db, numbers):
    for i in numbers:
        db.delete(key(i))


def spans(db):
    return [(start, stop) for start, stop, _, _ in db._live.spans.items]


def scan(reader, *, most=None, **bounds):
    """The keys, by scans in both directions that pass at most so many dead entries."""
    with reader.iterator(include_value=False, **bounds) as it:
        found = list(it)
        assert most is None or it._dead <= most
    with reader.iterator(include_value=False, reverse=True, **bounds) as it:
        assert list(it) == found[::-1]
        assert most is None or it._dead <= most
    return found


def dig(db, low=10, high=N - 10):
    """Deletes a range key by key and scans it, which leaves a span."""
    delete(db, range(low, high))
    with db.iterator(include_value=False) as it:
        list(it)
    assert any(start <= key(low) and stop > key(high - 1) for start, stop in spans(db))


ENDS = [key(i) for i in (*range(10), *range(N - 10, N))]


# --- jumping ---------------------------------------------------------------------------------------------------------


def in_memtable(db):
    fill(db)


def in_l0(db):
    fill(db)
    db.flush()


def in_levels(db):
    fill(db, range(0, N, 2))
    db.flush()
    fill(db, range(1, N, 2))
    db.flush()
    db.compact_range()
    assert len(db._versions.default.current.levels[1]) > 1


PLACES = pytest.mark.parametrize("place", [in_memtable, in_l0, in_levels])


@PLACES
@pytest.mark.parametrize("flushed", [False, True])
def test_a_scan_jumps_over_what_an_earlier_one_passed(db, place, flushed):
    place(db)
    delete(db, range(10, N - 10))
    if flushed:
        db.flush()
    assert scan(db) == ENDS
    assert scan(db, most=FEW) == ENDS
    assert scan(db, most=FEW, start=key(N // 2)) == ENDS[10:]
    assert scan(db, most=FEW, stop=key(N // 2)) == ENDS[:10]


@PLACES
@pytest.mark.parametrize("reverse", [False, True])
def test_one_direction_serves_the_other(db, place, reverse):
    place(db)
    delete(db, range(10, N - 10))
    assert len(list(db.iterator(reverse=reverse))) == 20
    assert scan(db, most=FEW) == ENDS


@PLACES
def test_seeks_and_cursors_jump(db, place):
    place(db)
    dig(db)
    with db.cursor() as cursor:
        for i in (10, 11, N // 2, N - 12, N - 11):
            assert cursor.seek(key(i)) and cursor.key() == key(N - 10)
            assert cursor.prev() and cursor.key() == key(9)
            assert cursor.seek_for_prev(key(i)) and cursor.key() == key(9)
            assert cursor.next() and cursor.key() == key(N - 10)
        assert cursor._dead < 20 * FEW
    with db.iterator(start=key(500), include_start=False, include_value=False) as it:
        assert next(it) == key(N - 10) and it.prev() == key(N - 10)
        it.seek(key(20))
        assert next(it) == key(N - 10) and it._dead <= FEW


def test_a_span_grows(db):
    """A queue: the first key is removed again and again."""
    fill(db)
    for i in range(N):
        with db.iterator(include_value=False) as it:
            assert next(it) == key(i)
            assert it._dead <= 16
        db.delete(key(i))
    assert scan(db) == []
    assert len(spans(db)) == 1


def test_an_empty_queue(db):
    fill(db)
    delete(db, range(N))
    assert scan(db) == []
    assert scan(db, most=FEW) == []
    db.put(key(N), b"v")
    assert scan(db, most=FEW) == [key(N)]
    assert db._live.spans.cuts == 0


def test_spans_outlive_rotation_flush_and_compaction(db):
    fill(db)
    db.flush()
    dig(db)
    before = db._live.spans.items
    db.flush()
    assert scan(db, most=FEW) == ENDS
    db.compact_range()
    assert scan(db, most=FEW) == ENDS
    assert db._live.spans.items == before
    db.put(key(50), b"v")
    assert scan(db, most=FEW) == sorted([*ENDS, key(50)])


def test_a_reopened_database_has_none(path):
    with lsmkv.open(path, **OPTIONS) as db:
        fill(db)
        dig(db)
    with lsmkv.open(path, **OPTIONS) as db:
        assert spans(db) == []
        assert scan(db) == ENDS
        assert scan(db, most=FEW) == ENDS


def test_jumps_are_counted(db):
    fill(db)
    delete(db, range(10, N - 10))
    db.reset_stats()
    list(db.iterator())
    counters = db._engine.counters(db._live)
    assert (counters["dead_passed"], counters["spans_jumped"], counters["dead_spans"]) == (N - 20, 0, 1)
    list(db.iterator())
    counters = db._engine.counters(db._live)
    assert counters["dead_passed"] <= N - 20 + FEW and counters["spans_jumped"] == 1
    assert db.stats().reads.spans_jumped == 1


# --- puts into a span ------------------------------------------------------------------------------------------------

MIDDLE = key(N // 2)


def put(db):
    db.put(MIDDLE, b"new")


def put_large(db):
    db.put(MIDDLE, b"new" * 1000)


def put_for_a_while(db):
    db.put(MIDDLE, b"new", ttl=60)


def put_in_a_batch(db):
    with db.write_batch() as batch:
        batch.delete(key(5000))
        batch.put(key(5001), b"v")
        batch.put(MIDDLE, b"new")
        batch.delete(key(5001))


def put_in_a_large_batch(db):
    with db.write_batch() as batch:
        batch.put(MIDDLE, b"new")
        for i in range(1000):
            batch.put(key(5000 + i), b"v" * 100)
            batch.delete(key(5000 + i))


def put_large_in_a_batch(db):
    with db.write_batch() as batch:
        batch.put(MIDDLE, b"new" * 1000)


def put_in_a_transaction(db):
    with db.transaction() as tx:
        tx.put(MIDDLE, b"new")


def update(db):
    db.append(MIDDLE, b"new")


def ingest(db):
    path = write_sst(db.path + ".sst", [(MIDDLE, b"new")], seed=db.seed)
    db.ingest([path], move=True)


@PLACES
@pytest.mark.parametrize(
    "write",
    [
        put,
        put_large,
        put_for_a_while,
        put_in_a_batch,
        put_in_a_large_batch,
        put_large_in_a_batch,
        put_in_a_transaction,
        update,
        ingest,
    ],
)
def test_a_put_into_a_span_is_seen_at_once(db, place, write):
    place(db)
    dig(db)
    before = db.snapshot()
    write(db)
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]
    assert db.get(MIDDLE)[:3] == b"new"
    assert scan(before) == ENDS
    db.delete(MIDDLE)
    assert scan(db) == ENDS
    assert scan(db, most=FEW) == ENDS


def test_a_cut_leaves_the_rest(db):
    fill(db)
    dig(db)
    put(db)
    assert len(spans(db)) == 2
    assert scan(db, most=FEW) == [*ENDS[:10], MIDDLE, *ENDS[10:]]
    db.delete(MIDDLE)
    for i in range(8):  # enough for a new span
        db.delete(MIDDLE + b"%d" % i)
    assert scan(db) == ENDS
    assert len(spans(db)) == 1


@pytest.mark.parametrize("order", [sorted, lambda numbers: sorted(numbers, key=lambda i: i * 7919 % N)])
def test_puts_everywhere(db, order):
    """Only some of the parts are kept, so refilling a span costs few cuts."""
    fill(db)
    dig(db)
    fill(db, order(range(0, N, 2)))
    assert len(spans(db)) <= 64
    assert scan(db) == sorted({*ENDS, *map(key, range(0, N, 2))})


def test_the_long_rest_of_a_span_stays(db):
    """Two queues in one: puts into the first one cut the span that reaches over both."""
    fill(db)
    dig(db, 0, N - 10)
    for i in range(200):
        db.put(key(100) + b"%03d" % i, b"v")
    assert scan(db, most=FEW, start=key(101)) == ENDS[10:]


def test_parts_of_a_span_become_one(db):
    fill(db)
    dig(db)
    for i in range(100, 130):
        db.put(key(i), b"v")
        db.delete(key(i))
    assert len(spans(db)) == 31
    assert scan(db, most=100) == ENDS
    assert len(spans(db)) == 1


def test_there_are_few_spans(db):
    fill(db, range(3000))
    for i in range(0, 3000, 30):
        delete(db, range(i, i + 9 + i // 300))
        list(db.iterator(start=key(i), stop=key(i + 29)))
    kept = db._live.spans.items
    assert len(kept) == 64
    assert min(dead for *_, dead in kept) > 9  # the longer ones
    assert len(scan(db)) == len(list(db.snapshot()))


def test_spans_of_long_keys_are_not_kept(db):
    for i in range(20):
        db.delete(b"k" * 1100 + key(i))
    assert scan(db) == []
    assert spans(db) == []
    fill(db)
    dig(db)
    db.put(key(500) + b"k" * 1100, b"v")
    assert scan(db) == [*ENDS[:10], key(500) + b"k" * 1100, *ENDS[10:]]


# --- snapshots, iterators, time --------------------------------------------------------------------------------------


@PLACES
def test_an_older_snapshot_does_not_jump(db, place):
    place(db)
    before = db.snapshot()
    dig(db)
    assert scan(before) == list(map(key, range(N)))
    assert scan(db, most=FEW) == ENDS
    after = db.snapshot()
    put(db)
    assert scan(after, most=FEW) == ENDS
    assert scan(before) == list(map(key, range(N)))
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_a_snapshot_records_nothing_over_newer_puts(db):
    fill(db)
    delete(db, range(10, N - 10))
    before = db.snapshot()
    put(db)
    assert scan(before) == ENDS
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_a_snapshot_between_put_and_delete(db):
    """The span is recorded again after the put was deleted: a reader in between sees the put."""
    fill(db)
    dig(db)
    put(db)
    between = db.snapshot()
    db.delete(MIDDLE)
    delete(db, range(N // 2 - 20, N // 2 + 20))
    assert scan(db) == ENDS
    assert scan(between) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_an_older_iterator_learns_of_no_later_put(db):
    """It records its span after the put, which the span must not hide."""
    fill(db)
    delete(db, range(10, N - 10))
    with db.iterator(include_value=False) as it:
        put(db)
        db.delete(key(600))
        assert list(it) == ENDS
    assert spans(db)
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_a_scan_keeps_the_spans_of_its_beginning(db):
    """Another scan widens the span, which then holds for newer readers only."""
    fill(db)
    dig(db, 0, 500)
    with db.iterator(include_value=False) as it:
        delete(db, range(500, 600))
        assert scan(db, most=FEW + 100) == list(map(key, range(600, N)))
        assert next(it) == key(500)
        assert it._dead <= FEW


def test_a_scan_learns_its_own_spans(db):
    fill(db)
    delete(db, range(10, N - 10))
    with db.cursor() as cursor:
        for _ in range(10):
            assert cursor.seek(key(10)) and cursor.key() == key(N - 10)
        assert cursor._dead < N + 10 * FEW


def test_an_older_iterator_after_a_rotation_records_nothing(db):
    fill(db)
    delete(db, range(10, N - 10))
    with db.iterator(include_value=False) as it:
        db.flush()
        put(db)  # into the next memtable
        assert list(it) == ENDS
    assert spans(db) == []
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_an_older_iterator_after_an_ingest_records_nothing(db):
    fill(db)
    db.flush()
    delete(db, range(10, N - 10))
    db.flush()
    with db.iterator(include_value=False) as it:
        ingest(db)
        assert list(it) == ENDS
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_an_older_iterator_after_many_writes_records_nothing(db):
    fill(db)
    delete(db, range(10, N - 10))
    with db.iterator(include_value=False) as it:
        put(db)
        for i in range(20000):
            db.delete(key(i % 50 + 10))
        assert list(it) == ENDS
    assert spans(db) == []
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_an_expired_entry_is_in_no_span(db, clock):
    """A snapshot judges by the time when it was taken."""
    fill(db)
    db.put(MIDDLE, b"v", ttl=10)
    delete(db, [i for i in range(10, N - 10) if key(i) != MIDDLE])
    before = db.snapshot()
    clock.advance(20)
    assert scan(db) == ENDS
    assert scan(db) == ENDS
    assert scan(before) == [*ENDS[:10], MIDDLE, *ENDS[10:]]
    db.delete(MIDDLE)
    assert scan(db) == ENDS
    assert scan(before) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_a_run_of_one_source_proves_nothing(db):
    """The tombstones of the memtable are adjacent there; live keys of a table lie between them."""
    fill(db, range(1, N, 2))
    db.flush()
    delete(db, range(0, N, 2))
    assert scan(db) == [key(i) for i in range(1, N, 2)]
    assert spans(db) == []


def test_range_tombstones_belong_to_spans(db):
    fill(db)
    delete(db, range(10, 300))
    db.delete_range(key(300), key(600))
    delete(db, range(600, N - 10))
    assert scan(db) == ENDS
    assert scan(db, most=FEW) == ENDS
    db.put(key(450), b"v")
    assert scan(db) == [*ENDS[:10], key(450), *ENDS[10:]]
    db.delete_range(key(440), key(460))
    assert scan(db) == ENDS


def test_a_prefix_scan_records_only_its_prefix(path):
    """Tables that its prefix filter rules out may hold keys beside it."""
    with lsmkv.open(path, prefix_extractor=2, **OPTIONS) as db:
        keep_still(db)
        for prefix in (b"aa", b"bb", b"cc"):
            for i in range(50):
                db.put(prefix + key(i), b"v")
            db.flush()
        for i in range(50):
            db.delete(b"bb" + key(i))
        for reverse in (False, True):
            assert list(db.iterator(prefix=b"bb", reverse=reverse)) == []
        assert all(start >= b"bb" and stop <= b"bc" for start, stop in spans(db))
        assert len(scan(db, most=FEW)) == 100


def test_bounds_limit_a_span(db):
    fill(db)
    delete(db, range(300, 700))
    for reverse in (False, True):
        assert list(db.iterator(start=key(400), stop=key(500), reverse=reverse)) == []
        assert list(db.iterator(start=key(550), stop=key(600), include_stop=True, reverse=reverse)) == []
    assert all(start >= key(400) and stop <= key(600) + b"\0" for start, stop in spans(db))
    assert list(db.iterator(start=key(600), stop=key(700), reverse=True)) == []
    assert next(db.iterator(start=key(650), include_value=False)) == key(700)
    assert scan(db) == [key(i) for i in range(N) if not 300 <= i < 700]


# --- keyspaces, transactions, other handles --------------------------------------------------------------------------


def test_keyspaces_have_their_own(db):
    other = db.keyspace("other")
    for space in (db, other):
        fill(space)
    dig(db)
    assert scan(other) == list(map(key, range(N)))
    dig(other, 100, 200)
    with db.write_batch() as batch:
        batch.put(key(150), b"v", keyspace=other)
        batch.put(key(700), b"v")
    assert scan(db, most=FEW) == sorted([*ENDS, key(700)])
    assert scan(other, most=FEW) == [key(i) for i in range(N) if not 100 <= i < 200 or i == 150]
    db.drop_keyspace("other")
    again = db.keyspace("other")
    fill(again, range(100, 200))
    assert scan(again) == list(map(key, range(100, 200)))


def test_transactions_see_their_own_writes(db):
    fill(db)
    dig(db)
    with db.transaction() as tx:
        tx.put(MIDDLE, b"new")
        assert [k for k, _ in tx.items()] == [*ENDS[:10], MIDDLE, *ENDS[10:]]
    assert scan(db) == [*ENDS[:10], MIDDLE, *ENDS[10:]]


def test_a_transaction_conflicts_with_a_put_into_a_span(db):
    fill(db)
    dig(db)
    tx = db.transaction()
    assert [k for k, _ in tx.items()] == ENDS
    tx.put(b"by", b"transaction")
    put(db)
    with pytest.raises(lsmkv.ConflictError):
        tx.commit()


def test_a_read_only_handle(db):
    fill(db)
    delete(db, range(10, N - 10))
    with lsmkv.open(db.path, "r") as reader:
        assert scan(reader) == ENDS
        assert scan(reader, most=FEW) == ENDS
        before = reader.snapshot()
        put(db)
        assert scan(reader, most=FEW) == ENDS
        reader.refresh()
        assert scan(reader) == [*ENDS[:10], MIDDLE, *ENDS[10:]]
        assert scan(before, most=FEW) == ENDS


def test_a_snapshot_of_a_database_that_another_replaced(path):
    """The sequence numbers of the new one are smaller: its spans say nothing about the old one."""
    with lsmkv.open(path, **OPTIONS) as db:
        fill(db)
        fill(db)
    with lsmkv.open(path, "r") as reader:
        before = reader.snapshot()
        with lsmkv.open(path, "n", **OPTIONS) as db:
            delete(db, range(100))
        reader.refresh()
        assert scan(reader) == []
        assert spans(reader)
        assert scan(before) == list(map(key, range(N)))


# --- threads ---------------------------------------------------------------------------------------------------------


def test_writers_put_into_spans_while_others_scan(path):
    """What a writer has put is in every scan that begins after the put, however spans come and go."""
    with lsmkv.open(path, write_buffer_size=1 << 16, **OPTIONS) as db:
        fill(db)
        dig(db)
        problems = []
        over = threading.Event()

        def write(part, large):
            rounds = range(part * 100 + 100, part * 100 + 200)
            for i in [*rounds, *rounds, *rounds]:
                if large:
                    with db.write_batch() as batch:
                        for j in range(700):
                            batch.put(key(i) + b"%03d" % j, b"v" * 100)
                        for j in range(1, 700):
                            batch.delete(key(i) + b"%03d" % j)
                else:
                    db.put(key(i) + b"000", b"v")
                found = next(db.iterator(start=key(i), include_value=False), None)
                if found != key(i) + b"000":
                    problems.append((i, found))
                db.delete(key(i) + b"000")

        def look():
            while not over.is_set():
                for reverse in (False, True):
                    found = list(db.iterator(include_value=False, reverse=reverse))
                    if sorted(set(ENDS) - set(found)):
                        problems.append(found)

        writers = [threading.Thread(target=write, args=(part, part % 2)) for part in range(4)]
        readers = [threading.Thread(target=look) for _ in range(2)]
        for thread in [*writers, *readers]:
            thread.start()
        for thread in writers:
            thread.join()
        over.set()
        for thread in readers:
            thread.join()
        assert problems == []
        assert scan(db) == ENDS
        assert scan(db, most=FEW) == ENDS
        assert db._live.spans.recorded and db._live.spans.cuts

"""Subcompactions: one compaction as several parallel jobs."""

from __future__ import annotations

import gc
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import listed, numbered, write_table

import lsmkv
from lsmkv.compaction import subcompaction
from lsmkv.compaction.subcompaction import SubcompactionJob, cuts
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.table import Table

KEYS = st.binary(min_size=1, max_size=2)


@pytest.fixture
def small_subcompactions(monkeypatch):
    monkeypatch.setattr(subcompaction, "MIN_BYTES", 1)


def make_table(folder, name, rows, tombstones=(), **options):
    path = folder / name
    write_table(path, rows, tombstones, **options)
    return Table(str(path))


def job(folder, inputs, numbers, **options):
    return Job(inputs, directory=str(folder), numbers=numbers, output_level=1, **options)


def contents(folder, outcome):
    """All entries of the outputs in order, and which keys their range tombstones cover."""
    entries, tombstones = [], []
    for output in outcome["outputs"]:
        table = Table(str(folder / f"{output.number:06d}.sst"))
        entries += list(table.entries())
        tombstones += table.range_tombstones
    return entries, tombstones


def covered(tombstones, key):
    return max((seq for start, stop, seq in tombstones if start <= key < stop), default=0)


@given(
    newer=st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12),
    older=st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12),
    tombstones=st.lists(st.tuples(KEYS, KEYS), max_size=4),
    keys=st.sets(KEYS, min_size=1, max_size=4),
    below=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_subcompactions_together_are_the_whole(tmp_path_factory, newer, older, tombstones, keys, below):
    folder = tmp_path_factory.mktemp("subcompactions")
    spans = tuple((*sorted(pair), 50 + i) for i, pair in enumerate(tombstones) if pair[0] != pair[1])
    inputs = []
    if newer or spans:
        rows = {k: (v, 100 + i) for i, (k, v) in enumerate(newer.items())}
        inputs.append(make_table(folder, "new.sst", rows, spans))
    if older:
        rows = {k: (v, 1 + i) for i, (k, v) in enumerate(older.items())}
        inputs.append(make_table(folder, "old.sst", rows))
    if not inputs:
        return
    numbers = FileNumbers(1)
    options = {"below": [(b"", b"\xff\xff\xff")] if below else []}
    whole = contents(folder, job(folder, inputs, numbers, **options).run())
    bounds = list(pairwise([None, *sorted(keys), None]))
    outcomes = [job(folder, inputs, numbers, start=a, stop=b, **options).run() for a, b in bounds]
    found = [contents(folder, outcome) for outcome in outcomes]
    assert [entry for entries, _ in found for entry in entries] == whole[0]
    together = [span for _, spans in found for span in spans]
    for key in {*newer, *older, *keys, *(k for span in tombstones for k in span)}:
        assert covered(together, key) == covered(whole[1], key)
    for (start, stop), outcome in zip(bounds, outcomes, strict=True):
        for output in outcome["outputs"]:
            assert start is None or output.smallest >= start
            assert stop is None or (output.largest <= stop if output.largest_exclusive else output.largest < stop)


def test_cuts_are_ascending_and_leave_subcompactions_of_about_the_same_size(tmp_path, small_subcompactions):
    tables = [
        make_table(tmp_path, "a.sst", numbered(20000)),
        make_table(tmp_path, "b.sst", numbered(20000, start=20000)),
    ]
    for count in (2, 3, 4, 7):
        keys = cuts(tables, count)
        assert len(keys) == count - 1 and keys == sorted(set(keys))
        places = [sum(table.offset_of(key) for table in tables) for key in (b"", *keys, b"\xff")]
        sizes = [b - a for a, b in pairwise(places)]
        assert max(sizes) < 1.5 * min(sizes), (count, sizes)


def test_little_is_not_cut(tmp_path):
    table = make_table(tmp_path, "a.sst", numbered(1000))
    assert cuts([table], 8) == []


def test_one_subcompaction_is_not_cut(tmp_path, small_subcompactions):
    table = make_table(tmp_path, "a.sst", numbered(1000))
    assert cuts([table], 1) == []


def test_a_subcompaction_job_says_what_the_whole_job_says(tmp_path, small_subcompactions):
    rows = numbered(5000)
    table = make_table(tmp_path, "a.sst", rows)
    numbers = FileNumbers(1)
    alone = job(tmp_path, [table], numbers, below=[]).run()
    split = SubcompactionJob(
        lambda start, stop: job(tmp_path, [table], numbers, below=[], start=start, stop=stop),
        cuts([table], 3),
        pytest.fail,
    )
    outcome = split.run()
    assert len(outcome["outputs"]) == 3
    for name in ("entries_in", "entries_out", "dropped_deletes", "dropped_covered", "bytes_read"):
        assert outcome[name] == alone[name], name
    kept = [(key, value, seq) for key, value, seq in listed(rows) if value is not None]
    assert contents(tmp_path, outcome) == (kept, [])
    assert split.progress["entries_done"] == split.progress["entries_total"] == len(rows)


class FailingPart:
    """Fails once the other subcompaction has finished or was cancelled."""

    def __init__(self, error):
        self.error = error
        self.others_done = threading.Event()

    def run(self):
        assert self.others_done.wait(60)
        raise self.error

    def cancel(self):
        pass


def test_where_a_subcompaction_fails_the_outputs_of_the_others_go(tmp_path, small_subcompactions):
    table = make_table(tmp_path, "a.sst", numbered(5000))
    numbers = FileNumbers(1)
    failing = FailingPart(lsmkv.CorruptionError("a damaged block"))
    discarded = []

    def make(start, stop):
        if stop is None:
            return failing
        one = job(tmp_path, [table], numbers, below=[], start=start, stop=stop)
        return Announcing(one, failing.others_done)

    split = SubcompactionJob(make, cuts([table], 2), discarded.extend)
    with pytest.raises(lsmkv.CorruptionError, match="a damaged block"):
        split.run()
    assert discarded and all((tmp_path / f"{f.number:06d}.sst").exists() for f in discarded)


class Announcing:
    """A subcompaction that tells when it is done."""

    def __init__(self, job, done):
        self.job, self.done = job, done

    def run(self):
        try:
            return self.job.run()
        finally:
            self.done.set()

    def cancel(self):
        self.job.cancel()


def test_a_cancelled_subcompaction_leaves_nothing_behind(tmp_path, small_subcompactions):
    table = make_table(tmp_path, "a.sst", numbered(5000))
    before = sorted(path.name for path in tmp_path.iterdir())
    discarded = []
    split = SubcompactionJob(
        lambda start, stop: job(tmp_path, [table], FileNumbers(1), below=[], start=start, stop=stop),
        cuts([table], 2),
        discarded.extend,
    )
    split.cancel()
    with pytest.raises(lsmkv.Error, match="cancelled"):
        split.run()
    assert discarded == []
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_subcompactions_count_what_is_expired_and_store_its_time(tmp_path, small_subcompactions):
    clock = lsmkv.ManualClock(1000)
    with lsmkv.open(tmp_path / "db", max_background_jobs=3, clock=clock) as db:
        for part in range(2):
            for n in range(part, 4000, 2):
                db.put(b"%06d" % n, b"v", ttl=10 if n < 500 else None)
            db.flush()
        clock.advance(10)
        db.compact_range()
        assert db.stats().levels[1].files == 3
        assert db._versions.state.clock == 1010 * 1000
        assert db.stats().expiry.reclaimed_bytes == 500 * (6 + 8 + 1)
        assert len(db) == 3500


def test_compact_range_is_cut_and_background_work_is_not(tmp_path, small_subcompactions, monkeypatch):
    asked = []
    monkeypatch.setattr(subcompaction, "cuts", lambda tables, limit: asked.append(limit) or cuts(tables, limit))
    wanted = {}
    with lsmkv.open(tmp_path / "db", max_background_jobs=3, l0_compaction_trigger=3) as db:

        def fill(round_):
            for n in range(round_, 4000, round_ + 1):
                wanted[b"%06d" % n] = value = b"%d %d" % (round_, n)
                db.put(b"%06d" % n, value)
            db.flush()

        for round_ in range(3):
            fill(round_)
        while db.stats().levels[0].files:
            db._manual().wait_change()
        assert asked and set(asked) == {1}
        fill(3)
        db.compact_range()
        assert 3 in asked
        assert dict(db.items()) == wanted
        assert db.stats().levels[1].files == 3
    assert lsmkv.verify(tmp_path / "db")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_database_collected_in_a_subcompaction_thread_does_not_wait_for_itself(
    tmp_path, small_subcompactions, monkeypatch
):
    path = tmp_path / "db"
    db = lsmkv.open(path, max_background_jobs=2)
    for low in (0, 300):  # two tables that overlap, so that they are merged
        for n in range(low, low + 600):
            db[b"%06d" % n] = b"x" * 100
        db.flush()
    dropped, collected = threading.Event(), threading.Event()
    run_one = SubcompactionJob._run_one

    def collect_first(job, i):
        if i:
            dropped.wait()
            gc.collect()
            collected.set()
        run_one(job, i)

    monkeypatch.setattr(SubcompactionJob, "_run_one", collect_first)
    gc.disable()
    try:
        db.compact_range(wait=False)
        cycle = [db]
        cycle.append(cycle)
        del db, cycle
        dropped.set()
        assert collected.wait(10)
    finally:
        gc.enable()
    for _ in range(1000):
        try:
            db = lsmkv.open(path)
            break
        except lsmkv.LockError:
            time.sleep(0.01)
    with db:
        assert len(db) == 900

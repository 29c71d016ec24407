"""Compaction as a user sees it: compact_range and the shape of the tree."""

import itertools
import threading
import time

import pytest
from databases import TINY, fill, keep_still, names

import lsmkv
from lsmkv import filenames
from lsmkv.compaction import watched


def test_compaction_drops_what_is_deleted_and_reports_progress(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 1000)
        for i in range(0, 1000, 2):
            del db[b"key%06d" % i]
        db.delete_range(b"key000500", b"key000600")
        seen = []
        db.compact_range(progress=lambda done, total: seen.append((done, total)))
        assert seen and seen[-1][0] == seen[-1][1]
        assert all(a <= b for (a, _), (b, _) in itertools.pairwise(seen))
        version = db._versions.default.current
        assert sum(f.deletes + f.range_tombstones for f in version.files()) == 0
        assert sum(f.entries for f in version.files()) == len(db) == 450
        assert not version.levels[0]


def test_compact_range_leaves_other_ranges(path):
    with lsmkv.open(path) as db:
        keep_still(db)
        for prefix in (b"a", b"m", b"z"):
            fill(db, 50, prefix=prefix)
            db.flush()
        db.compact_range(b"m", b"n")
        version = db._versions.default.current
        assert [f.smallest[:1] for f in version.levels[0]] == [b"z", b"a"]
        assert [f.smallest[:1] for f in version.levels[1]] == [b"m"]


def test_compact_in_the_background(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 500)
        db.compact_range(wait=False)
        deadline = time.monotonic() + 30
        while db._versions.default.current.levels[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not db._versions.default.current.levels[0]


def test_sequential_data_moves_down_without_being_rewritten(path):
    options = {"write_buffer_size": 16384, "target_file_size": 16384, "l0_compaction_trigger": 2}
    with lsmkv.open(path, **options) as db:
        fill(db, 3000)
        db.flush()
        db._scheduler.wait_idle()
        assert db.background.moves > 0
        assert db.background.compactions == 0


def test_levels_fill_and_stay_in_shape(path):
    options = {**TINY, "compression": None}
    with lsmkv.open(path, **options) as db:
        for i in range(20000):
            db[b"%08d" % (i * 7919 % 20011)] = b"v" * 60
        db.flush()
        db._scheduler.wait_idle()
        version = db._versions.default.current
        assert version.last_level >= 2
        assert version.total_bytes < 1.6 * version.sizes[version.last_level]
        assert db.background.shifts > 0
        assert len(db) == 20000


def test_a_reader_keeps_the_files_it_reads(path):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 1000)
        db.flush()
        db._scheduler.wait_idle()
        iterator = iter(db.items())
        first = next(iterator)
        snapshot = db.snapshot()
        fill(db, 1000, size=50)
        db.compact_range()
        db._scheduler.wait_idle()
        held = {p for p in names(path) if p.endswith(".sst")}
        live = {filenames.table_name(f.number) for f in db._versions.default.current.files()}
        assert held > live
        assert len([first, *iterator]) == 1000
        assert len(snapshot[b"key000007"]) == 96
        snapshot.close()
        del iterator
        db._versions.collect_garbage()
        assert {p for p in names(path) if p.endswith(".sst")} == live


def test_progress_is_reported_while_a_step_runs(path, monkeypatch):
    reported = threading.Event()
    with lsmkv.open(path) as db:
        fill(db, 500)
        db.flush()
        fill(db, 500)
        db.flush()
        run_plan, seen = db._scheduler.running.run_plan, []

        def held(plan, job):
            assert reported.wait(60), "nothing was reported meanwhile"
            return run_plan(plan, job)

        def progress(done, total):
            seen.append((done, total))
            reported.set()

        monkeypatch.setattr(db._scheduler.running, "run_plan", held)
        db.compact_range(progress=progress)
        total = seen[0][1]
        assert seen[0] == (0, total) and seen[-1] == (total, total)
        assert seen == sorted(seen)
        assert len(db.tables()) == 1


def test_an_error_of_progress_ends_the_call_and_not_the_step(path, monkeypatch):
    """The step may have begun; it leaves nothing claimed."""
    entered, leave = threading.Event(), threading.Event()
    with lsmkv.open(path) as db:
        fill(db, 500)
        db.flush()
        fill(db, 500)
        db.flush()
        run_plan = db._scheduler.running.run_plan

        def held(plan, job):
            entered.set()
            leave.wait(60)
            return run_plan(plan, job)

        def fail(done, total):
            assert entered.wait(60)
            raise ZeroDivisionError

        monkeypatch.setattr(db._scheduler.running, "run_plan", held)
        with pytest.raises(ZeroDivisionError):
            db.compact_range(progress=fail)
        leave.set()
        db._scheduler.wait_idle()
        assert db._work.claims.running == [] and db._work.claims.suspended == 0
        assert len(db.tables()) == 1


def test_without_a_thread_a_compaction_with_progress_goes_on(path, monkeypatch):
    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    with lsmkv.open(path) as db:
        fill(db, 500)
        db.flush()
        fill(db, 500)
        db.flush()
        monkeypatch.setattr(watched, "start_thread", no_thread)
        seen = []
        db.compact_range(progress=lambda done, total: seen.append((done, total)))
        assert seen[-1][0] == seen[-1][1]

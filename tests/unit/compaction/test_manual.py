"""compact_range beside automatic compactions and stopped writers."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from treetext import tree

import lsmkv
from lsmkv.compaction.manual import CompactRange, ManualWork
from lsmkv.compaction.picker import MANUAL, CompactionPlan, PlanKind, choose
from lsmkv.compaction.running import RunningJobs
from lsmkv.compaction.stalls import Pressure
from lsmkv.errors import SyncError
from lsmkv.version.version import EVERYTHING, KeyRange


def test_what_its_flush_leaves_is_compacted_by_the_caller_and_not_before_in_the_background(tmp_path, monkeypatch):
    """One thread of the background took it, and the caller of compact_range waited for that one."""
    with lsmkv.open(tmp_path / "db", l0_compaction_trigger=2) as db:
        running, claims = db._work.claims, []
        claim = running.add

        def noted(plan):
            claims.append(threading.current_thread().name)
            return claim(plan)

        monkeypatch.setattr(running, "add", noted)
        flush = db.flush
        monkeypatch.setattr(db, "flush", lambda: (flush(), time.sleep(0.2)))
        db[b"a"] = b"1"
        flush()
        db[b"a"] = b"2"
        db.compact_range()
        assert claims and not claims[0].startswith("lsmkv-compact")
        assert running.suspended == 0


def test_a_compaction_that_could_not_begin_holds_nothing_back(tmp_path, monkeypatch):
    def fails():
        raise OSError("no room")

    with lsmkv.open(tmp_path / "db") as db:
        monkeypatch.setattr(db, "flush", fails)
        with pytest.raises(OSError, match="no room"):
            db.compact_range()
        assert db._work.claims.suspended == 0
        monkeypatch.undo()
        db.compact_range()
        db.compact_range(b"a", b"b", wait=False)
        db._scheduler.wait_idle()
        db[b"a"] = b"1"
        db._manual().pause_compaction()  # and forgotten, as by an interrupt right behind it
        db._scheduler.wait_idle()
        assert db._work.claims.suspended == 0


def test_compact_range_supersedes_a_compaction_whose_work_it_does(tmp_path, monkeypatch):
    """One that runs in the background, in one thread, is superseded by the one that was asked for."""
    begun, limit = threading.Event(), 10.0

    def run_late(self, plan, job):
        if plan.reason != MANUAL:
            begun.set()
            deadline = time.monotonic() + limit
            while id(plan) not in self._superseded and time.monotonic() < deadline:
                time.sleep(0.001)
        return run_plan(self, plan, job)

    run_plan = RunningJobs.run_plan
    monkeypatch.setattr(RunningJobs, "run_plan", run_late)
    path = tmp_path / "db"
    with lsmkv.open(path, l0_compaction_trigger=2) as db:
        for low in (0, 300):
            for n in range(low, low + 600):
                db[b"%06d" % n] = b"x" * 100
            db.flush()
        assert begun.wait(limit)
        db.compact_range()
        db._scheduler.wait_idle()
        assert set(db.background.reasons) == {MANUAL}
        assert db.background.errors == 0
        assert len(db) == 900
        db[b"a"] = b"1"  # no harm was done
        numbers = {f"{f.number:06d}.sst" for f in db._versions.default.current.files()}
        wait_until(lambda: {p.name for p in path.glob("*.sst")} == numbers)
    assert lsmkv.verify(path)


def test_compact_range_of_a_part_leaves_a_larger_compaction_alone(tmp_path, monkeypatch):
    superseded = []
    monkeypatch.setattr(RunningJobs, "supersede", lambda self, plan: superseded.append(plan))
    begun, go_on = threading.Event(), threading.Event()

    def run_late(self, plan, job):
        if plan.reason != MANUAL:
            begun.set()
            go_on.wait(10)
        return run_plan(self, plan, job)

    run_plan = RunningJobs.run_plan
    monkeypatch.setattr(RunningJobs, "run_plan", run_late)
    with lsmkv.open(tmp_path / "db", l0_compaction_trigger=2) as db:
        for low in (0, 300):
            for n in range(low, low + 600):
                db[b"%06d" % n] = b"x" * 100
            db.flush()
        assert begun.wait(10)
        threading.Timer(0.1, go_on.set).start()
        db.compact_range(b"000000", b"000500")
        assert superseded == []
        assert len(db) == 900


@pytest.fixture
def superseded(monkeypatch):
    """Collects the superseded automatic plans. After ten it supersedes none, which ends a livelock."""
    plans, supersede = [], RunningJobs.supersede

    def count(self, plan):
        plans.append(plan)
        if len(plans) <= 10:
            supersede(self, plan)

    monkeypatch.setattr(RunningJobs, "supersede", count)
    return plans


def test_a_superseded_compaction_does_not_claim_its_table_again(tmp_path, monkeypatch, superseded):
    """`compact_range` goes on only after the automatic thread has made its next choice."""
    run_plan = RunningJobs.run_plan

    def run_until_superseded(self, plan, job):
        if plan.reason != MANUAL:
            wait_until(lambda: any(other is plan for other in superseded))
        return run_plan(self, plan, job)

    monkeypatch.setattr(RunningJobs, "run_plan", run_until_superseded)
    with lsmkv.open(tmp_path / "db", max_background_jobs=1) as db:
        scheduler, work, looked_at = db._scheduler, db._work, [None]
        next_plan, run, wait_change = work.compactions.next_plan, ManualWork.run, scheduler.wait_change

        def looking():
            plan = next_plan()
            if plan is None:
                looked_at[0] = db._versions.default.current
            return plan

        def chosen(result=None):
            wait_until(lambda: work.claims.running or looked_at[0] is db._versions.default.current)
            return result

        monkeypatch.setattr(work.compactions, "next_plan", looking)
        monkeypatch.setattr(ManualWork, "run", lambda *a: chosen(run(*a)))
        monkeypatch.setattr(scheduler, "wait_change", lambda *a: chosen(wait_change(*a)))
        fill_and_delete_half(db, 1000)
        db.compact_range()
        assert [plan.reason for plan in superseded] == ["bottom tombstones"]
        assert set(db.background.reasons) == {MANUAL}
        assert len(db) == 500


def wait_until(done, limit=30.0):
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def fill_and_delete_half(db, count, size=100):
    with db.write_batch() as batch:
        for n in range(count):
            batch.put(b"%08d" % n, random.randbytes(size))
    db.delete_range(b"", b"%08d" % (count // 2))
    db.flush()


def steps_of(db, span=EVERYTHING):
    return CompactRange(db._scheduler.status, db._tree, span, db._manual().pause_compaction())


def pick(steps, version, busy):
    with steps._tree.versions.lock:
        return steps.pick(version, busy)


def test_while_compact_range_waits_only_what_conflicts_with_its_step_is_held_back(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        claims = db._work.claims
        version = tree("L1: 1[a-c]/9d 2[x-z]/9d\nL2: 3[a-d] 4[w-z]/9d")
        running = CompactionPlan(PlanKind.COMPACT, 2, 2, upper=version.levels[2][:1], reason="running")
        steps = steps_of(db, KeyRange(b"a", b"e"))
        assert pick(steps, version, [running]) is None
        assert str(steps.wanted) == "compact L1->L2 [1 + 3] manual"
        held = [plan for plan, _ in claims.wanted.values()]
        assert held == [steps.wanted] and claims.suspended == 0
        assert str(choose(version, db.options, held)) == "compact L1->L2 [2 + 4] tombstones"
        assert pick(steps, version, []) == held[0]
        assert not claims.wanted


def test_stopped_writers_get_their_merge_of_l0_and_compact_range_its_step_in_turn(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        below = "L1: 1[a-c] 2[x-z]\nL2: 3[a-d]60000 4[w-z]60000"
        steps = steps_of(db)
        assert str(pick(steps, tree(below), [])) == "compact L1->L2 [1,2 + 3,4] manual"
        version = tree("L0: 9[a-z] 8[a-z]\n" + below)
        steps = steps_of(db)
        steps._level = 1
        db._scheduler.status.stalls.pressure = Pressure(0, True)
        merge, step = "compact L0->L1 [9,8 + 1,2] manual", "compact L1->L2 [1,2 + 3,4] manual"
        assert [str(pick(steps, version, [])) for _ in range(2)] == [merge, step]
        steps._after = b""
        running = CompactionPlan(PlanKind.COMPACT, 2, 2, upper=version.levels[2][:1], reason="running")
        # As often as it takes, while the step is blocked.
        assert [str(pick(steps, version, [running])) for _ in range(3)] == [merge] * 3
        assert str(pick(steps, version, [])) == step
        steps._after = b""
        db._scheduler.status.stalls.pressure = Pressure(0, False)
        assert str(pick(steps, version, [])) == step


def test_a_merge_of_l0_that_stopped_writers_wait_for_is_not_superseded(tmp_path, superseded):
    with lsmkv.open(tmp_path / "db") as db:
        scheduler, claims = db._scheduler, db._work.claims
        version = tree("L0: 9[a-z]\nL1: 1[a-c]")
        l0, l1 = version.levels[:2]
        merge = CompactionPlan(PlanKind.COMPACT, 0, 1, upper=l0, lower=l1, reason="l0 count")
        wanted = CompactionPlan(PlanKind.COMPACT, 1, 2, upper=l1, reason=MANUAL)
        with scheduler.versions.lock:
            claims.add(merge)
            for stopped in (True, False):
                scheduler.status.stalls.pressure = Pressure(0, stopped)
                db._manual()._wait_unblocked(wanted, EVERYTHING)
                assert len(superseded) == (not stopped)
            claims.running.clear()
            scheduler.status.stalls.pressure = Pressure(0, False)
            scheduler.running.forget(merge)


def test_several_compact_ranges_beside_writers_that_are_stopped_again_and_again(tmp_path):
    options = {"l0_compaction_trigger": 1, "l0_slowdown_trigger": 2, "l0_stop_trigger": 2, "level_size_ratio": 2}
    options.update(write_buffer_size=4096, target_file_size=4096, compression=None)
    with lsmkv.open(tmp_path / "db", **options) as db:
        model, rng, ended = {}, random.Random(5), threading.Event()

        def write():
            key = b"%04d" % rng.randrange(10_000)
            if rng.random() < 0.01:
                db.delete_range(key, key + b"~")
            db[key] = model[key] = rng.randbytes(100)

        def keep_writing():
            while not ended.is_set():
                write()

        def compact(*bounds):
            rounds = 0
            while rounds < 3 or db.background.stops < 3:
                db.compact_range(*bounds)
                rounds += 1

        for _ in range(2000):
            write()
        with ThreadPoolExecutor(4) as pool:
            writer = pool.submit(keep_writing)
            callers = [pool.submit(compact, *bounds) for bounds in [(), (b"2", b"6"), (b"5", None)]]
            try:
                for caller in callers:
                    caller.result(120)
            finally:
                ended.set()
            writer.result(60)
        assert db._work.claims.suspended == 0 and not db._work.claims.wanted
        assert dict(db.items()) == model
        assert db.background.errors == 0


def test_compact_range_after_delete_range_supersedes_little(tmp_path, superseded):
    with lsmkv.open(tmp_path / "db") as db:
        fill_and_delete_half(db, 20_000, 1000)
        db.compact_range()
        assert len(superseded) <= 2
        assert len(db) == 10_000


@pytest.mark.parametrize("error", [lsmkv.CorruptionError("damage"), SyncError(5, "fsync")])
def test_an_error_of_a_superseded_compaction_is_raised(tmp_path, error):
    class Failing:
        def cancel(self):
            pass

        def run(self):
            raise error

    with lsmkv.open(tmp_path / "db") as db:
        plan = CompactionPlan(PlanKind.COMPACT, 0, 1)
        db._scheduler.running.supersede(plan)
        with pytest.raises(type(error)):
            db._scheduler.running.run_plan(plan, Failing())
        db._scheduler.running.forget(plan)

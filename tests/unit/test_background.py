"""The background threads that all databases share."""

import os
import threading

import pytest
from databases import TINY, fill
from waiting import wait_until

import lsmkv
from lsmkv import background
from lsmkv.background import Pool, Task
from lsmkv.compaction import automatic
from lsmkv_ext.port.lanes import Lane


@pytest.fixture
def pool():
    pool = Pool()
    yield pool
    pool.end()
    assert not [thread for thread in pool.threads if thread.is_alive()]


class Recorder:
    """Tasks that note their runs. A run waits for `go` if the task is among `blocked`."""

    def __init__(self, pool, limit=1):
        self.pool = pool
        self.lane = Lane(pool.timer, limit)
        pool.flush = self.lane  # ended by the fixture
        self.runs = []
        self.blocked = set()
        self.begun = set()
        self.go = threading.Event()

    def task(self, name, *, limit=1, pauses=(), fails=()):
        pauses, fails = iter(pauses), iter(fails)

        def run(pause):
            self.begun.add(name)
            if name in self.blocked:
                self.go.wait(20)
            self.runs.append(name)
            if next(fails, False):
                raise MemoryError
            return next(pauses, 0.0)

        return Task(self.pool, self.lane, name, run, lambda error, pause: 0.0, limit)

    def wait_for(self, *runs):
        wait_until(lambda: self.runs == list(runs))


def close(*tasks):
    for task in tasks:
        task.close()
        task.join()


def test_a_task_runs_once_for_many_wakes_and_again_for_one_during_its_run(pool):
    recorder = Recorder(pool)
    recorder.blocked = {"a"}
    a = recorder.task("a")
    for _ in range(3):
        a.wake()
    wait_until(lambda: "a" in recorder.begun)
    for _ in range(3):
        a.wake()
    recorder.go.set()
    recorder.wait_for("a", "a")
    close(a)


def test_databases_take_turns(pool):
    recorder = Recorder(pool)
    recorder.blocked = {"a"}
    a, b, c = (recorder.task(name) for name in "abc")
    a.wake()
    wait_until(lambda: "a" in recorder.begun)
    for task in (b, a, c, b):
        task.wake()
    recorder.go.set()
    recorder.wait_for("a", "b", "c", "a")
    close(a, b, c)


def test_blocked_tasks_do_not_hold_up_others_until_the_limit(pool):
    recorder = Recorder(pool, limit=3)
    recorder.blocked = {"a", "b"}
    tasks = [recorder.task(name) for name in "abc"]
    for task in tasks:
        task.wake()
    wait_until(lambda: recorder.runs == ["c"] and recorder.begun == {"a", "b", "c"})
    tasks[2].wake()
    recorder.wait_for("c", "c")
    assert recorder.lane.workers == 3
    recorder.go.set()
    wait_until(lambda: sorted(recorder.runs) == ["a", "b", "c", "c"])
    # One stays for what comes next.
    wait_until(lambda: recorder.lane.workers == 1)
    close(*tasks)


def test_a_lane_has_no_more_threads_than_its_limit(pool):
    recorder = Recorder(pool, limit=2)
    tasks = [recorder.task(str(i)) for i in range(50)]
    recorder.blocked = {str(i) for i in range(50)}
    for task in tasks:
        task.wake()
    assert recorder.lane.workers == 2
    recorder.go.set()
    wait_until(lambda: len(recorder.runs) == 50)
    close(*tasks)


def test_a_task_runs_in_as_many_threads_as_it_may(pool):
    recorder = Recorder(pool, limit=8)
    recorder.blocked = {"a"}
    a = recorder.task("a", limit=3)
    for expected in (1, 2, 3, 3):
        a.wake()
        wait_until(lambda expected=expected: a.running == expected)
    recorder.go.set()
    recorder.wait_for("a", "a", "a", "a")
    close(a)


@pytest.mark.parametrize("fails", [False, True])
def test_a_wake_does_not_cut_a_pause_short_and_hurry_does(pool, fails, monkeypatch):
    monkeypatch.setattr(background, "FIRST_PAUSE", 3600.0)
    recorder = Recorder(pool)
    a, b = recorder.task("a", pauses=[0.0 if fails else 3600.0], fails=[fails]), recorder.task("b")
    a.wake()
    wait_until(lambda: pool.timer.pending == 1)
    a.wake()
    b.wake()
    recorder.wait_for("a", "b")
    assert not a.help()
    a.hurry()
    a.wake()
    recorder.wait_for("a", "b", "a")
    close(a, b)
    assert pool.timer.pending == 0


def test_a_task_that_failed_runs_again_after_its_pause(pool):
    recorder = Recorder(pool)
    a = recorder.task("a", pauses=[0.01, 0.01], fails=[False, False, True])
    a.wake()
    recorder.wait_for("a", "a", "a", "a")
    close(a)


def test_alarms_ring_in_order(pool):
    recorder = Recorder(pool)
    tasks = {name: recorder.task(name) for name in "abc"}
    pool.start_timer()
    for name, seconds in (("a", 0.2), ("b", 3600.0), ("c", 0.1), ("b", 0.01), ("b", 3600.0)):
        tasks[name].wake_after(seconds)
    recorder.wait_for("b", "c", "a")
    close(*tasks.values())


def test_a_helper_runs_the_task_unless_another_thread_does(pool):
    recorder = Recorder(pool)
    a = recorder.task("a")
    assert a.help()
    assert recorder.runs == ["a"]
    recorder.blocked = {"a"}
    a.wake()
    wait_until(lambda: a.running)
    assert not a.help()
    recorder.go.set()
    recorder.wait_for("a", "a")
    close(a)
    assert not a.help()


def test_closing_a_task_waits_for_its_own_runs_only(pool):
    recorder = Recorder(pool, limit=2)
    recorder.blocked = {"a"}
    a, b, c = (recorder.task(name) for name in "abc")
    a.wake()
    b.wake()
    close(b, c)
    c.wake()
    a.close()
    joined = threading.Thread(target=a.join, daemon=True)
    joined.start()
    assert "a" in recorder.begun or not a.running
    recorder.go.set()
    joined.join(20)
    assert not joined.is_alive()
    assert "c" not in recorder.runs


def test_a_task_may_close_itself(pool):
    recorder = Recorder(pool)
    ended = threading.Event()

    def run(pause):
        close(task)
        ended.set()
        return 0.0

    task = Task(pool, recorder.lane, "self", run, lambda error, pause: 0.0)
    task.wake()
    assert ended.wait(20)


# Databases ---------------------------------------------------------------------------------------------------


def test_an_idle_database_wakes_no_thread(path, monkeypatch):
    monkeypatch.setattr(automatic, "IDLE_SECONDS", 0.01)
    with lsmkv.open(path, **TINY) as db:
        fill(db)
        db.compact_range()
        db._scheduler.wait_idle()
        pool = db._scheduler._pool
        lanes = (pool.flush, pool.compaction, pool.housekeeping)
        # Each lane has one thread, which waits without a timeout; the timer has no alarm to wait for.
        wait_until(lambda: all(lane.workers <= 1 for lane in lanes) and not pool.timer.pending)


def test_compactions_of_a_database_that_asks_for_many_find_as_many_threads(tmp_path):
    with lsmkv.open(tmp_path / "a"), lsmkv.open(tmp_path / "b", max_background_jobs=60) as db:
        assert db._scheduler._pool.compaction.limit == 59


def test_a_forked_child_has_threads_of_its_own(tmp_path):
    with lsmkv.open(tmp_path / "parent", **TINY) as db:
        fill(db)
        db.flush(wait=False)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with lsmkv.open(tmp_path / "child", **TINY) as other:
                    fill(other, 2000)
                    other._scheduler.wait_idle()
                    worked = other.background.flushes and other.background.reasons
                    code = 0 if worked and len(other) == 2000 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        fill(db, 2000)
        db._scheduler.wait_idle()
        assert len(db) == 2000

"""Background threads live through any exception, and nobody waits for a dead one."""

import threading

import pytest
from waiting import wait_until

import lsmkv
from lsmkv.compaction import scheduler

LIMIT = 20


def fail_once(monkeypatch, owner, name, error=MemoryError):
    """The next call of `owner.name` in a background thread raises. Returns an event: it has."""
    real = getattr(owner, name)
    raised = threading.Event()

    def call(*args, **kwargs):
        if threading.current_thread().name.startswith("lsmkv-") and not raised.is_set():
            raised.set()
            raise error("injected")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return raised


def within_limit(work):
    """Runs `work` in a thread; fails if it hangs. Returns its exception."""
    caught = []

    def run():
        try:
            work()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "the call hangs"
    return caught[0] if caught else None


def alive(db):
    return sorted(thread.name for thread in db._scheduler._threads if thread.is_alive())


@pytest.fixture
def db(path, monkeypatch):
    monkeypatch.setattr(scheduler, "LONGEST_PAUSE", 0.05)
    db = lsmkv.open(path)
    yield db
    monkeypatch.undo()
    assert within_limit(db.close) is None


@pytest.mark.parametrize("step", ["_attempt", "_update_pressure", "_failed", "_back_off"])
def test_the_flush_thread_outlives_a_failed_step(db, monkeypatch, step):
    threads = alive(db)
    raised = fail_once(monkeypatch, db._scheduler, step)
    if step == "_failed":
        fail_once(monkeypatch, db._jobs, "flush")
    if step == "_back_off":  # comes after a failed step
        fail_once(monkeypatch, db._scheduler, "_attempt")
    db[b"a"] = b"1"
    error = within_limit(db.flush)
    assert raised.is_set()
    assert error is None or isinstance(error, MemoryError)
    db[b"b"] = b"2"
    wait_until(lambda: within_limit(db.flush) is None)
    assert alive(db) == threads
    assert db.background.errors == (step != "_back_off")  # which would have counted it
    assert dict(db) == {b"a": b"1", b"b": b"2"}
    assert len(db._versions.current.levels[0]) > 0


@pytest.mark.parametrize("error", [MemoryError, OSError, ValueError])
def test_the_log_thread_outlives_a_failed_log(db, monkeypatch, error):
    threads = alive(db)
    raised = fail_once(monkeypatch, db._logs, "_create", error)
    db[b"a"] = b"1"
    db.flush()
    wait_until(raised.is_set)
    wait_until(lambda: not db._logs.short)
    assert alive(db) == threads


@pytest.mark.parametrize("step", ["_claim_next", "_attempt"])
def test_the_compaction_thread_outlives_a_failed_step(db, monkeypatch, step):
    threads = alive(db)
    raised = fail_once(monkeypatch, db._scheduler, step)
    for i in range(db.options.l0_compaction_trigger):
        db[b"%d" % i] = b"1"
        within_limit(db.flush)
    wait_until(raised.is_set)
    wait_until(lambda: within_limit(db._scheduler.wait_idle) is None)
    assert alive(db) == threads
    assert not db._scheduler.claims.running


def test_the_timer_outlives_a_failed_tick(path, monkeypatch):
    monkeypatch.setattr(scheduler, "LONGEST_PAUSE", 0.05)
    with lsmkv.open(path, sync_interval_ms=1) as db:
        threads = alive(db)
        raised = fail_once(monkeypatch, db._scheduler, "_tick")
        wait_until(raised.is_set)
        db[b"a"] = b"1"
        wait_until(lambda: db.stats().log.syncs > 0)
        assert alive(db) == threads


def test_nobody_waits_for_a_dead_flush_thread(path, monkeypatch):
    monkeypatch.setattr(scheduler.Scheduler, "_flush_loop", lambda self: None)
    db = lsmkv.open(path)
    wait_until(lambda: "lsmkv-flush" not in alive(db))
    db[b"a"] = b"1"
    assert isinstance(within_limit(db.flush), lsmkv.Error)
    assert isinstance(within_limit(lambda: db._scheduler.wait_for_room(1)), lsmkv.Error)
    assert within_limit(db.close) is None
    monkeypatch.undo()
    with lsmkv.open(path) as db:
        assert db[b"a"] == b"1"


def test_a_spare_log_outlives_a_failed_memtable(db, monkeypatch):
    db[b"a"] = b"1"
    db.flush()
    wait_until(lambda: not db._logs.short)
    spare = db._logs._spare.number

    def fail(*args):
        raise MemoryError("injected")

    db[b"b"] = b"2"
    with monkeypatch.context() as patch:
        patch.setattr("lsmkv.log_supply.new_memtable", fail)
        with pytest.raises(MemoryError):
            db.flush()
    assert db._logs._spare.number == spare
    db.flush()
    assert db._engine.active.number == spare

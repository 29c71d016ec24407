"""Background work survives every exception, and no caller waits for a thread that does not run."""

import threading

import pytest
from waiting import wait_until

import lsmkv
from lsmkv.compaction import status

LIMIT = 20


def fail_once(monkeypatch, owner, name, error=MemoryError, threads="lsmkv-"):
    """The next call of `owner.name` in a background thread raises. Returns an event: it has."""
    real = getattr(owner, name)
    raised = threading.Event()

    def call(*args, **kwargs):
        if threading.current_thread().name.startswith(threads) and not raised.is_set():
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


@pytest.fixture
def db(path, monkeypatch):
    monkeypatch.setattr(status, "LONGEST_PAUSE", 0.05)
    db = lsmkv.open(path)
    yield db
    monkeypatch.undo()
    assert within_limit(db.close) is None


@pytest.mark.parametrize("step", ["attempt", "update_pressure", "changed", "failed"])
def test_a_flush_outlives_a_failed_step(db, monkeypatch, step):
    raised = fail_once(monkeypatch, db._scheduler.status, step)
    if step == "failed":
        fail_once(monkeypatch, db._scheduler.flusher, "_write")
    db[b"a"] = b"1"
    db.flush(wait=False)
    wait_until(raised.is_set)
    wait_until(lambda: not db._engine.immutables)
    db[b"b"] = b"2"
    assert within_limit(db.flush) is None
    assert db.background.errors == 1
    assert dict(db) == {b"a": b"1", b"b": b"2"}
    assert len(db._versions.default.current.levels[0]) > 0


@pytest.mark.parametrize("error", [MemoryError, OSError, ValueError])
def test_logs_made_ahead_outlive_a_failed_one(db, monkeypatch, error):
    raised = fail_once(monkeypatch, db._logs, "_create", error)
    db[b"a"] = b"1"
    db.flush()
    wait_until(raised.is_set)
    wait_until(lambda: not db._logs.short)


@pytest.mark.parametrize("step", [("compactions", "next_plan"), ("status", "attempt"), ("claims", "add")])
def test_compaction_outlives_a_failed_step(db, monkeypatch, step):
    owner, name = step
    owners = {"status": db._scheduler.status, "compactions": db._work.compactions, "claims": db._work.claims}
    raised = fail_once(monkeypatch, owners[owner], name, threads="lsmkv-compact")
    for i in range(db.options.l0_compaction_trigger):
        db[b"%d" % i] = b"1"
        within_limit(db.flush)
    wait_until(raised.is_set)
    wait_until(lambda: within_limit(db._scheduler.wait_idle) is None)
    assert not db._work.claims.running
    assert not db._versions.default.current.levels[0]


def test_the_timer_outlives_a_failed_tick(path, monkeypatch):
    monkeypatch.setattr(status, "LONGEST_PAUSE", 0.05)
    with lsmkv.open(path, sync_interval_ms=1) as db:
        raised = fail_once(monkeypatch, db._scheduler.flusher, "sync")
        wait_until(raised.is_set)
        db[b"a"] = b"1"
        wait_until(lambda: db.stats().log.syncs > 0)


def no_threads(monkeypatch):
    """A limit of the system, or an interpreter that ends."""

    def fail(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)


def test_callers_flush_for_themselves_where_no_thread_can_be_started(path, monkeypatch):
    """And no writer waits for a compaction that no thread runs."""
    options = {"l0_compaction_trigger": 2, "l0_slowdown_trigger": 3, "l0_stop_trigger": 4, "write_buffer_size": 4096}
    expected = {b"%04d" % i: b"v" * 100 for i in range(1000)}

    def write():
        for key, value in expected.items():
            db[key] = value
        db.flush()

    db = lsmkv.open(path, **options)
    with monkeypatch.context() as patch:
        begin, failed = threading.Event(), []

        def run():
            begin.wait()
            try:
                write()
            except BaseException as error:
                failed.append(error)

        writer = threading.Thread(target=run, daemon=True)
        writer.start()
        no_threads(patch)
        begin.set()
        writer.join(LIMIT)
        assert not writer.is_alive(), "the writer hangs"
        assert failed == []
        assert len(db._versions.default.current.levels[0]) > options["l0_stop_trigger"]
        assert "can't start" in db.background.last_error
        patch.undo()
    # Threads can be had again.
    db.flush()
    db._scheduler.wake()
    db._scheduler.wait_idle()
    assert len(db._versions.default.current.levels[0]) < options["l0_stop_trigger"]
    assert dict(db) == expected
    assert within_limit(db.close) is None


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


@pytest.mark.parametrize("waits", [False, True])
def test_a_finalizer_that_closes_the_database_inside_its_flush_does_not_wait_for_it(path, monkeypatch, waits):
    db = lsmkv.open(path)
    flush, raised = db._scheduler.flusher._write, []

    def collect(*arguments):
        # As if the garbage collector ran here.
        for call in (db.flush, db.close):
            try:
                call()
            except lsmkv.Error as error:
                raised.append(error)
        return flush(*arguments)

    monkeypatch.setattr(db._scheduler.flusher, "_write", collect)
    db[b"a"] = b"1"
    error = within_limit(lambda: db.flush(wait=waits))
    assert error is None or isinstance(error, lsmkv.ClosedError)
    wait_until(lambda: db.closed)  # the flush may not have begun
    wait_until(lambda: not any(thread.name == "lsmkv-close" for thread in threading.enumerate()))
    assert "in the middle of another call" in str(raised[0])
    with lsmkv.open(path) as db:
        assert dict(db) == {b"a": b"1"}


def test_a_pause_that_begins_while_a_caller_waits_does_not_hold_it_up(db, monkeypatch):
    """A flush has failed, but still runs when the caller begins to wait."""
    flusher, waits = db._scheduler.flusher, threading.Event()
    fail_once(monkeypatch, flusher, "_write")
    failed, wait = db._scheduler.status.failed, flusher._wait_for_change

    def fail_slowly(*args):
        pause = failed(*args)
        assert waits.wait(LIMIT)
        return pause

    for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(status, name, 3600.0)
    monkeypatch.setattr(db._scheduler.status, "failed", fail_slowly)
    monkeypatch.setattr(flusher, "_wait_for_change", lambda done: (waits.set(), wait(done)))
    db[b"a"] = b"1"
    db.flush(wait=False)
    wait_until(lambda: "flush" in db._scheduler.status.errors)
    assert within_limit(db.flush) is None


def test_the_error_of_a_flush_reaches_the_caller_that_asked_for_it(db, monkeypatch):
    """If a thread flushed, and failed, before the caller began to wait."""
    raised = fail_once(monkeypatch, db._scheduler.flusher, "_write")
    wait = db._scheduler.flusher._wait_until
    failed = lambda: raised.is_set() and "flush" in db._scheduler.status.errors  # noqa: E731
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(status, name, 3600.0)  # no second try before the wait
    monkeypatch.setattr(db._scheduler.flusher, "_wait_until", lambda done: (wait_until(failed), wait(done)))
    db[b"a"] = b"1"
    assert isinstance(within_limit(db.flush), MemoryError)

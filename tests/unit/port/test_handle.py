"""The handle of a database: what it refuses, what it waits for, and what becomes of its dependents."""

import os
import threading

import pytest

import lsmkv
from lsmkv_ext.port.handle import Dependent


@pytest.fixture
def db(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        for i in range(100):
            db[b"%03d" % i] = b"value"
        yield db


def uses(db):
    """Every kind of dependent, and a use of it that must raise once it cannot answer."""
    snapshot, iterator, cursor = db.snapshot(), db.iterator(), db.cursor()
    next(iterator)
    cursor.seek_to_first()
    return {
        "database": lambda: db.get(b"000"),
        "snapshot": lambda: snapshot.get(b"000"),
        "iterator": lambda: list(iterator),
        "cursor": lambda: cursor.seek(b"050"),
    }


def test_a_closed_database_closes_its_dependents(db):
    calls = uses(db)
    for call in calls.values():
        call()
    calls = uses(db)
    db.close()
    for name, call in calls.items():
        with pytest.raises(lsmkv.ClosedError):
            pytest.fail(f"{name}: {call()!r}")


def test_dependents_may_leave_in_any_order(db):
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)):
        held = [db.snapshot(), db.iterator(), db.snapshot()]
        for i in order:
            held[i] = None
        assert db.get(b"000") == b"value"
    kept = db.snapshot()
    db.close()
    with pytest.raises(lsmkv.ClosedError):
        kept.get(b"000")


def test_dependents_outlive_their_database(tmp_path):
    db = lsmkv.open(tmp_path / "db")
    snapshot, iterator = db.snapshot(), db.iterator()
    db.close()
    del db
    with pytest.raises(lsmkv.ClosedError):
        snapshot.get(b"000")
    with pytest.raises(lsmkv.ClosedError):
        next(iterator)


def test_close_waits_for_calls_that_are_inside(db):
    """Scans of whole chunks run without the GIL; close may not free what they read."""
    rows = [(b"%06d" % i, b"v" * 50) for i in range(20_000)]
    with db.write_batch() as batch:
        for key, value in rows:
            batch.put(key, value)
    started = threading.Barrier(4)
    problems = []

    def scan():
        started.wait()
        try:
            while True:
                assert sum(1 for _ in db.iterator()) == 20_100
        except lsmkv.ClosedError:
            pass
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=scan) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    db.close()
    for thread in threads:
        thread.join(60)
    assert not problems and not any(thread.is_alive() for thread in threads)


def test_a_child_of_fork_is_refused(db):
    calls = uses(db)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for name, call in calls.items():
            try:
                call()
                answers.append(f"{name}: answered")
            except lsmkv.ForkError as error:
                answers.append("" if "child" in str(error) else str(error))
            except BaseException as error:
                answers.append(repr(error))
        os.write(write, " ".join(filter(None, answers)).encode() or b"ok")
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"ok"
    assert calls["database"]() == b"value"


def test_a_dependent_that_no_database_made_is_harmless():
    for _ in range(3):
        Dependent()

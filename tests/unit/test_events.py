"""Events: listeners (`DB.on`) and log records."""

import gc
import logging
import os
import threading
import weakref
from collections import deque

import pytest
from databases import TINY, fill, kill
from waiting import wait_until

import lsmkv
from lsmkv import events
from lsmkv.compaction.flush import Flusher
from lsmkv.compaction.news import LONG_STOP_NS, pressed, waited
from lsmkv.errors import CorruptionError
from lsmkv.stats import alarms


class Seen(list):
    """A listener that keeps what it hears."""

    def __call__(self, event):
        self.append(event)

    def kinds(self):
        return [event.kind for event in self]

    def of(self, kind):
        return [event for event in self if event.kind == kind]


@pytest.fixture
def records():
    """The log records of lsmkv, of all levels."""
    found = []
    handler = logging.Handler()
    handler.emit = found.append
    logger = logging.getLogger("lsmkv")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(before)


def structured(records, kind):
    return [record for record in records if getattr(record, "lsmkv", {}).get("event") == kind]


def news_for(kind, listener):
    """Events without a database, and their listeners."""
    news, listeners = events.Events("here"), events.Listeners()
    listeners.on(kind, listener)
    news.set_listeners(listeners)
    return news, listeners


def put_and_flush(db, n=3):
    for i in range(n):
        db.put(b"%d" % i, b"v")
    db.flush()


# --- listeners -------------------------------------------------------------------------------------------------------


def test_a_flush_and_a_compaction_are_heard(db):
    seen = Seen()
    db.on("all", seen)
    put_and_flush(db)
    put_and_flush(db)
    db.compact_range()
    db.close()
    assert seen.kinds() == ["flush", "flush", "compaction", "close"]
    flush, _, compaction, _ = seen
    assert (flush["entries"], flush["tables"]) == (3, 1) and flush["bytes"] > 0 and flush["seconds"] > 0
    assert (compaction["reason"], compaction["work"], compaction["keyspace"]) == ("manual", "compact", "")
    assert (compaction["tables_in"], compaction["tables_out"], compaction["level"]) == (2, 1, 0)
    assert flush.path == db.path and str(flush).startswith(db.path) and flush.time > 0


def test_listeners_hear_their_kind_until_they_stop(db):
    flushes, compactions = Seen(), Seen()
    stop = db.on("flush", flushes)
    db.on("compaction", compactions)
    put_and_flush(db)
    wait_until(lambda: flushes)
    stop()
    stop()
    put_and_flush(db)
    db.close()
    assert (len(flushes), len(compactions)) == (1, 0)


def test_one_function_may_listen_twice(db):
    seen = Seen()
    stop, _ = db.on("flush", seen), db.on("flush", seen)
    stop()
    put_and_flush(db)
    db.close()
    assert len(seen) == 1


def test_wrong_listeners_are_refused(db):
    with pytest.raises(ValueError, match="there are no 'flushes' events"):
        db.on("flushes", print)
    with pytest.raises(TypeError):
        db.on("flush", None)
    db.close()
    with pytest.raises(lsmkv.ClosedError):
        db.on("flush", print)


def test_nobody_listens_and_no_thread_runs(db):
    put_and_flush(db)
    assert db._scheduler.status.events._thread is None


def test_the_thread_ends_when_all_is_delivered(db):
    seen = Seen()
    db.on("flush", seen)
    put_and_flush(db)
    wait_until(lambda: seen)
    thread = db._scheduler.status.events._thread
    thread.join(30)
    assert not thread.is_alive()


def test_a_listener_that_raises_is_logged(db, records):
    seen = Seen()

    def wrong(event):
        raise SystemExit("not here")

    db.on("flush", wrong)
    db.on("flush", seen)
    put_and_flush(db)
    put_and_flush(db)
    db.close()
    assert len(seen) == 2
    raised = [record for record in records if "raised" in record.getMessage()]
    assert len(raised) == 2 and raised[0].exc_info[0] is SystemExit


def test_a_log_handler_that_raises_keeps_no_event_from_listeners(db, records, monkeypatch):
    class Unwilling(logging.Handler):
        def handle(self, record):
            raise OSError("the log is full")

    reported = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    seen, handler = Seen(), Unwilling()
    db.on("all", seen)
    logging.getLogger("lsmkv").addHandler(handler)
    try:
        for i in range(3):
            db.put(b"%d" % i, b"")
            db.flush()
        db.close()
    finally:
        logging.getLogger("lsmkv").removeHandler(handler)
    assert seen.kinds().count("flush") == 3
    assert seen.kinds()[-1] == "close"
    assert {str(each.exc_value) for each in reported} == {"the log is full"}


def test_a_listener_may_call_the_database(db):
    outcomes = []

    def busy(event):
        outcomes.append((db.get(b"0"), len(db), db.stats().flush.count >= 1, threading.current_thread().name))
        db.put(b"from-a-listener", b"1")
        db.compact_range()

    db.on("flush", busy)
    put_and_flush(db)
    wait_until(lambda: db._scheduler.counters.moves or db._scheduler.counters.compactions)
    assert outcomes[0] == (b"v", 3, True, "lsmkv-events")


def test_a_listener_may_close_the_database(path):
    with lsmkv.open(path) as db:
        after = Seen()
        db.on("flush", lambda event: db.close())
        db.on("close", after)
        put_and_flush(db)
        wait_until(lambda: after)
        assert db.closed
    with lsmkv.open(path) as db:
        assert len(db) == 3


def test_a_close_waits_for_what_was_heard(db):
    entered, leave, heard = threading.Event(), threading.Event(), Seen()

    def slow(event):
        entered.set()
        leave.wait()
        heard(event)

    db.on("all", slow)
    put_and_flush(db)
    entered.wait()
    closing = threading.Thread(target=db.close)
    closing.start()
    wait_until(lambda: db.closed)
    leave.set()
    closing.join()
    assert heard.kinds() == ["flush", "close"]


def test_a_listener_that_hangs_harms_nothing(db, monkeypatch, records):
    monkeypatch.setattr(events, "CLOSE_SECONDS", 0.0)
    leave = threading.Event()
    db.on("all", lambda event: leave.wait())
    for _ in range(5):
        put_and_flush(db)
    db.close()
    assert any("has not returned" in record.getMessage() for record in records)
    leave.set()
    db._scheduler.status.events._thread.join()


def test_a_slow_listener_misses_the_oldest_events(path, records):
    entered, leave, seen = threading.Event(), threading.Event(), Seen()

    def slow(event):
        entered.set()
        leave.wait()
        seen(event)

    news, _listeners = news_for("flush", slow)
    news._queue = deque(maxlen=3)
    news.publish("flush", "0")
    entered.wait()
    for i in range(1, 6):
        news.publish("flush", str(i))
    leave.set()
    news.close()
    assert [event.text for event in seen] == ["0", "3", "4", "5"]
    assert any("2 events were dropped" in record.getMessage() for record in records)


def test_many_threads_publish(path):
    seen = Seen()
    news, _listeners = news_for("flush", seen)
    news._queue = deque(maxlen=100_000)

    def publish(number):
        for i in range(2000):
            news.publish("flush", "", n=(number, i))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(seen) == 8000)
    for number in range(4):
        assert [event["n"][1] for event in seen if event["n"][0] == number] == list(range(2000))


def test_without_a_thread_the_next_event_tries_again(monkeypatch):
    seen = Seen()
    news, _listeners = news_for("flush", seen)

    def fail(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(events, "start_thread", fail)
        news.publish("flush", "1")
    news.publish("flush", "2")
    news.close()
    assert [event.text for event in seen] == ["1", "2"]


def test_a_database_with_a_listener_is_collected(path):
    class Watcher:
        pass

    db = lsmkv.open(path)
    watcher = Watcher()
    watcher.db = db
    seen = Seen()
    db.on("flush", lambda event, watcher=watcher: seen.append(watcher.db.path))
    put_and_flush(db)
    wait_until(lambda: seen)
    db._scheduler.status.events._thread.join()
    gone = weakref.ref(watcher)
    with pytest.warns(ResourceWarning):
        del db, watcher
        gc.collect()
    assert gone() is None


def test_a_forked_child_hears_nothing(db):
    seen = Seen()
    db.on("all", seen)
    put_and_flush(db)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = len(seen)
            db.close()
            code = 0 if len(seen) == before else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    put_and_flush(db)
    db.close()
    assert seen.kinds() == ["flush", "flush", "close"]


# --- stalls, errors, alarms ------------------------------------------------------------------------------------------


def test_stalls_are_heard(path):
    seen = Seen()
    with lsmkv.open(path, **TINY, l0_slowdown_trigger=2, l0_stop_trigger=3) as db:
        db.on("stall", seen)
        db._work.claims.suspended += 1
        for _ in range(3):
            put_and_flush(db)
        db._work.claims.suspended -= 1
        db.compact_range()
    states = [event["state"] for event in seen]
    assert states == ["slowdown", "stop", "none"]
    assert seen[1].level == logging.INFO and seen[2]["before"] == "stop" and seen[2]["seconds"] > 0


def test_a_writer_that_waits_for_a_flush_is_heard(path, monkeypatch):
    begin, flush, wait = threading.Event(), Flusher._flush_what_fits, Flusher._wait_until

    def held_back(flusher, logs):
        begin.wait()
        return flush(flusher, logs)

    def waiting(flusher, done):
        begin.set()
        wait(flusher, done)

    monkeypatch.setattr(Flusher, "_flush_what_fits", held_back)
    monkeypatch.setattr(Flusher, "_wait_until", waiting)
    seen = Seen()
    with lsmkv.open(path, write_buffer_size=8192) as db:
        db.on("stall", seen)
        fill(db, 2000)
        db.flush()
    assert [event for event in seen if event["state"] == "flush" and event["seconds"] > 0]


def test_long_stops_are_warnings():
    seen = Seen()
    news, _listeners = news_for("stall", seen)
    pressed(news, "stop", "none", 0, LONG_STOP_NS)
    pressed(news, "stop", "stop", 0, LONG_STOP_NS)
    waited(news, LONG_STOP_NS)
    waited(news, 1)
    news.close()
    assert [event.level for event in seen] == [logging.WARNING, logging.WARNING, logging.INFO]


def test_damage_is_heard(path):
    seen = Seen()
    with lsmkv.open(path, compression=None) as db:
        fill(db, 500)
        db.flush()
        fill(db, 500)
        db.flush()
        tables = sorted(path.glob("*.sst"))
        with open(tables[0], "r+b") as file:
            file.seek(200)
            file.write(b"\xff" * 100)
        db.on("error", seen)
        with pytest.raises(CorruptionError):
            db.compact_range()
    assert seen == [] or isinstance(seen[0]["error"], CorruptionError)


def test_a_database_that_becomes_read_only_is_heard(db, records):
    seen = Seen()
    db.on("error", seen)
    db._engine.refuse(lsmkv.IOError(5, "broken", "disk"))
    wait_until(lambda: seen)
    assert seen[0]["read_only"] and seen[0]["error"].errno == 5
    logged = [record for record in records if "read-only from now on" in record.getMessage()]
    assert len(logged) == 1  # by the engine, at once


def test_a_failed_flush_is_heard(db, monkeypatch):
    seen = Seen()
    db.on("error", seen)
    write = db._scheduler.flusher._write
    failing = [OSError(28, "No space left on device")]

    def once(logs):
        if failing:
            raise failing.pop()
        return write(logs)

    monkeypatch.setattr(db._scheduler.flusher, "_write", once)
    db.put(b"ada", b"")
    with pytest.raises(lsmkv.IOError):
        db.flush()
    wait_until(lambda: seen)
    assert (seen[0]["work"], seen[0]["read_only"], seen[0]["error"].errno) == ("flush", False, 28)


def test_alarms_are_heard_once(path, monkeypatch):
    monkeypatch.setattr(alarms, "INTERVAL", 0.0)
    seen = Seen()
    with lsmkv.open(path) as db:
        db.on("alarm", seen)
        fill(db, 500)
        db.flush()
        for _ in range(3):
            for i in range(5000):
                db.get(b"key%06d" % (i % 500))
            put_and_flush(db)
        wait_until(lambda: seen)
        db.reset_stats()
        put_and_flush(db)
        wait_until(lambda: len(seen) == 2)
    assert [(event["name"], event["on"]) for event in seen] == [("filter_useful", True), ("filter_useful", False)]
    assert seen[0].level == logging.INFO


def test_alarms_are_looked_at_once_a_second(db):
    watch = alarms.AlarmWatch(db._scheduler)
    db._scheduler.status.counters.flushes = 1
    assert watch.look() == []
    before = watch._next
    assert watch.look() == [] and watch._next == before


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_tells_what_was_done(path, records):
    with lsmkv.open(path) as db:
        put_and_flush(db)
        put_and_flush(db)
        db.compact_range()
        put_and_flush(db, 5)
        db.put(b"unflushed", b"")
        kill(db)
    with lsmkv.open(path) as db:
        assert db[b"unflushed"] == b""
    with lsmkv.open(path, "r"):
        pass
    assert {record.levelno for record in records if hasattr(record, "lsmkv")} == {logging.DEBUG}
    (created, again, reader) = structured(records, "open")
    assert created.lsmkv["created"] and not again.lsmkv["created"] and reader.lsmkv["read_only"]
    assert created.lsmkv["path"] == str(path)
    (recovery,) = structured(records, "recovery")
    assert recovery.lsmkv["records"] == 1 and recovery.getMessage().startswith(f"{path}: replayed 1 records")
    assert structured(records, "flush")[0].lsmkv["entries"] == 3
    assert structured(records, "compaction")[0].lsmkv["reason"] == "manual"
    assert len(structured(records, "close")) == 3


def test_the_log_is_silent_by_default(path, capfd):
    with lsmkv.open(path, **TINY) as db:
        fill(db, 2000)
        db.compact_range()
        assert db._scheduler.status.events._thread is None
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")

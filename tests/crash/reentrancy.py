"""Calls that are interrupted by other calls: the job of test_reentrancy.py.

A trial makes one public call (CASES) and, in the middle of it, an ACTION: it closes the database or the object that is
in use, or makes another call. A TRIGGER says how the action gets into the middle: an argument that runs Python code, a
finalizer that a collection runs, another thread, a signal handler. A seed repeats a trial exactly, except for threads
and signals.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import lsmkv
from lsmkv.prefixed import PrefixedBatch, PrefixedDB, PrefixedIterator, PrefixedSnapshot
from lsmkv_ext.arrow.reader import column_list

from .reentrancy_cache import CALLS as CACHE_CALLS
from .reentrancy_cache import open_cache

T = TypeVar("T")

# What a caller may see: errors with names. Everything else is a finding.
NAMED = (lsmkv.Error, ValueError, TypeError, RuntimeError, KeyError, BufferError, StopIteration)
CLASSES: dict[str, type] = {
    "DB": lsmkv.DB,
    "Keyspace": lsmkv.Keyspace,
    "Snapshot": lsmkv.Snapshot,
    "Transaction": lsmkv.Transaction,
    "PrefixedDB": PrefixedDB,
    "PrefixedSnapshot": PrefixedSnapshot,
    "PrefixedIterator": PrefixedIterator,
    "PrefixedBatch": PrefixedBatch,
    "WriteBatch": lsmkv.WriteBatch,
    "Iterator": lsmkv.Iterator,
    "Cursor": lsmkv.Cursor,
    "ArrowScan": lsmkv.ArrowScan,
    "ArrowColumn": lsmkv.ArrowColumn,
    "SSTWriter": lsmkv.SSTWriter,
    "SSTReader": lsmkv.SSTReader,
    "BlockedBloom": lsmkv.BlockedBloom,
    "CountingBloom": lsmkv.CountingBloom,
    "FuseFilter": lsmkv.FuseFilter,
    "RotatingBloom": lsmkv.RotatingBloom,
    "ScalableBloom": lsmkv.ScalableBloom,
    "ManualClock": lsmkv.ManualClock,
    "Cache": lsmkv.Cache,
}
FILTERS = (lsmkv.BlockedBloom, lsmkv.CountingBloom, lsmkv.RotatingBloom, lsmkv.ScalableBloom)
# Plain data: nothing in them can be closed.
DATA = {
    *(
        "Backup",
        "BuiltPartition",
        "BulkWriter",
        "CacheItem",
        "CacheStats",
        "Codec",
        "Event",
        "Explain",
        "Options",
        "RepairReport",
    ),
    *("Report", "Stats", "TableInfo"),
}
OPTIONS: dict[str, Any] = {
    "write_buffer_size": 64 << 10,
    "block_size": 1024,
    "block_cache_size": 64 << 10,
    "l0_compaction_trigger": 20,
    "l0_slowdown_trigger": 60,
    "l0_stop_trigger": 80,
}
KEYS = [b"k%03d" % i for i in range(200)]
SIDE = "side"  # a keyspace
LONG = 1e11  # a TTL in seconds that never ends
PAST = 1  # an expiry in seconds that was over before anything began
HANG = 50.0  # seconds; then the tracebacks of all threads are printed

Case = Callable[["Trial"], object]
Call = Callable[[Any, "Trial"], object]  # of a method, on its object


# --- what the database may hold -------------------------------------------------------------------------------


class Expected:
    """The values that each key may have (None: absent). A write that failed, or that met another one, allows both."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self._allowed: dict[bytes, set[bytes | None]] = {key: {value} for key, value in values.items()}
        self._touched: dict[bytes, int] = {}
        self._unfinished: Counter[bytes] = Counter()  # writes of a key

    @property
    def keys(self) -> list[bytes]:
        return sorted(self._allowed)

    def allows(self, key: bytes, value: bytes | None) -> bool:
        return value in self._allowed.get(key, {None})

    @contextmanager
    def writing(self, changes: dict[bytes, bytes | None]) -> Iterator[None]:
        before = {}
        for key, value in changes.items():
            self._allowed.setdefault(key, {None}).add(value)
            before[key] = self._touched[key] = self._touched.get(key, 0) + 1
        self._unfinished.update(changes.keys())
        try:
            yield
        finally:
            self._unfinished.subtract(changes.keys())
        for key, value in changes.items():
            if self._touched[key] == before[key] and not self._unfinished[key]:
                self._allowed[key] = {value}

    def problems(self, db: lsmkv.DB | lsmkv.Keyspace) -> list[str]:
        scanned = dict(db.items())
        found = [f"{key!r} is {db.get(key)!r}" for key in self.keys if not self.allows(key, db.get(key))]
        found += [f"{key!r} is in a scan" for key, value in scanned.items() if not self.allows(key, value)]
        found += [f"{key!r} is not in a scan" for key in self.keys if key not in scanned and not self.allows(key, None)]
        return found


# --- arguments that run Python code ---------------------------------------------------------------------------


class Argument(Generic[T]):
    """Acts whenever the callee asks for its value."""

    def __init__(self, trial: Trial, value: T) -> None:
        self.trial, self.value = trial, value

    def take(self) -> T:
        self.trial.act()
        return self.value


class Flag(Argument[bool]):
    def __bool__(self) -> bool:
        return self.take()


class Number(Argument[int]):
    def __index__(self) -> int:
        return self.take()


class Seconds(Argument[float]):
    def __float__(self) -> float:
        return self.take()

    def __mul__(self, other: float) -> float:
        return self.take() * other

    __radd__ = __mul__


class Span(timedelta):
    """Acts when it is converted to seconds."""

    trial: Trial

    def total_seconds(self) -> float:
        self.trial.act()
        return super().total_seconds()


class Moment(datetime):
    """Acts when it is asked for its time zone, and when it is converted to seconds."""

    trial: Trial

    def utcoffset(self) -> timedelta | None:
        self.trial.act()
        return super().utcoffset()

    def timestamp(self) -> float:
        self.trial.act()
        return super().timestamp()


class FsPath(Argument[str]):
    def __fspath__(self) -> str:
        return self.take()


class Buffer(Argument[bytes]):
    """Bytes-like from Python 3.12 on."""

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.take())

    def __release_buffer__(self, view: memoryview) -> None:
        self.trial.act()


class Finalizer:
    """Acts when a collection finds it in its cycle; with `again`, leaves another one behind."""

    def __init__(self, trial: Trial, again: int) -> None:
        self.trial, self.again, self.cycle = trial, again, self

    def __del__(self) -> None:
        self.trial.act()
        if self.again and self.trial.running:
            Finalizer(self.trial, self.again - 1)


# --- one trial ------------------------------------------------------------------------------------------------


class Trial:
    def __init__(self, folder: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.name = self.rng.choice(list(CASES))
        case, arguments = CASES[self.name]
        self.case = case
        self.trigger = self.rng.choice([*arguments, *TRIGGERS])
        self.action = self.rng.choice(CLOSING if self.rng.random() < 0.4 else list(ACTIONS))
        self.acts = 0
        self.strange: list[str] = []
        self.running = False
        self.target: Any = None
        self._limit = self.rng.choice([1, 1, 3])
        shutil.copytree(os.path.join(folder, "..", "template"), self.path("db"))
        self.clock = lsmkv.ManualClock()
        wal = self.rng.choice(["mmap", "write", None])
        self.db = lsmkv.open(self.path("db"), **OPTIONS, wal=wal, clock=self.clock)
        self.expected = Expected(dict(self.db.items()))
        self.of_side = Expected(dict(self.side().items()))
        self.side_dropped = False
        self._prepare()

    def _prepare(self) -> None:
        if self.rng.random() < 0.3:
            # The next write rotates.
            while self.db._engine.active.used_bytes < self.db._engine.capacity:
                self.put(b"fill", b"f" * 4000)
        if self.rng.random() < 0.3:
            # The next seek reports its debt.
            for _ in range(400):
                next(self.db.iterator(start=b"k"))

    def __str__(self) -> str:
        return f"{self.name}: {self.trigger} -> {self.action}"

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    # What the cases call.

    def key(self, value: bytes) -> Any:
        if self.trigger == "buffer" and sys.version_info >= (3, 12):
            return Buffer(self, value)
        return self.rng.choice([bytes, bytearray, memoryview])(value)

    def flag(self, value: bool) -> Any:
        return Flag(self, value) if self.trigger == "bool" else value

    def number(self, value: int) -> Any:
        return Number(self, value) if self.trigger == "index" else value

    def seconds(self, value: float) -> Any:
        return Seconds(self, value) if self.trigger == "float" else value

    def expiry(self) -> dict[str, Any]:
        """Arguments that let an entry live for ever, nearly."""
        if self.trigger == "timedelta":
            span = Span(days=10**6)
            span.trial = self
            return {"ttl": span}
        if self.trigger == "datetime":
            moment = Moment(9000, 1, 1, tzinfo=UTC)
            moment.trial = self
            return {"expire_at": moment}
        return {"ttl": self.seconds(LONG)} if self.trigger == "float" or self.rng.random() < 0.3 else {}

    def fspath(self, value: str) -> Any:
        return FsPath(self, value) if self.trigger == "fspath" else value

    def each(self, values: list[Any]) -> Any:
        return self._interrupted(values) if self.trigger == "iterable" else values

    def _interrupted(self, values: list[Any]) -> Iterator[Any]:
        at = self.rng.randrange(len(values) + 1)
        yield from values[:at]
        self.act()
        yield from values[at:]

    def progress(self, done: int, total: int) -> None:
        if self.trigger == "callback":
            self.act()

    def change_to(self, value: bytes) -> Callable[[bytes | None], bytes]:
        """A function for `modify`, which acts before it returns `value`."""

        def change(_: bytes | None) -> bytes:
            self.progress(0, 0)
            return value

        return change

    def use(self, target: Any) -> Any:
        """Names the object that is in use: actions close or change it."""
        self.target = target
        return target

    def side(self) -> lsmkv.Keyspace:
        """A keyspace that actions may drop."""
        return self.db.keyspace(SIDE, create=False)

    def expected_of(self, target: Any) -> Expected:
        return self.of_side if isinstance(target, lsmkv.Keyspace) else self.expected

    def put(self, key: bytes, value: bytes) -> None:
        with self.expected.writing({key: value}):
            self.db.put(key, value)

    # Running it.

    def act(self) -> None:
        """Makes the action, at most so often, and notes what it raises."""
        if not self.running or self.acts >= self._limit:
            return
        self.acts += 1
        try:
            ACTIONS[self.action](self)
        except NAMED:
            pass
        except BaseException as error:
            self.strange.append(f"the action raised {error!r}\n{traceback.format_exc()}")

    def run(self) -> None:
        with self._noted(), TRIGGERS.get(self.trigger, _by_argument)(self):
            self.running = True
            try:
                self.case(self)
            except NAMED:
                pass
            except BaseException as error:
                self.strange.append(f"the call raised {error!r}\n{traceback.format_exc()}")
        self.running = False

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Notes the exceptions of finalizers and threads that nobody else would see."""

        def note(args: Any) -> None:
            if not isinstance(args.exc_value, (*NAMED, ResourceWarning)):
                self.strange.append(f"nobody caught {args.exc_value!r}")

        hooks = sys.unraisablehook, threading.excepthook
        sys.unraisablehook = threading.excepthook = note
        try:
            yield
        finally:
            sys.unraisablehook, threading.excepthook = hooks

    def check(self) -> list[str]:
        """What is wrong with the answers, live and after a reopen."""
        while any(thread.name == "lsmkv-close" for thread in threading.enumerate()):
            time.sleep(0.001)
        found = self.strange
        if not self.db.closed:
            found += self.problems(self.db)
            self.db.close()
        with lsmkv.open(self.path("db"), **OPTIONS) as db:
            found += [f"reopened: {problem}" for problem in self.problems(db)]
        return found

    def problems(self, db: lsmkv.DB) -> list[str]:
        found = self.expected.problems(db)
        if SIDE in db.keyspaces():
            found += [f"in a keyspace: {problem}" for problem in self.of_side.problems(db.keyspace(SIDE))]
        elif not self.side_dropped:
            found.append("a keyspace is gone")
        return found


# --- triggers that need no argument -----------------------------------------------------------------------------


@contextmanager
def _by_argument(trial: Trial) -> Iterator[None]:
    yield


@contextmanager
def _collecting(trial: Trial, after: int, again: int) -> Iterator[None]:
    gc.collect()
    gc.disable()
    Finalizer(trial, again)
    gc.set_threshold(gc.get_count()[0] + after, 1, 1)
    gc.enable()
    try:
        yield
    finally:
        gc.disable()
        gc.set_threshold(700, 10, 10)
        trial.running = False
        gc.enable()
        gc.collect()


def _one_collection(trial: Trial) -> Any:
    return _collecting(trial, trial.rng.randrange(1, 40), 0)


def _every_collection(trial: Trial) -> Any:
    return _collecting(trial, 1, 50)


@contextmanager
def _thread(trial: Trial) -> Iterator[None]:
    delay = trial.rng.random() * 0.002
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def act() -> None:
        time.sleep(delay)
        trial.act()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        sys.setswitchinterval(interval)


@contextmanager
def _signal(trial: Trial) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: trial.act())
    signal.setitimer(signal.ITIMER_REAL, trial.rng.random() * 0.003 + 1e-6)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


TRIGGERS: dict[str, Any] = {
    "collection": _one_collection,
    "collections": _every_collection,
    "thread": _thread,
    "signal": _signal,
}


# --- actions ------------------------------------------------------------------------------------------------------


def _close_target(t: Trial) -> None:
    if isinstance(t.target, lsmkv.SSTWriter):
        t.target.abort()
    elif isinstance(t.target, (lsmkv.WriteBatch, PrefixedBatch, *FILTERS)):
        t.target.clear()
    else:
        getattr(t.target, "close", t.db.close)()


def _change_target(t: Trial) -> None:
    """Moves, fills or ends the object that is in use."""
    target = t.target
    if isinstance(target, (lsmkv.Iterator, PrefixedIterator)):
        t.rng.choice([target.next, target.prev, target.seek_to_start, target.seek_to_stop, lambda: target.seek(b"9")])()
    elif isinstance(target, lsmkv.Cursor):
        t.rng.choice([target.next, target.prev, target.seek_to_last, lambda: target.seek(b"k05"), target.item])()
    elif isinstance(target, (lsmkv.WriteBatch, PrefixedBatch)):
        # Keys of its own, which no other write has: whether they are written is left open.
        with suppress(RuntimeError), t.expected.writing({b"inner:batch": b"1", b"kinner:batch": b"1"}):
            target.put(b"inner:batch", b"1" * 1)
            raise RuntimeError
    elif isinstance(target, lsmkv.SSTWriter):
        t.rng.choice([target.finish, target.abort, lambda: target.put(b"zzz", b"z"), lambda: target.size])()
    elif isinstance(target, FILTERS):
        merge = getattr(target, "merge", lambda other: other.clear())
        t.rng.choice([target.clear, lambda: target.add(b"x"), lambda: merge(target.copy())])()
    else:
        t.put(b"inner", b"1")


def _put(t: Trial) -> None:
    for i in range(3):
        t.put(b"inner%d" % i, b"v" * t.rng.choice([10, 40_000]))


def _delete(t: Trial) -> None:
    with t.expected.writing({KEYS[5]: None}):
        t.db.delete(KEYS[5])


def _delete_range(t: Trial) -> None:
    with t.expected.writing(dict.fromkeys(KEYS[20:30])):
        t.db.delete_range(KEYS[20], KEYS[30])


def _batch(t: Trial) -> None:
    with t.expected.writing({b"inner:a": b"1", b"inner:b": b"2" * 70_000}), t.db.write_batch() as batch:
        batch.put(b"inner:a", b"1")
        batch.put(b"inner:b", b"2" * 70_000)


def _snapshot(t: Trial) -> None:
    with t.db.snapshot() as snapshot:
        snapshot.get(KEYS[0])
        list(snapshot.items(stop=KEYS[9]))


def _drop(t: Trial) -> None:
    t.side_dropped = True
    t.db.drop_keyspace(SIDE)


def _batch_of_two(t: Trial) -> None:
    key, value = b"inner:both", b"3" * t.rng.choice([10, 70_000])
    with t.expected.writing({key: value}), t.of_side.writing({key: value}), t.db.write_batch() as batch:
        batch.put(key, value)
        batch.put(key, value, keyspace=t.side())


def _expire(t: Trial) -> None:
    """The entry is expired at once, and hides what was there before."""
    with t.expected.writing({KEYS[6]: None}):
        t.db.put(KEYS[6], b"expired", expire_at=PAST)


def _transaction(t: Trial) -> None:
    key, value = b"inner:tx", b"4"
    with t.expected.writing({key: value}), t.of_side.writing({key: value}), t.db.transaction() as tx:
        tx.get(KEYS[3])
        list(tx.items(KEYS[1], KEYS[9], keyspace=t.side()))
        tx.put(key, value, ttl=LONG)
        tx.put(key, value, keyspace=t.side())


def _collect(t: Trial) -> None:
    gc.collect()


ACTIONS: dict[str, Callable[[Trial], object]] = {
    "close the database": lambda t: t.db.close(),
    "close the object": _close_target,
    "change the object": _change_target,
    "get": lambda t: [t.db.get(key) for key in KEYS[::20]],
    "multi_get": lambda t: t.db.multi_get(KEYS[::10]),
    "put": _put,
    "delete": _delete,
    "delete_range": _delete_range,
    "batch": _batch,
    "batch of two keyspaces": _batch_of_two,
    "create a keyspace": lambda t: t.db.keyspace("inner").put(KEYS[0], b"1"),
    "drop a keyspace": _drop,
    "iterate": lambda t: list(t.db.items()),
    "cursor": lambda t: t.db.cursor().seek(KEYS[7]),
    "snapshot": _snapshot,
    "flush": lambda t: t.db.flush(),
    "compact_range": lambda t: t.db.compact_range(),
    "sync": lambda t: t.db.sync(),
    "stats": lambda t: t.db.stats(),
    "set_options": lambda t: t.db.set_options(bits_per_key=12),
    "collect": _collect,
    "expire": _expire,
    "touch": lambda t: t.db.touch(KEYS[3], LONG),
    "transaction": _transaction,
    "advance the clock": lambda t: t.clock.advance(3600),
}


CLOSING = ["close the database", "close the object"]  # the most harmful ones


# --- the public calls ---------------------------------------------------------------------------------------------

CASES: dict[str, tuple[Case, tuple[str, ...]]] = {}


def case(name: str, *arguments: str) -> Callable[[Case], Case]:
    """Registers the case of one public call, with the kinds of arguments by which an action can get into it."""

    def register(call: Case) -> Case:
        assert name not in CASES
        CASES[name] = call, arguments
        return call

    return register


def _simple(of: str, make: Callable[[Trial], Any], calls: dict[str, tuple[Call, str]]) -> None:
    for name, (call, arguments) in calls.items():
        case(f"{of}.{name}", *arguments.split())(lambda t, call=call: call(t.use(make(t)), t))


def _written(changes: dict[bytes, bytes | None], call: Call) -> Call:
    """A call that makes these changes."""

    def run(target: Any, t: Trial) -> None:
        with t.expected_of(target).writing(changes):
            call(target, t)

    return run


OUTER = b"kouter"  # a key that no action writes
CHANGE: dict[bytes, bytes | None] = {OUTER: b"1"}
COUNTER = b"kcounter"  # another one, with a number
COUNTED: dict[bytes, bytes | None] = {COUNTER: (7).to_bytes(8, "little")}
# That actions write.
INNER = [b"inner", b"inner0", b"inner1", b"inner2", b"inner:a", b"inner:b", b"inner:both", b"inner:tx"]


def _all_keys(call: Call) -> Call:
    """A call that may delete any key. What actions write meanwhile is before or after it."""

    def run(target: Any, t: Trial) -> None:
        expected = t.expected_of(target)
        with expected.writing(dict.fromkeys([*expected.keys, *INNER])):
            call(target, t)

    return run


def _ingested(db: lsmkv.DB, t: Trial) -> None:
    path = t.path("ingest.sst")
    with lsmkv.SSTWriter(path) as writer:
        writer.put(OUTER, b"1")
    db.ingest(t.each([t.fspath(path)]), move=t.flag(True))


def _popped(db: Any, t: Trial) -> None:
    # Which key depends on what the action has written.
    with _uncertain(t.expected_of(db)):
        db.popitem()


@contextmanager
def _uncertain(expected: Expected) -> Iterator[None]:
    with suppress(InterruptedError), expected.writing(dict.fromkeys([*expected.keys, *INNER])):
        yield
        raise InterruptedError


class Rows:
    """A table of keys and values that acts while it is asked for its rows."""

    def __init__(self, trial: Trial, columns: Sequence[str] = ("key", "value")) -> None:
        self.trial, self.columns = trial, columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow

        schema = pyarrow.schema({name: pyarrow.binary() for name in self.columns})
        return pyarrow.RecordBatchReader.from_batches(schema, self.batches(schema)).__arrow_c_stream__()

    def batches(self, schema: Any) -> Iterator[Any]:
        import pyarrow

        for n in range(0, len(KEYS), 50):
            self.trial.act()
            yield pyarrow.record_batch(dict.fromkeys(self.columns, KEYS[n : n + 50]), schema=schema)


# What a write of Rows may leave: some batches or all.
def _some_rows(call: Call) -> Call:
    def run(target: Any, t: Trial) -> None:
        with suppress(InterruptedError), t.expected_of(target).writing({key: key for key in KEYS}):
            call(target, t)
            raise InterruptedError

    return run


def _listed(scan: lsmkv.ArrowScan) -> list[bytes]:
    """The rows of a scan of one column, read by the data plane."""
    return column_list(scan)


# Of whole columns.
COLUMN_READS: dict[str, tuple[Call, str]] = {
    "scan_arrow": (
        lambda d, t: _listed(
            d.scan_arrow(
                start=t.key(KEYS[1]),
                stop=t.key(KEYS[-1]),
                prefix=t.key(b"k"),
                reverse=t.flag(False),
                columns=t.each(["value"]),
                batch_rows=t.number(20),
            )
        ),
        "buffer bool iterable index",
    ),
    "multi_get_arrow": (
        lambda d, t: [
            column_list(d.multi_get_arrow(t.each([t.key(key) for key in KEYS[::9]])), True),
            column_list(d.multi_get_arrow(Rows(t, ["key"])), True),
        ],
        "buffer iterable",
    ),
}
COLUMN_WRITES: dict[str, tuple[Call, str]] = {
    "write_arrow": (
        _some_rows(lambda d, t: d.write_arrow(Rows(t), sync=t.flag(False), **t.expiry())),
        "bool float timedelta datetime",
    ),
    "put_many": (
        _some_rows(lambda d, t: d.put_many(t.each(KEYS), Rows(t, ["value"]), sync=t.flag(False), **t.expiry())),
        "bool float iterable timedelta datetime",
    ),
}

# Of everything that reads in key order.
READS: dict[str, tuple[Call, str]] = {
    "get": (lambda d, t: d.get(t.key(KEYS[3]), fill_cache=t.flag(True)), "buffer bool"),
    "ttl": (lambda d, t: [d.ttl(t.key(key)) for key in KEYS[3:9]], "buffer"),
    "__getitem__": (lambda d, t: d[t.key(KEYS[3])], "buffer"),
    "__contains__": (lambda d, t: t.key(KEYS[3]) in d, "buffer"),
    "open_value": (lambda d, t: d.open_value(t.key(KEYS[3])).read(), "buffer"),
    "multi_get": (lambda d, t: d.multi_get(t.each([t.key(key) for key in KEYS[::9]])), "buffer iterable"),
    "keys": (lambda d, t: [t.key(KEYS[3]) in d.keys(t.key(KEYS[2])), *d.keys(t.key(KEYS[2]))], "buffer"),
    "values": (lambda d, t: [*d.values(t.key(KEYS[2])), t.key(b"no value") in d.values()], "buffer"),
    "items": (lambda d, t: [(t.key(KEYS[3]), b"1") in d.items(), *d.items(prefix=t.key(b"k"))], "buffer"),
    "__iter__": (lambda d, t: list(d), ""),
    "__reversed__": (lambda d, t: list(reversed(d)), ""),
    "__len__": (lambda d, t: len(d), ""),
    "__bool__": (lambda d, t: bool(d), ""),
    "__eq__": (lambda d, t: d == t.db, ""),
    "__hash__": (lambda d, t: hash(d), ""),
    "__repr__": (lambda d, t: repr(d), ""),
    "iterator": (
        lambda d, t: list(
            d.iterator(
                start=t.key(KEYS[1]),
                stop=t.key(KEYS[-1]),
                prefix=t.key(b"k"),
                reverse=t.flag(False),
                include_stop=t.flag(True),
            )
        ),
        "buffer bool",
    ),
    "prefixed_db": (lambda d, t: list(d.prefixed_db(t.key(b"k"))), "buffer"),
}
WRITES: dict[str, tuple[Call, str]] = {
    "put": (
        _written(CHANGE, lambda d, t: d.put(t.key(OUTER), t.key(b"1"), sync=t.flag(False), **t.expiry())),
        "buffer bool float timedelta datetime",
    ),
    "touch": (
        lambda d, t: [d.touch(t.key(key), sync=t.flag(False), **t.expiry()) for key in KEYS[5:8]],
        "buffer bool float timedelta datetime",
    ),
    "__setitem__": (_written(CHANGE, lambda d, t: d.__setitem__(t.key(OUTER), t.key(b"1"))), "buffer"),
    "delete": (_written({KEYS[50]: None}, lambda d, t: d.delete(t.key(KEYS[50]), sync=t.flag(False))), "buffer bool"),
    "__delitem__": (_written({KEYS[50]: None}, lambda d, t: d.__delitem__(t.key(KEYS[50]))), "buffer"),
    "delete_range": (
        _written(
            dict.fromkeys(KEYS[60:70]),
            lambda d, t: d.delete_range(t.key(KEYS[60]), t.key(KEYS[70]), sync=t.flag(False)),
        ),
        "buffer bool",
    ),
    "update": (_written(CHANGE, lambda d, t: d.update(t.each([(t.key(OUTER), t.key(b"1"))]))), "buffer iterable"),
    "setdefault": (_written(CHANGE, lambda d, t: d.setdefault(t.key(OUTER), t.key(b"1"))), "buffer"),
    "pop": (_written({KEYS[50]: None}, lambda d, t: d.pop(t.key(KEYS[50]))), "buffer"),
    "popitem": (_popped, ""),
    "add": (
        _written(COUNTED, lambda d, t: d.add(t.key(COUNTER), t.number(7), sync=t.flag(False))),
        "buffer index bool",
    ),
    "max": (
        _written(COUNTED, lambda d, t: d.max(t.key(COUNTER), t.number(7), sync=t.flag(False))),
        "buffer index bool",
    ),
    "min": (
        _written(COUNTED, lambda d, t: d.min(t.key(COUNTER), t.number(7), sync=t.flag(False))),
        "buffer index bool",
    ),
    "append": (_written(CHANGE, lambda d, t: d.append(t.key(OUTER), t.key(b"1"), sync=t.flag(False))), "buffer bool"),
    "compare_and_set": (
        _written(
            CHANGE,
            lambda d, t: d.compare_and_set(t.key(OUTER), None, t.key(b"1"), sync=t.flag(False), **t.expiry()),
        ),
        "buffer bool float timedelta datetime",
    ),
    "modify": (_written(CHANGE, lambda d, t: d.modify(t.key(OUTER), t.change_to(b"1"))), "buffer callback"),
    "clear": (_all_keys(lambda d, t: d.clear()), ""),
    "write_batch": (
        _written(CHANGE, lambda d, t: _through_batch(d, t)),
        "buffer bool",
    ),
    "snapshot": (lambda d, t: list(d.snapshot()), ""),
}


def _through_batch(db: Any, t: Trial) -> None:
    with t.use(db.write_batch(transaction=t.flag(True), sync=t.flag(False))) as batch:
        batch.put(t.key(OUTER), t.key(b"1"))


def _in_transaction(db: Any, t: Trial) -> None:
    tx = t.use(db.transaction())
    tx.get(t.key(KEYS[3]))
    tx.ttl(t.key(KEYS[4]))
    tx.put(t.key(OUTER), t.key(b"1"), **t.expiry())
    tx.commit(sync=t.flag(False))


# Of a database and of a keyspace.
SPACE: dict[str, tuple[Call, str]] = {
    **READS,
    **COLUMN_READS,
    **WRITES,
    **COLUMN_WRITES,
    "approximate_len": (lambda d, t: d.approximate_len(), ""),
    "tables": (lambda d, t: d.tables(), ""),
    "split_points": (lambda d, t: d.split_points(t.number(3)), "index"),
    "approximate_size": (lambda d, t: d.approximate_size(t.key(KEYS[1]), t.key(KEYS[9])), "buffer"),
    "closed": (lambda d, t: d.closed, ""),
    "compact_range": (
        lambda d, t: d.compact_range(
            t.key(KEYS[1]), t.key(KEYS[-1]), wait=t.flag(t.rng.random() < 0.8), progress=t.progress
        ),
        "buffer bool callback",
    ),
    "cursor": (lambda d, t: d.cursor(start=t.key(KEYS[1]), fill_cache=t.flag(True)), "buffer bool"),
    "explain": (lambda d, t: d.explain(t.key(KEYS[3])).to_dict(), "buffer"),
    "filter_debt": (lambda d, t: d.filter_debt(), ""),
    "flush": (lambda d, t: d.flush(wait=t.flag(True)), "bool"),
    "ingest": (_written(CHANGE, _ingested), "fspath iterable bool"),
    "options": (lambda d, t: d.options, ""),
    "path": (lambda d, t: d.path, ""),
    "property": (lambda d, t: [d.property("lsmkv.stats"), d.property("lsmkv.estimate-num-keys")], ""),
    "readonly": (lambda d, t: d.readonly, ""),
    "rebuild_filters": (lambda d, t: d.rebuild_filters(t.number(0)), "index"),
    "seed": (lambda d, t: d.seed, ""),
    "set_options": (lambda d, t: d.set_options(block_size=t.number(2048), bits_per_key=14), "index"),
    "stats": (lambda d, t: d.stats().to_dict(), ""),
    "sync": (lambda d, t: d.sync(), ""),
    "write": (lambda d, t: _write(d, t), "bool"),
    "transaction": (
        _written(CHANGE, lambda d, t: _in_transaction(d, t)),
        "buffer bool float timedelta datetime",
    ),
    "transact": (
        _written(CHANGE, lambda d, t: d.transact(lambda tx: tx.put(t.key(OUTER), t.change_to(b"1")(None)))),
        "buffer callback",
    ),
    "keyspace_id": (lambda d, t: d.keyspace_id, ""),
}
_simple(
    "DB",
    lambda t: t.db,
    {
        **SPACE,
        "__enter__": (lambda d, t: d.__enter__(), ""),
        "__exit__": (lambda d, t: d.__exit__(None, None, None), ""),
        "background": (lambda d, t: d.background.to_dict(), ""),
        "checkpoint": (lambda d, t: d.checkpoint(t.fspath(t.path("checkpoint"))), "fspath"),
        "close": (lambda d, t: d.close(), ""),
        "refresh": (lambda d, t: _refresh(t), ""),
        "refresh_every": (lambda d, t: _refresh_every(t), "float"),
        "on": (lambda d, t: _listen(d, t), "callback"),
        "reset_stats": (lambda d, t: d.reset_stats(), ""),
        "keyspace": (lambda d, t: d.keyspace(t.rng.choice([SIDE, "outer"]), bits_per_key=t.number(12)), "index"),
        "keyspaces": (lambda d, t: d.keyspaces(), ""),
        "drop_keyspace": (lambda d, t: _drop(t), ""),
    },
)
_simple("Keyspace", lambda t: t.side(), {**SPACE, "name": (lambda d, t: d.name, "")})


def _write(db: lsmkv.DB | lsmkv.Keyspace, t: Trial) -> None:
    batch = t.use(lsmkv.WriteBatch() if db is t.db else db.write_batch())
    batch.put(OUTER, b"1")
    # An action may have changed what it writes.
    with suppress(InterruptedError), t.expected_of(db).writing(CHANGE):
        db.write(batch, sync=t.flag(True))
        raise InterruptedError


def _refresh(t: Trial) -> None:
    with t.use(lsmkv.open(t.path("db"), "r")) as reader:
        reader.refresh()
        list(reader.items())


def _refresh_every(t: Trial) -> None:
    with t.use(lsmkv.open(t.path("db"), "r")) as reader:
        reader.refresh_every(t.seconds(60.0))
        list(reader.items())


def _listen(db: lsmkv.DB, t: Trial) -> None:
    """Listeners run in a thread of the database, so they act beside this call."""
    stop = db.on("flush", lambda event: t.progress(0, 0))
    db.flush()
    stop()


_simple(
    "Snapshot",
    lambda t: t.db.snapshot(),
    {
        **READS,
        **COLUMN_READS,
        "__enter__": (lambda s, t: s.__enter__(), ""),
        "__exit__": (lambda s, t: s.__exit__(None, None, None), ""),
        "__init__": (lambda s, t: s.__init__(t.db), ""),
        "close": (lambda s, t: s.close(), ""),
        "closed": (lambda s, t: s.closed, ""),
        "cursor": (lambda s, t: s.cursor(start=t.key(KEYS[1])), "buffer"),
        "keyspace": (lambda s, t: list(s.keyspace(t.side())), ""),
        "sequence": (lambda s, t: s.sequence, ""),
    },
)
_simple(
    "Transaction",
    lambda t: t.db.transaction(),
    {
        **{name: READS[name] for name in ("__getitem__", "__contains__", "multi_get", "__iter__", "__repr__")},
        "open_value": (lambda x, t: x.open_value(t.key(KEYS[3])).read(), "buffer"),
        "get": (lambda x, t: [x.get(t.key(KEYS[3])), x.get(t.key(KEYS[3]), keyspace=t.side())], "buffer"),
        "items": (lambda x, t: [*x.items(t.key(KEYS[1]), t.key(KEYS[9])), *x.items(keyspace=t.side())], "buffer"),
        "iterator": (lambda x, t: list(x.iterator(prefix=t.key(b"k"), reverse=t.flag(True))), "buffer bool"),
        "keys": (lambda x, t: list(x.keys(t.key(KEYS[2]))), "buffer"),
        "values": (lambda x, t: list(x.values(t.key(KEYS[2]))), "buffer"),
        "cursor": (lambda x, t: x.cursor(), ""),
        "ttl": (lambda x, t: [x.ttl(t.key(KEYS[3])), x.ttl(t.key(KEYS[4]), keyspace=t.side())], "buffer"),
        "put": (
            lambda x, t: x.put(t.key(OUTER), t.key(b"1"), keyspace=t.side(), **t.expiry()),
            "buffer float timedelta datetime",
        ),
        "__setitem__": (lambda x, t: x.__setitem__(t.key(OUTER), t.key(b"1")), "buffer"),
        "delete": (lambda x, t: x.delete(t.key(KEYS[50])), "buffer"),
        "__delitem__": (lambda x, t: x.__delitem__(t.key(KEYS[50])), "buffer"),
        "delete_range": (lambda x, t: x.delete_range(t.key(KEYS[60]), t.key(KEYS[70])), "buffer"),
        "commit": (lambda x, t: _commit(x, t), "bool"),
        "rollback": (lambda x, t: x.rollback(), ""),
        "committed": (lambda x, t: x.committed, ""),
        "close": (lambda x, t: x.close(), ""),
        "closed": (lambda x, t: x.closed, ""),
        "sequence": (lambda x, t: x.sequence, ""),
        "__enter__": (lambda x, t: x.__enter__(), ""),
        "__exit__": (lambda x, t: x.__exit__(None, None, None), ""),
    },
)


def _commit(transaction: lsmkv.Transaction, t: Trial) -> None:
    list(transaction.items(KEYS[1], KEYS[9]))
    transaction.put(OUTER, b"1")
    with t.expected.writing(CHANGE):
        transaction.commit(sync=t.flag(False))


_simple("PrefixedDB", lambda t: t.db.prefixed_db(b""), {**READS, **WRITES})
_simple(
    "PrefixedSnapshot",
    lambda t: t.db.prefixed_db(b"").snapshot(),
    {
        **READS,
        **{name: (call, "") for name, (call, _) in WRITES.items()},
        "__enter__": (lambda s, t: s.__enter__(), ""),
        "__exit__": (lambda s, t: s.__exit__(None, None, None), ""),
        "close": (lambda s, t: s.close(), ""),
        "closed": (lambda s, t: s.closed, ""),
    },
)

MOVES: dict[str, tuple[Call, str]] = {
    "__iter__": (lambda i, t: iter(i), ""),
    "__next__": (lambda i, t: list(i), ""),
    "next": (lambda i, t: [i.next() for _ in range(50)], ""),
    "prev": (lambda i, t: [(i.next(), i.next(), i.prev()) for _ in range(20)], ""),
    "seek": (lambda i, t: [(i.seek(t.key(key)), i.next()) for key in KEYS[::40]], "buffer"),
    "seek_to_start": (lambda i, t: [i.next(), i.seek_to_start(), i.next()], ""),
    "seek_to_stop": (lambda i, t: [i.seek_to_stop(), i.prev()], ""),
    "close": (lambda i, t: i.close(), ""),
    "__enter__": (lambda i, t: i.__enter__(), ""),
    "__exit__": (lambda i, t: i.__exit__(None, None, None), ""),
}
_simple("PrefixedIterator", lambda t: t.db.prefixed_db(b"").iterator(), MOVES)
_simple(
    "Iterator",
    lambda t: t.db.iterator(reverse=t.rng.random() < 0.3),
    {
        **MOVES,
        "__repr__": READS["__repr__"],
        "take": (lambda i, t: i.take(t.number(500)), "index"),
        "skip": (lambda i, t: [i.skip(t.number(20)), i.next(), i.skip(500)], "index"),
    },
)
_simple(
    "Cursor",
    lambda t: t.db.cursor(),
    {
        **{name: MOVES[name] for name in ("close", "__enter__", "__exit__")},
        "__repr__": READS["__repr__"],
        "valid": (lambda c, t: c.valid, ""),
        "seek": (lambda c, t: [(c.seek(t.key(key)), c.item()) for key in KEYS[::40]], "buffer"),
        "seek_for_prev": (lambda c, t: [(c.seek_for_prev(t.key(key)), c.item()) for key in KEYS[::40]], "buffer"),
        "seek_to_first": (lambda c, t: [c.seek_to_first(), c.key()], ""),
        "seek_to_last": (lambda c, t: [c.seek_to_last(), c.value()], ""),
        "next": (lambda c, t: [c.seek_to_first(), *((c.next(), c.item()) for _ in range(100))], ""),
        "prev": (lambda c, t: [c.seek_to_last(), *((c.prev(), c.item()) for _ in range(100))], ""),
        "key": (lambda c, t: [c.seek_to_first(), c.key()], ""),
        "value": (lambda c, t: [c.seek_to_first(), c.value()], ""),
        "item": (lambda c, t: [c.seek_to_first(), *(c.item() for _ in range(50))], ""),
    },
)


_simple(
    "ArrowScan",
    lambda t: t.db.scan_arrow(columns=["value"], batch_rows=20, reverse=t.rng.random() < 0.3),
    {
        **{name: MOVES[name] for name in ("close", "__enter__", "__exit__")},
        "__arrow_c_stream__": (lambda s, t: [_listed(s), _listed(s)], ""),
        "__arrow_c_schema__": (lambda s, t: s.__arrow_c_schema__(), ""),
    },
)
_simple(
    "ArrowColumn",
    lambda t: t.db.multi_get_arrow(KEYS[::9]),
    {
        "__arrow_c_array__": (lambda c, t: column_list(c, True), ""),
        "__arrow_c_schema__": (lambda c, t: c.__arrow_c_schema__(), ""),
        "__len__": (lambda c, t: len(c), ""),
        "null_count": (lambda c, t: c.null_count, ""),
    },
)


def _then_write(call: Call) -> Call:
    """Fills a batch, then writes it. What it holds by then, an action may have changed."""

    def run(batch: Any, t: Trial) -> None:
        with suppress(InterruptedError), t.expected.writing({**CHANGE, OUTER[1:]: b"1", **dict.fromkeys(KEYS[60:70])}):
            call(batch, t)
            batch.write()
            raise InterruptedError

    return run


BATCHED: dict[str, tuple[Call, str]] = {
    "put": (
        _then_write(lambda b, t: b.put(t.key(OUTER), t.key(b"1"), **t.expiry())),
        "buffer float timedelta datetime",
    ),
    "__setitem__": (_then_write(lambda b, t: b.__setitem__(t.key(OUTER), t.key(b"1"))), "buffer"),
    "delete": (_then_write(lambda b, t: b.delete(t.key(KEYS[60]))), "buffer"),
    "__delitem__": (_then_write(lambda b, t: b.__delitem__(t.key(KEYS[60]))), "buffer"),
    "delete_range": (_then_write(lambda b, t: b.delete_range(t.key(KEYS[60]), t.key(KEYS[70]))), "buffer"),
    "clear": (lambda b, t: [b.put(OUTER, b"1"), b.clear()], ""),
    "append": (_then_write(lambda b, t: [b.put(OUTER, b"1"), b.append(b)]), ""),
    "write": (_then_write(lambda b, t: [b.put(OUTER, b"1"), b.write(sync=t.flag(True))]), "bool"),
    "__len__": (lambda b, t: len(b), ""),
    "size_bytes": (lambda b, t: b.size_bytes, ""),
    "__enter__": (lambda b, t: b.__enter__(), ""),
    "__exit__": (_then_write(lambda b, t: [b.put(OUTER, b"1"), b.__exit__(None, None, None)]), ""),
}
_simple("WriteBatch", lambda t: t.db.write_batch(), {**BATCHED, "__repr__": READS["__repr__"]})
_simple("PrefixedBatch", lambda t: t.db.prefixed_db(b"").write_batch(), BATCHED)


def _new_table(t: Trial) -> lsmkv.SSTWriter:
    return lsmkv.SSTWriter(t.path("outer.sst"))


_simple(
    "SSTWriter",
    _new_table,
    {
        "put": (
            lambda w, t: [w.put(t.key(key), t.key(b"1"), seq=t.number(1), **t.expiry()) for key in KEYS[::20]],
            "buffer index float timedelta datetime",
        ),
        "put_arrow": (lambda w, t: w.put_arrow(Rows(t), seq=t.number(1)), "buffer index"),
        "delete": (lambda w, t: [w.delete(t.key(key), seq=t.number(1)) for key in KEYS[::20]], "buffer index"),
        "delete_range": (lambda w, t: w.delete_range(t.key(KEYS[0]), t.key(KEYS[1]), seq=t.number(1)), "buffer index"),
        "path": (lambda w, t: w.path, ""),
        "size": (lambda w, t: w.size, ""),
        "summary": (lambda w, t: w.summary, ""),
        "finish": (lambda w, t: [w.put(b"a", b"1"), w.finish()], ""),
        "abort": (lambda w, t: w.abort(), ""),
        "__enter__": (lambda w, t: w.__enter__(), ""),
        "__exit__": (lambda w, t: w.__exit__(None, None, None), ""),
    },
)


def _table(t: Trial) -> lsmkv.SSTReader:
    with lsmkv.SSTWriter(t.path("outer.sst")) as writer:
        for key in KEYS:
            writer.put(key, b"v" * 50, seq=1)
        writer.delete_range(KEYS[3], KEYS[5], seq=2)
    return lsmkv.SSTReader(t.path("outer.sst"))


_simple(
    "SSTReader",
    _table,
    {
        "path": (lambda r, t: r.path, ""),
        "closed": (lambda r, t: r.closed, ""),
        "table": (lambda r, t: list(r.table.entries()), ""),
        "get": (lambda r, t: r.get(t.key(KEYS[7])), "buffer"),
        "__getitem__": (lambda r, t: r[t.key(KEYS[7])], "buffer"),
        "__contains__": (lambda r, t: t.key(KEYS[7]) in r, "buffer"),
        "items": (lambda r, t: list(r.items(t.key(KEYS[7]), reverse=t.flag(False))), "buffer bool"),
        "keys": (lambda r, t: list(r.keys(t.key(KEYS[7]))), "buffer"),
        "values": (lambda r, t: list(r.values(t.key(KEYS[7]))), "buffer"),
        "__iter__": (lambda r, t: list(r), ""),
        "__reversed__": (lambda r, t: list(reversed(r)), ""),
        "__len__": (lambda r, t: len(r), ""),
        "properties": (lambda r, t: r.properties, ""),
        "filter_info": (lambda r, t: r.filter_info, ""),
        "verify": (lambda r, t: r.verify(deep=t.flag(True)), "bool"),
        "close": (lambda r, t: r.close(), ""),
        "__enter__": (lambda r, t: r.__enter__(), ""),
        "__exit__": (lambda r, t: r.__exit__(None, None, None), ""),
    },
)


def _filter(t: Trial, cls: type, *args: Any, **options: Any) -> Any:
    made = cls(10_000, *args, **options)
    made.add_many(KEYS)
    return made


def _shared_bloom(t: Trial) -> lsmkv.BlockedBloom:
    bloom = lsmkv.BlockedBloom.open_shared(t.path(f"seen-{t.rng.random()}.filter"), 10_000)
    bloom.add_many(KEYS)
    return bloom


def _bloom(t: Trial) -> lsmkv.BlockedBloom:
    return _shared_bloom(t) if t.rng.random() < 0.5 else _filter(t, lsmkv.BlockedBloom)


def _rotating(t: Trial) -> lsmkv.RotatingBloom:
    """Its clock is Python code in the middle of each call."""
    return _filter(t, lsmkv.RotatingBloom, window=5, clock=lambda: (t.act(), 1.0)[1])


def _read(*names: str) -> dict[str, tuple[Call, str]]:
    return {name: (lambda b, t, name=name: getattr(b, name), "") for name in names}


FILTER_CALLS: dict[str, tuple[Call, str]] = {
    "add": (lambda b, t: b.add(t.key(b"a")), "buffer"),
    "add_many": (lambda b, t: b.add_many(t.each([t.key(key) for key in KEYS * 25])), "buffer iterable"),
    "test_and_add": (lambda b, t: b.test_and_add(t.key(b"a")), "buffer"),
    "test_many": (lambda b, t: b.test_many(t.each([t.key(key) for key in KEYS * 25])), "buffer iterable"),
    "__contains__": (lambda b, t: t.key(b"a") in b, "buffer"),
    "__eq__": (lambda b, t: b == b.copy(), ""),
    "__init__": (lambda b, t: b.__init__(10), ""),
    "__repr__": (lambda b, t: repr(b), ""),
    "clear": (lambda b, t: b.clear(), ""),
    "copy": (lambda b, t: b.copy(), ""),
    "digest": (lambda b, t: b.digest(), ""),
    "to_bytes": (lambda b, t: b.to_bytes(compress=t.flag(True)), "bool"),
    "from_bytes": (lambda b, t: b.from_bytes(t.key(b.to_bytes())), "buffer"),
    **_read("approximate_count", "capacity", "count", "designed_fpr", "expected_fpr", "fill_ratio", "nbytes"),
    **_read("saturated", "seed"),
}

_simple(
    "BlockedBloom",
    _bloom,
    {
        **FILTER_CALLS,
        "__sizeof__": (lambda b, t: sys.getsizeof(b), ""),
        "__enter__": (lambda b, t: b.__enter__(), ""),
        "__exit__": (lambda b, t: b.__exit__(None, None, None), ""),
        "merge": (lambda b, t: b.merge(b.copy()), ""),
        "open_shared": (lambda b, t: b.open_shared(FsPath(t, t.path("other.filter")), 10), "fspath"),
        "flush": (lambda b, t: b.flush(), ""),
        "close": (lambda b, t: b.close(), ""),
        **_read("bits_per_key", "k", "n_blocks", "path"),
    },
)

_simple(
    "CountingBloom",
    lambda t: _filter(t, lsmkv.CountingBloom),
    {
        **FILTER_CALLS,
        "__sizeof__": (lambda b, t: sys.getsizeof(b), ""),
        "discard": (lambda b, t: b.discard(t.key(KEYS[3])), "buffer"),
        "remove": (lambda b, t: b.remove(t.key(KEYS[3])), "buffer"),
        "merge": (lambda b, t: b.merge(b.copy()), ""),
        "to_bloom": (lambda b, t: b.to_bloom(), ""),
        **_read("bits_per_key", "k", "n_blocks", "stuck_counters"),
    },
)

_simple(
    "FuseFilter",
    lambda t: lsmkv.FuseFilter(KEYS),
    {
        **{
            name: FILTER_CALLS[name]
            for name in FILTER_CALLS
            if name not in ("add", "add_many", "test_and_add", "clear")
        },
        "__init__": (lambda b, t: lsmkv.FuseFilter(t.each([t.key(key) for key in KEYS * 25])), "buffer iterable"),
        "__sizeof__": (lambda b, t: sys.getsizeof(b), ""),
        **_read("bits_per_key", "fingerprint_bits"),
    },
)

_simple("RotatingBloom", _rotating, {**FILTER_CALLS, **_read("window")})
_simple("ScalableBloom", lambda t: _filter(t, lsmkv.ScalableBloom), {**FILTER_CALLS, **_read("n_layers")})


_simple(
    "ManualClock",
    lambda t: t.clock,
    {
        "now": (lambda c, t: [c.now, t.db.get(KEYS[3])], ""),
        "set": (lambda c, t: [c.set(t.seconds(5e9)), t.db.get(KEYS[3])], "float"),
        "advance": (lambda c, t: [c.advance(t.seconds(1e9)), t.db.get(KEYS[3])], "float"),
    },
)


_simple("Cache", open_cache, CACHE_CALLS)


def _copy_of_database(t: Trial) -> str:
    return shutil.copytree(t.path("../template"), t.path("copy"))


@case("open", "fspath", "index")
def _open(t: Trial) -> None:
    with t.use(lsmkv.open(t.fspath(_copy_of_database(t)), block_size=t.number(2048), clock=t.clock)) as db:
        len(db)


@case("destroy", "fspath")
def _destroy(t: Trial) -> None:
    lsmkv.destroy(t.fspath(_copy_of_database(t)))


@case("verify", "fspath")
def _verify(t: Trial) -> None:
    lsmkv.verify(t.fspath(_copy_of_database(t)))


@case("repair", "fspath")
def _repair(t: Trial) -> None:
    lsmkv.repair(t.fspath(_copy_of_database(t)))


@case("upgrade", "fspath")
def _upgrade(t: Trial) -> None:
    lsmkv.upgrade(t.fspath(_copy_of_database(t)))


def _make_backups(t: Trial) -> str:
    lsmkv.backup(_copy_of_database(t), t.path("backups"))
    return t.path("backups")


@case("backup", "fspath")
def _backup(t: Trial) -> None:
    lsmkv.backup(t.fspath(_copy_of_database(t)), t.path("backups"))


@case("restore", "fspath")
def _restore(t: Trial) -> None:
    lsmkv.restore(_make_backups(t), t.fspath(t.path("restored")))


@case("backups", "fspath")
def _backups(t: Trial) -> None:
    lsmkv.backups(t.fspath(_make_backups(t)))


@case("prune_backups", "fspath", "index")
def _prune_backups(t: Trial) -> None:
    lsmkv.prune_backups(t.fspath(_make_backups(t)), t.number(1))


@case("plan")
def _plan(t: Trial) -> None:
    lsmkv.plan(n_keys=1_000_000)


# --- many trials ------------------------------------------------------------------------------------------------


def make_template(path: str) -> None:
    """A database with tables in L0 and below, and some writes in its log."""
    with lsmkv.open(path, **OPTIONS) as db:
        for key in KEYS:
            db.put(key, b"old" * 30)
        db.compact_range()
        for i in range(4):
            for key in KEYS[i::4]:
                db.put(key, b"v" * 50, ttl=LONG if i % 2 else None)
            db.flush()
        side = db.keyspace(SIDE)
        for key in KEYS:
            side.put(key, b"s" * 50)
            side.put(key + b"-expired", b"s" * 50, expire_at=PAST)
        db.flush()
        for key in KEYS[100:110]:
            db.put(key, b"expired", expire_at=PAST)
        side.put(b"k-log", b"1")
        db.put(b"k-log", b"1")


def reenter(folder: str, seeds: list[int]) -> dict[str, Any]:
    """Runs the trials. What went wrong, by trial, and how many had their action."""
    faulthandler.dump_traceback_later(HANG, exit=True)
    make_template(os.path.join(folder, "template"))
    problems, acted = [], 0
    for seed in seeds:
        place = os.path.join(folder, str(seed))
        os.mkdir(place)
        trial = Trial(place, seed)
        with open(os.path.join(folder, "running"), "w") as file:
            file.write(f"trial {seed}, {trial}")
        trial.run()
        found = trial.check()
        if found:
            problems.append(f"trial {seed}, {trial}: " + "; ".join(found[:3]))
        acted += trial.acts > 0
        shutil.rmtree(place)
        faulthandler.dump_traceback_later(HANG, exit=True)
    faulthandler.cancel_dump_traceback_later()
    return {"problems": problems, "acted": acted}

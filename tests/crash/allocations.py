"""Jobs of the lab: operations during which allocations fail, and what is there afterwards."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import lsmkv
from lsmkv.compaction import automatic
from lsmkv.recovery import open_writer
from lsmkv_ext.arrow.reader import column_list

from .allocfault import CONTROLS
from .expiries import LONG, PAST

Model = dict[bytes, bytes]
HANG = 30  # seconds

# Nothing runs in the background but what the scenario asks for.
QUIET: dict[str, Any] = {
    "write_buffer_size": 1 << 20,
    "target_file_size": 16384,
    "l0_compaction_trigger": 100,
    "l0_slowdown_trigger": 200,
    "l0_stop_trigger": 300,
}


class Step(NamedTuple):
    call: Callable[[], object]
    changes: Mapping[bytes, bytes | None] = MappingProxyType({})  # None: the key is deleted


class Scenario:
    """Some steps on a database of some tables. To add one: a subclass that says what differs, and its name below.

    Everything that the steps need is made before allocations fail, and a step that returned is counted without one.
    """

    options: ClassVar[dict[str, Any]] = QUIET
    db: lsmkv.DB | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "db"
        self.model: Model = {}
        self.steps: list[Step] = []
        self.acknowledged = 0  # steps; small numbers take no memory
        self.wrong: list[str] = []

    def setup(self) -> None:
        """Before allocations fail."""
        automatic.IDLE_SECONDS = 3600.0  # on a busy machine, a merge of L0 by the idle database would come first
        self.db = lsmkv.open(self.path, **self.options)
        for generation in range(3):
            self.write(generation)
            self.db.flush()

    def write(self, generation: int) -> None:
        for i in range(300):
            key = b"k%04d" % (i * (generation + 1) % 400)
            self.model[key] = b"%d-%d" % (generation, i)
            self.db.put(key, self.model[key])

    def act(self) -> None:
        for step in self.steps:
            step.call()
            self.acknowledged += 1

    def states(self, raised: bool) -> list[Model]:
        """What may be there: the steps that returned, and perhaps the one that did not."""
        after = dict(self.model)
        for step in self.steps[: self.acknowledged]:
            change(after, step)
        if not raised:
            return [after]
        perhaps = dict(after)
        change(perhaps, self.steps[self.acknowledged])
        return [after, perhaps]

    def check_rest(self) -> None:
        """Looks at what else the steps made; adds to `wrong`."""

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.wrong.append(what)


def change(model: Model, step: Step) -> None:
    for key, value in step.changes.items():
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


class Open(Scenario):
    """With a log to replay."""

    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.db._shut(flush=False)
        self.db = None
        self.steps = [Step(self.open)]

    def open(self) -> None:
        self.db = lsmkv.open(self.path, **self.options)


class Close(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.steps = [Step(self.db.close)]


class Put(Scenario):
    """Enough to make the index of the memtable, its arena and the mapping of the log grow."""

    options: ClassVar[dict[str, Any]] = {**QUIET, "write_buffer_size": 1 << 18}

    def setup(self) -> None:
        super().setup()
        pairs = [(b"k%04d" % (i * 7 % 500), b"put %d " % i * (1 + i * 2)) for i in range(220)]
        self.steps = [Step(partial(self.db.put, *pair), dict([pair])) for pair in pairs]
        gone = [b"k%04d" % (i * 5) for i in range(20)]
        self.steps += [Step(partial(self.db.delete, key), {key: None}) for key in gone]


class PutToWrittenLog(Put):
    options: ClassVar[dict[str, Any]] = {**Put.options, "wal": "write"}


class Batch(Scenario):
    """Small ones, ones that are written without the GIL, and range deletes."""

    def setup(self) -> None:
        super().setup()
        for number in range(12):
            batch = lsmkv.WriteBatch()
            changes: dict[bytes, bytes | None] = {}
            for i in range(40):
                key = b"k%04d" % ((number * 31 + i * 3) % 500)
                changes[key] = b"batch %d " % number * (1 if number % 3 else 200)
                batch.put(key, changes[key])
            if number % 4 == 1:
                start, stop = b"k%04d" % (number * 20), b"k%04d" % (number * 20 + 60)
                batch.delete_range(start, stop)
                changes.update({b"k%04d" % i: None for i in range(number * 20, number * 20 + 60)})
            self.steps.append(Step(partial(self.db.write, batch), changes))


class Rotation(Scenario):
    """Memtables fill up; flushes and compactions run in the background."""

    options: ClassVar[dict[str, Any]] = {**QUIET, "write_buffer_size": 64 << 10, "l0_compaction_trigger": 2}

    def setup(self) -> None:
        super().setup()
        pairs = [(b"k%04d" % (i * 7 % 500), b"rotated %d " % i * 150) for i in range(150)]
        self.steps = [Step(partial(self.db.put, *pair), dict([pair])) for pair in pairs]
        self.steps.append(Step(self.db.flush))


class Flush(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.steps = [Step(self.db.flush)]


class FlushIntoNewManifest(Flush):
    def setup(self) -> None:
        super().setup()
        self.db._versions._manifest_limit = 0


class Compaction(Scenario):
    def setup(self) -> None:
        super().setup()
        self.steps = [Step(self.db.compact_range)]


class ZstdCompaction(Compaction):
    """Every output makes compression contexts, every thread that reads takes a decompression context."""

    options: ClassVar[dict[str, Any]] = {**QUIET, "compression": "zstd"}


class FilterRebuild(Scenario):
    def setup(self) -> None:
        super().setup()
        self.db.set_options(bits_per_key=15)
        self.steps = [Step(self.db.rebuild_filters)]


class Ingest(Scenario):
    def setup(self) -> None:
        super().setup()
        table = self.folder / "table.sst"
        # Some of them in a value log.
        ingested: dict[bytes, bytes | None] = {b"k%04d" % i: b"ingested" * (i % 10 * 10) for i in range(100)}
        writer = lsmkv.SSTWriter(table, large_value_threshold=600)
        for key, value in ingested.items():
            writer.put(key, value)
        writer.finish()
        self.write(3)
        self.steps = [Step(partial(self.db.ingest, [table]), ingested)]


class Checkpoint(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.copy = self.folder / "copy"
        self.steps = [Step(partial(self.db.checkpoint, self.copy))]

    def check_rest(self) -> None:
        """A copy is whole or missing; a failed one is in the way of nothing."""
        if not self.copy.exists():
            self.db.checkpoint(self.copy)
        with lsmkv.open(self.copy, "r") as db:
            self.expect("the checkpoint differs", dict(db.items()), self.model)


class Reads(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)
        items = sorted(self.model.items())
        keys = [key for key, _ in items[::5]]
        wanted = {
            "a scan": (partial(list, self.db.items()), items),
            "a reverse scan": (lambda: list(self.db.iterator(reverse=True)), items[::-1]),
            "a prefix": (lambda: list(self.db.items(prefix=b"k01")), [i for i in items if i[0][:3] == b"k01"]),
            "gets": (lambda: [self.db.get(key) for key in keys], [self.model[key] for key in keys]),
            "a multi_get": (lambda: self.db.multi_get(keys), [self.model[key] for key in keys]),
            "a snapshot": (self.by_snapshot, items),
            "a cursor": (self.by_cursor, items[:50]),
        }
        self.steps = [Step(partial(self.look, what, *rest)) for what, rest in wanted.items()]

    def look(self, what: str, read: Callable[[], object], wanted: object) -> None:
        self.expect(what, read(), wanted)

    def by_snapshot(self) -> list[tuple[bytes, bytes]]:
        with self.db.snapshot() as snapshot:
            return list(snapshot.items())

    def by_cursor(self) -> list[tuple[bytes, bytes]]:
        with self.db.cursor() as cursor:
            found = []
            more = cursor.seek_to_first()
            while more and len(found) < 50:
                found.append((cursor.key(), cursor.value()))
                more = cursor.next()
            return found


class ZstdReads(Reads):
    options: ClassVar[dict[str, Any]] = {
        **QUIET,
        "compression": "zstd",
        "large_value_threshold": 100,
        "large_value_compression": "zstd",
        "block_cache_size": 0,
    }


class Columns(Scenario):
    """Whole columns in and out, without a library: scans are read and written by the data plane."""

    options: ClassVar[dict[str, Any]] = {**QUIET, "large_value_threshold": 1000}

    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.large = {b"large%d" % i: b"%d" % i * 2000 for i in range(3)}
        self.db.put_many(self.large, self.large.values())
        self.model.update(self.large)
        items = sorted(self.model.items())
        keys = [key for key, _ in items[::5]]
        other = {b"column%03d" % i: b"v%d" % i * 20 for i in range(300)}
        copy = {b"copy": b"1", **{b"copy%d" % i: b"x" * 700 for i in range(30)}}
        self.source = lsmkv.open(self.folder / "source", **QUIET)
        self.source.put_many(copy, copy.values())
        self.source.write_arrow(self.source.scan_arrow())  # imports the calls
        self.source.multi_get_arrow([])
        self.steps = [
            Step(partial(self.look, "a scan", self.scan, [value for _, value in items])),
            Step(
                partial(self.look, "a column of values", partial(self.look_up, keys), [self.model[key] for key in keys])
            ),
            Step(partial(self.db.put_many, list(other), list(other.values())), other),
            Step(partial(self.db.write_arrow, self.source.scan_arrow(batch_rows=9)), copy),
        ]

    def scan(self) -> list[bytes]:
        return column_list(self.db.scan_arrow(columns=["value"], batch_rows=50))

    def look_up(self, keys: list[bytes]) -> list[bytes | None]:
        return column_list(self.db.multi_get_arrow(keys), True)

    def look(self, what: str, read: Callable[[], object], wanted: object) -> None:
        self.expect(what, read(), wanted)

    def check_rest(self) -> None:
        self.source.close()


class ReadOnly(Scenario):
    """A second handle opens, reads, moves on and closes."""

    def setup(self) -> None:
        super().setup()
        self.write(3)
        self.items = sorted(self.model.items())
        self.steps = [Step(self.read)]

    def read(self) -> None:
        with lsmkv.open(self.path, "r") as reader:
            self.expect("a read-only handle", list(reader.items()), self.items)
            reader.refresh()
            self.expect("a refreshed handle", list(reader.items()), self.items)


class Expiry(Scenario):
    """Entries that expire in the far future, and entries that are expired and hide older ones."""

    def write(self, generation: int) -> None:
        super().write(generation)
        for i in range(0, 400, 5):
            key = b"k%04d" % i
            if (i // 5 + generation) % 2:
                self.model[key] = b"expires %d-%d" % (generation, i)
                self.db.put(key, self.model[key], ttl=LONG)
            else:
                self.model.pop(key, None)
                self.db.put(key, b"expired", expire_at=PAST)

    def setup(self) -> None:
        super().setup()
        keys = [b"k%04d" % (i * 7 % 500) for i in range(40)]
        self.steps = [
            step
            for i, key in enumerate(keys)
            for step in (
                Step(partial(self.db.put, key, b"kept %d" % i, ttl=LONG), {key: b"kept %d" % i}),
                Step(partial(self.db.touch, key, LONG)),
                Step(partial(self.db.put, key + b"x", b"", expire_at=PAST), {key + b"x": None}),
            )
        ]
        self.steps += [Step(self.db.flush), Step(self.db.compact_range), Step(partial(self.look, sorted(keys)))]

    def look(self, keys: list[bytes]) -> None:
        self.expect("a TTL is lost", all(self.db.ttl(key) for key in keys), True)


class FirstExpiry(Scenario):
    """The first expiry in a database of format 1 upgrades it."""

    def setup(self) -> None:
        latest = open_writer.LATEST_FORMAT
        open_writer.LATEST_FORMAT = 1
        try:
            super().setup()
        finally:
            open_writer.LATEST_FORMAT = latest
        assert self.db._versions.state.format_version == 1
        self.steps = [Step(partial(self.db.put, b"k", b"v", ttl=LONG), {b"k": b"v"})]


class Transactions(Scenario):
    def setup(self) -> None:
        super().setup()
        self.write(3)
        for number in range(8):
            changes: dict[bytes, bytes | None] = {b"k%04d" % (number * 9): b"by transaction %d" % number}
            changes[b"k%04d" % (number * 9 + 1)] = None
            self.steps.append(Step(partial(self.transact, changes), changes))
        self.steps.append(Step(partial(self.db.append, b"appended", b"a"), {b"appended": b"a"}))
        self.steps.append(Step(partial(self.db.append, b"appended", b"b"), {b"appended": b"ab"}))
        self.steps.append(Step(partial(self.db.pop, b"appended"), {b"appended": None}))

    def transact(self, changes: Mapping[bytes, bytes | None]) -> None:
        with self.db.transaction() as tx:
            for key, value in changes.items():
                tx.get(key)
                if value is None:
                    tx.delete(key)
                else:
                    tx.put(key, value, ttl=LONG)
            list(tx.items(b"k01", b"k02"))


class Keyspaces(Scenario):
    """Batches that go to all keyspaces, while keyspaces come and go."""

    def setup(self) -> None:
        super().setup()
        self.steps = [
            Step(partial(self.create, "first")),
            *(
                Step(partial(self.both, b"k%04d" % i, b"both %d" % i), {b"k%04d" % i: b"both %d" % i})
                for i in range(20)
            ),
            Step(self.db.flush),
            Step(partial(self.create, "second")),
            *(Step(partial(self.both, b"k%04d" % i, b"b %d" % i), {b"k%04d" % i: b"b %d" % i}) for i in range(10, 30)),
            Step(partial(self.db.drop_keyspace, "second")),
            Step(partial(self.both, b"last", b"1"), {b"last": b"1"}),
        ]

    def create(self, name: str) -> None:
        self.db.keyspace(name, bits_per_key=12)

    def both(self, key: bytes, value: bytes) -> None:
        with self.db.write_batch() as batch:
            batch.put(key, value)
            for name in self.db.keyspaces():
                batch.put(key, value, keyspace=self.db.keyspace(name))

    def check_rest(self) -> None:
        """What a keyspace holds of a batch, the database holds too."""
        for name in self.db.keyspaces():
            space = self.db.keyspace(name)
            for key, value in space.items():
                self.expect(f"{name} has another {key!r}", self.db.get(key), value)
                self.expect(f"a get in {name} differs", space.get(key), value)


SCENARIOS: dict[str, type[Scenario]] = {
    "open": Open,
    "put": Put,
    "put, written log": PutToWrittenLog,
    "batch": Batch,
    "rotation": Rotation,
    "flush": Flush,
    "flush into a new manifest": FlushIntoNewManifest,
    "compaction": Compaction,
    "compaction, zstd": ZstdCompaction,
    "filter rebuild": FilterRebuild,
    "ingest": Ingest,
    "checkpoint": Checkpoint,
    "reads": Reads,
    "reads, zstd": ZstdReads,
    "columns": Columns,
    "read-only": ReadOnly,
    "close": Close,
    "expiry": Expiry,
    "first expiry": FirstExpiry,
    "transactions": Transactions,
    "keyspaces": Keyspaces,
}


def differences(db: lsmkv.DB, states: list[Model]) -> list[str]:
    """How what the database holds differs from the nearest of `states`."""
    found = dict(db.items())
    wrong = [key for key, value in found.items() if db.get(key) != value]
    problems = [f"a get and a scan differ for {len(wrong)} keys, the first is {wrong[0]!r}"] if wrong else []
    if found not in states:
        keys = min((sorted(k for k in found.keys() | s.keys() if found.get(k) != s.get(k)) for s in states), key=len)
        problems.append(f"{len(keys)} keys differ, the first is {keys[0]!r}: {found.get(keys[0])!r}")
    return problems


def write_more(db: lsmkv.DB, states: list[Model]) -> list[Model]:
    """What may be there after some more writes; a database that turned read-only refuses them all, and leaves what is
    there to the next open.
    """
    later = {b"k%04d" % i: b"later" for i in range(0, 500, 7)}
    live = dict(db.items())
    try:
        for key, value in later.items():
            db.put(key, value)
        db.flush()
    except lsmkv.ReadOnlyError:
        return states
    return [{**live, **later}]


def fail_allocation(folder: str, scenario: str, plane: str, nth: int, sticky: bool = False) -> dict[str, Any]:
    """Runs the scenario while its nth allocation fails; compares what is there, live and after a reopen."""
    faulthandler.dump_traceback_later(HANG)  # where, should it hang
    ended: list[str] = []
    threading.excepthook = lambda args: ended.append(f"{args.thread and args.thread.name}: {args.exc_value!r}")
    trial = SCENARIOS[scenario](Path(folder))
    trial.setup()
    control = CONTROLS[plane]()
    raised = None
    control.arm(nth, sticky)
    try:
        trial.act()
    except BaseException as error:
        control.disarm()  # first: nothing else can be done without memory
        raised = error
    control.disarm()
    said = {
        "raised": raised and repr(raised),
        "hits": control.hits(),
        "calls": control.calls(),
        "place": control.place(),
    }
    problems = examine(trial, raised is not None)
    if not isinstance(raised, MemoryError | lsmkv.Error | None):
        problems.append(f"raised {raised!r}")
    faulthandler.cancel_dump_traceback_later()
    return {**said, "problems": problems + [f"a thread ended: {thread}" for thread in ended]}


def examine(trial: Scenario, raised: bool) -> list[str]:
    """Compares what is there with what was acknowledged: live, after more writes, and reopened."""
    states = trial.states(raised)
    problems = []
    if trial.db is not None:
        if not trial.db.closed and not isinstance(trial, Close):  # a close that failed is tried again
            problems += [f"live: {problem}" for problem in differences(trial.db, states)]
            trial.check_rest()
            states = write_more(trial.db, states)
            problems += [f"after more writes: {problem}" for problem in differences(trial.db, states)]
        trial.db.close()
    try:
        with lsmkv.open(trial.path) as db:
            problems += [f"reopened: {problem}" for problem in differences(db, states)]
            db.put(b"k", b"v")
    except lsmkv.Error as error:
        problems.append(f"the reopen failed: {error!r}")
    return problems + trial.wrong

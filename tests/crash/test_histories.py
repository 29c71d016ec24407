"""Concurrent histories are linearizable, with flushes, compactions, failing calls and reopens among them."""

from __future__ import annotations

import time

import pytest
from soak import SOAK, figure, shards, share

from .histories import World, run
from .history_operations import MAINTENANCE, OPERATIONS
from .linearizability import check_rounds, describe

SHARDS = shards(100)  # a few minutes each, so an interrupted soak repeats little
HISTORIES = share(6, 1000, SHARDS)
SECONDS = 10 if SOAK else 0.5


@pytest.mark.timeout(0)
@pytest.mark.parametrize("shard", SHARDS)
def test_concurrent_histories_are_linearizable(lab, folder, shard):
    for number in range(HISTORIES):
        seed = f"history/{shard}/{number}"
        said = run(lab, folder / str(number), seed, SECONDS)
        assert said["problems"] == [], f"seed {seed}\n" + "\n".join(said["problems"])
        counts = {
            "rounds": said["rounds"],
            "operations": said["operations"],
            "undecided rounds": len(said["undecided"]),
        }
        kinds = {
            "faults": "faults",
            "calls that raised": "raised",
            "reopens": "reopened",
            "compactions": "compact_range",
        }
        counts |= {what: said["counts"].get(name, 0) for what, name in kinds.items()}
        figure(f"concurrent histories of {SECONDS} s", "all linearizable", histories=1, **counts)


# Planted faults ----------------------------------------------------------------------------------------------


class Wrapped:
    def __init__(self, db):
        self._db = db

    def __getattr__(self, name):
        return getattr(self._db, name)


class Stale(Wrapped):
    """Answers every third get from a state that is a little old."""

    def __init__(self, db):
        super().__init__(db)
        self._gets, self._old = 0, db.snapshot()

    def get(self, key):
        self._gets += 1
        if self._gets % 50 == 0:
            self._old = self._db.snapshot()
        return (self._old if self._gets % 3 == 0 else self._db).get(key)

    def close(self):
        self._old.close()
        self._db.close()


class Torn(Wrapped):
    """Writes the operations of a batch one by one."""

    def write_batch(self, sync=None):
        return TornBatch(self._db)


class TornBatch:
    def __init__(self, db):
        self._db, self._calls = db, []

    def __getattr__(self, name):
        return lambda *arguments, **options: self._calls.append((name, arguments, options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name, arguments, options in self._calls:
            getattr(options.get("keyspace", self._db), name)(*arguments)
            time.sleep(0.0001)


class Moving(Wrapped):
    """Snapshots that follow the database."""

    def snapshot(self):
        return NotClosed(self._db)


class NotClosed(Wrapped):
    def close(self):
        pass


class LosesUpdates(Wrapped):
    """Updates in two steps."""

    def modify(self, key, function):
        value = function(self._db.get(key))
        time.sleep(0.0001)
        self._db.put(key, value)


class Unchecked(Wrapped):
    """Transactions that commit whatever others have written."""

    def transaction(self):
        return UncheckedTransaction(self._db)


class UncheckedTransaction(Wrapped):
    """Reads in one transaction and writes in another."""

    def __init__(self, db):
        self._reading, self._writing = db.transaction(), db.transaction()

    def __getattr__(self, name):
        return getattr(self._reading if name == "items" else self._writing, name)

    def get(self, key, **options):
        return self._reading.get(key, **options)

    def multi_get(self, keys):
        own = dict(self._writing._own_writes(None)[0])
        return [own.get(key) for key in keys]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._reading.rollback()
        self._writing.__exit__(*exc)


@pytest.mark.parametrize("kind", [Stale, Torn, Moving, LosesUpdates, Unchecked])
def test_a_history_of_a_wrong_database_is_rejected(folder, kind):
    class WrongWorld(World):
        def _open(self):
            super()._open()
            self.db = kind(self.db)

    without = ["checkpoint", "refresh", "compact_range", "read_both", "read_in_transaction"]
    for number in range(40):  # a busy machine runs few operations in a second
        directory = folder / str(number)
        (directory / "db").mkdir(parents=True)
        world = WrongWorld(directory, f"wrong {number}", None, without=without)
        world.run(0.3)
        assert world.problems == []
        problem = next((problem for problem in check_rounds(world.rounds) if problem.verdict.rejected), None)
        if problem is not None:
            break
    assert problem is not None
    assert len(describe(problem).splitlines()) < 120


def test_every_kind_of_operation_runs(folder):
    missing = (set(OPERATIONS) | set(MAINTENANCE)) - {"read_snapshot", "release_snapshot"}
    for number in range(40):  # a busy machine runs few in a second
        directory = folder / str(number)
        (directory / "db").mkdir(parents=True)
        world = World(directory, f"kinds {number}", None)
        world.run(1.5)
        assert world.problems == [] and list(check_rounds(world.rounds)) == []
        missing -= set(world.counts)
        if not missing:
            break
    assert missing == set()

"""Concurrent histories are linearizable, with flushes, compactions, failing calls and reopens among them."""

from __future__ import annotations

import time

import pytest
from soak import SOAK, figure, shards, share

from .histories import World, run
from .history_operations import MAINTENANCE, OPERATIONS
from .linearizability import check_rounds, describe

SHARDS = shards(100)  # a few minutes each, so an interrupted soak repeats little
HISTORIES = share(10, 1000, SHARDS)
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
        return lambda *arguments: self._calls.append((name, arguments))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name, arguments in self._calls:
            getattr(self._db, name)(*arguments)
            time.sleep(0.0001)


class Moving(Wrapped):
    """Snapshots that follow the database."""

    def snapshot(self):
        return NotClosed(self._db)


class NotClosed(Wrapped):
    def close(self):
        pass


@pytest.mark.parametrize("kind", [Stale, Torn, Moving])
def test_a_history_of_a_wrong_database_is_rejected(folder, kind):
    class WrongWorld(World):
        def _open(self):
            super()._open()
            self.db = kind(self.db)

    (folder / "db").mkdir()
    world = WrongWorld(folder, "wrong", None, without=["checkpoint", "refresh", "compact_range"])
    world.run(0.3)
    assert world.problems == []
    problem = next(problem for problem in check_rounds(world.rounds) if problem.verdict.rejected)
    assert len(describe(problem).splitlines()) < 60


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

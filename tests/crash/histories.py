"""Concurrent operations on one database, recorded and checked for linearizability.

Several threads run the operations of `history_operations` in rounds; other threads flush, compact and change options
meanwhile; I/O calls fail; the database is reopened. `linearizability` looks for an order that explains every answer.
Each thread's operations depend on the seed alone, so a seed repeats the history as far as the threads' timing allows:

    python -m crash.histories --seed 7 --seconds 10     (in tests/)
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lsmkv

from .history_operations import KEYS, MAINTENANCE, OPERATIONS, SLOW, seen
from .history_transactions import SIDE, seen_in_side
from .iofault import DISK_FAULTS, Action, Control
from .linearizability import Op, Round, check_rounds, describe
from .random_options import draw

MAINTAINERS = 2
MOST_OPS = 40  # of one thread in one round
# Seconds after which another thread may take the GIL. The shortest put a switch into almost every call.
SWITCH_INTERVALS = [1e-6, 1e-6, 1e-5, 1e-4, 5e-3]
# The rounds of operations that raised are searched together, so they should not get too many.
MOST_RAISED = 10
# Reduced and shown; the rest would only take time.
MOST_PROBLEMS = 3


class Worker:
    """A thread that takes part in every round."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.rng = random.Random()
        self.snapshots: list[tuple[Any, Op]] = []
        self._tags: Iterator[int] = iter(())
        self.thread = threading.Thread(target=self._run, name=f"history-{number}", daemon=True)

    @property
    def db(self) -> Any:
        return self.world.db

    def _run(self) -> None:
        while True:
            self.world.barrier.wait()
            if self.world.over:
                return
            self._round()
            self.world.barrier.wait()

    def _round(self) -> None:
        world = self.world
        self.rng = rng = random.Random(f"{world.seed}/{world.number}/{self.number}")
        first = 1 + (world.number * len(world.workers) + self.number) * MOST_OPS
        self._tags = iter(range(first, first + MOST_OPS))
        names, weights = zip(*world.weights.items(), strict=True)
        for name in rng.choices(names, weights, k=rng.randint(1, MOST_OPS)):
            with world.noted(name):
                OPERATIONS[name][1](self)

    @contextmanager
    def call(self, name: str, writes: dict[bytes, int] | None = None) -> Iterator[Op]:
        """Records the call made inside. One that raised has no response."""
        world = self.world
        op = Op(name, self.number, next(world.clock), None, [], {} if writes is None else writes)
        world.ops.append(op)
        try:
            yield op
        except lsmkv.Error as error:
            world.raised(name, error)
        else:
            op.responded = next(world.clock)
            world.counts[name] += 1

    # What operations draw

    def key(self) -> bytes:
        return KEYS[self.rng.randrange(self.world.keys)]

    def keys(self) -> list[bytes]:
        return self.rng.sample(KEYS, self.rng.randint(2, 6))

    def span(self) -> list[bytes]:
        """Adjacent keys."""
        first = self.rng.randrange(len(KEYS))
        return KEYS[first : first + self.rng.randint(1, 8)]

    def tag(self) -> int:
        return next(self._tags)

    def sync(self) -> bool:
        return self.world.can_sync and self.rng.random() < 0.1

    def scratch(self, kind: str) -> Path:
        return self.world.folder / f"{kind}-{self.number}"

    def slowly(self, entries: Iterable[Any]) -> Iterator[Any]:
        for entry in entries:
            if self.rng.random() < 0.2:
                time.sleep(0)
            yield entry


class World:
    """One database, its threads, and the record of what they did."""

    def __init__(self, folder: Path, seed: int | str, faults: Control | None, without: Iterable[str] = ()) -> None:
        self.folder, self.seed, self.faults, self.without = folder, seed, faults, set(without)
        self.rng = random.Random(seed)
        self.clock = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.rounds: list[Round] = []
        self.ops: list[Op] = []
        self.number = 0
        self.keys = len(KEYS)
        self.over = False
        self._was_hit = False
        self.weights: dict[str, float] = {}
        self.reader: Any = None
        self.reader_lock = threading.Lock()
        wal = self.rng.choice([None, *["mmap", "write"] * 4])
        self.can_sync = wal is not None
        if wal is None:
            # What is not flushed is gone after a failure, and no reader sees it.
            self.faults = None
        self._options = {"wal": [wal]}
        self.db: Any = None
        self.side: Any = None  # a second keyspace
        self._open()
        if self.can_sync:
            self.reader = lsmkv.open(self._path, "r")
        self.workers = [Worker(self, number) for number in range(self.rng.randint(2, 7))]
        self.barrier = threading.Barrier(len(self.workers) + 1)
        self._maintainer_locks = [threading.Lock() for _ in range(MAINTAINERS)]
        self._maintainers = [
            threading.Thread(target=self._maintain, args=(number,), name=f"maintenance-{number}", daemon=True)
            for number in range(MAINTAINERS)
        ]

    @property
    def _path(self) -> Path:
        return self.folder / "db"

    def _open(self) -> None:
        db = lsmkv.open(self._path, **draw(self.rng, self.rng.random() < 0.25, **self._options))
        self.db, self.side = db, db.keyspace(SIDE)

    # Errors

    @contextmanager
    def noted(self, name: str) -> Iterator[None]:
        """An exception from here is a problem of the history, unless calls fail."""
        try:
            yield
        except lsmkv.Error as error:
            self.raised(name, error)
        except BaseException:
            self.problems.append(f"{name}: {traceback.format_exc()}")

    def raised(self, name: str, error: lsmkv.Error) -> None:
        """Only calls that fail may make the database raise, and a reader that cannot keep up."""
        expected = name == "refresh" and getattr(error, "errno", None) == errno.EAGAIN
        if not expected and not self._hit():
            self.problems.append(f"{name} raised without a fault:\n{''.join(traceback.format_exception(error))}")
        self.counts["raised"] += 1

    def _hit(self) -> bool:
        """Whether a call failed since the last open."""
        self._was_hit = self._was_hit or (self.faults is not None and self.faults.hits() > 0)
        return self._was_hit

    # Rounds

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        for thread in [*(worker.thread for worker in self.workers), *self._maintainers]:
            thread.start()
        while time.monotonic() - began < seconds and not self.problems:
            self._round()
            if self.faults:
                self._fail_something()
            if self.rng.random() < 0.005:
                self._reopen()
        self._end()

    def _round(self) -> None:
        self.number += 1
        rng = random.Random(f"{self.seed}/{self.number}")
        self.ops = []
        self.keys = rng.choice([1, 3, 8, len(KEYS)])
        # Each round has its own mixture, so that rare kinds meet each other too.
        left_out = self.without | (SLOW if rng.random() < 0.9 else set())
        self.weights = {
            name: weight * rng.choice([0.1, 1, 1, 5])
            for name, (weight, _) in OPERATIONS.items()
            if name not in left_out
        }
        sys.setswitchinterval(rng.choice(SWITCH_INTERVALS))
        self.barrier.wait()
        self.barrier.wait()
        self._finish_round()

    def _finish_round(self, settled: bool = False) -> None:
        end = Op("end", -1, next(self.clock))
        try:
            end.reads.extend(self._whole())
        except lsmkv.Error as error:
            self.raised("end", error)
            self.faults.disarm()
            end.reads.extend(self._whole())
        end.responded = next(self.clock)
        self.rounds.append(Round([*self.ops, end], settled))

    def _whole(self) -> list[tuple[bytes, int]]:
        return [*seen(self.db.items()), *seen_in_side(self.side.items())]

    def _fail_something(self) -> None:
        assert self.faults
        raised = sum(op.responded is None for op in self.ops)
        if self._hit():
            if raised > MOST_RAISED or self.rng.random() < 0.4:
                self._reopen()
        elif self.rng.random() < 0.02:
            ops, error = self.rng.choice(DISK_FAULTS)
            nth = self.rng.choice([1, 3, 10, 30])
            self.faults.arm(ops, nth, Action.FAIL, error, sticky=self.rng.random() < 0.3)

    def _reopen(self) -> None:
        with ExitStack() as stack:
            for lock in self._maintainer_locks:
                stack.enter_context(lock)
            self._release_snapshots()
            if self.faults:
                self.counts["faults"] += self._hit()
                self.faults.disarm()
            self.db.close()
            self._open()
            self._was_hit = False
        self.counts["reopened"] += 1
        self.ops = []
        self._finish_round(settled=True)

    def _release_snapshots(self) -> None:
        for worker in self.workers:
            for taken, _ in worker.snapshots:
                taken.close()
            worker.snapshots.clear()

    def _end(self) -> None:
        self.over = True
        self.barrier.wait()
        for thread in [*(worker.thread for worker in self.workers), *self._maintainers]:
            thread.join()
        sys.setswitchinterval(5e-3)
        self._reopen()
        self.db.close()
        if self.reader is not None:
            self.reader.close()
        findings = lsmkv.verify(self._path).findings
        if findings:
            self.problems.append(f"verify: {findings}")

    def _maintain(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/maintenance/{number}")
        weighted = {name: weight for name, (weight, _) in MAINTENANCE.items() if name not in self.without}
        names, weights = zip(*weighted.items(), strict=True)
        while not self.over:
            name = rng.choices(names, weights)[0]
            with self._maintainer_locks[number], self.noted(name):
                MAINTENANCE[name][1](self, rng)
                self.counts[name] += 1
            time.sleep(rng.random() * 0.02)


def history(folder: str, seed: int | str, seconds: float, hang: float, without: list[str]) -> dict[str, Any]:
    """A job of the lab: one history and its check. After `hang` seconds it shows where every thread stands."""
    faulthandler.dump_traceback_later(hang)
    Path(folder).mkdir(parents=True)
    path = Path(folder) / "db"
    path.mkdir()
    control = Control()
    control.root(str(path))
    world = World(Path(folder), seed, control if random.Random(seed).random() < 0.6 else None, without)
    world.run(seconds)
    began = time.monotonic()
    problems = list(itertools.islice(check_rounds(world.rounds), MOST_PROBLEMS))
    faulthandler.cancel_dump_traceback_later()
    return {
        "problems": world.problems + [describe(problem) for problem in problems if problem.verdict.decided],
        "undecided": [describe(problem) for problem in problems if not problem.verdict.decided],
        "rounds": len(world.rounds),
        "operations": sum(len(this.ops) for this in world.rounds),
        "counts": dict(world.counts),
        "seconds of the check": time.monotonic() - began,
    }


def run(lab: Any, folder: Path, seed: int | str, seconds: float, without: Iterable[str] = ()) -> dict[str, Any]:
    """One history in a process of its own, `without` some kinds of operations."""
    hang = 10 * seconds + 120
    call = {"folder": str(folder), "seed": seed, "seconds": seconds, "hang": hang - 30, "without": list(without)}
    outcome = lab.run("history", timeout=hang, **call)
    shutil.rmtree(folder)
    if not outcome.ok:
        return {"problems": [outcome.words()], "undecided": [], "rounds": 0, "operations": 0, "counts": {}}
    return outcome.value


def main() -> None:
    from .lab import Lab

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--count", type=int, default=1, help="histories, with seeds SEED, SEED/1, SEED/2, ...")
    parser.add_argument("--without", action="append", default=[], help="a kind of operation to leave out")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
    bad = 0
    try:
        with Lab() as lab:
            for number in range(given.count):
                seed = f"{given.seed}/{number}" if number else given.seed
                said = run(lab, folder / str(number), seed, given.seconds, given.without)
                print(f"seed {seed}: {said['operations']} operations in {said['rounds']} rounds, {said['counts']}")
                for problem in said["problems"] + said["undecided"]:
                    print(problem)
                bad += bool(said["problems"])
    finally:
        shutil.rmtree(folder)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

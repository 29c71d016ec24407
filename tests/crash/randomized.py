"""Everything at random on one database: options, operations, faults, kills and reopens drawn from one seed.

A stream is a row of sessions, each in a process of its own. A session opens the database with options of its own, runs
the operations of `metamorphic` and some more, compares every answer with a model, and ends by a close, an exit or a
kill. An oracle outside of the database says what the next session must find. A seed repeats the stream, except for
kills at a time instead of a call:

    python -m crash.randomized --seed 7 --sessions 20     (in tests/)
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import reprlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sortedcontainers import SortedDict

import lsmkv
from lsmkv.options import MAX_LEVELS
from lsmkv.recovery import replay

from . import oracle
from .expiries import TAG, expire, keep
from .iofault import CHANGES, DISK_FAULTS, Action, Control
from .load import PIECES
from .metamorphic import Generator, Model, Operation, Store
from .random_options import draw, draw_live
from .spread import open_spread
from .writing import arm, contents

LENGTHS = [0, 3, 30, 150, 150, 400, 400, 1000]
LAST = b"\xff" * 400  # above all keys
# Operations until the call that is armed to fail is given up, or its damage is looked at.
WAIT_LIMIT = 60


# What is done ------------------------------------------------------------------------------------------------


class Operations(Generator):
    weights = Generator.weights | {
        "put": 45, "ingest": 0.2, "clear": 0.03, "set_options": 0.5, "reader": 0.3, "fail": 0.3,
        "reopen": 0.3, "compact": 0.3, "checkpoint": 0.1,
        # The clock of a session ends with it, so no entry may depend on it.
        "put_for": 0, "wait": 0, "touch": 0, "ttl": 0, "keep": 6, "expire": 3, "transact": 2,
        # The oracle knows values that are written, not what an update makes of them.
        "append": 0,
    }  # fmt: skip

    # Where keyspaces are spread over: an ingest goes into one of them, and an iterator over all has no steps back.
    spread_weights = weights | {"ingest": 0, "walk": 0}

    def __init__(self, seed: int | str, known: Iterable[bytes], keyspaces: int) -> None:
        super().__init__(seed, known)
        if keyspaces:
            self.weights = self.spread_weights

    def value(self) -> bytes:
        # Sessions count from one each; their values must differ all the same.
        return super().value() + b"%x" % self._rng.getrandbits(40)

    def _keep(self):
        return self.key(), TAG + self.value()

    def _expire(self):
        return self.key(), self.value()

    def _expiring_edit(self):
        return ("keep", *self._keep()) if self._rng.random() < 0.6 else ("expire", *self._expire())

    def _ingest(self):
        names = self._rng.choices(["put", "keep", "expire", "delete"], [5, 2, 1, 2], k=self._rng.randrange(1, 40))
        keys = sorted({self.key() for _ in names})
        return ([self._edit_of(name, key) for name, key in zip(names, keys, strict=False)],)

    def _edit_of(self, name, key):
        return (name, key) if name == "delete" else (name, key, (TAG if name == "keep" else b"") + self.value())

    def _set_options(self):
        return (self._rng.getrandbits(32),)

    def _fail(self):
        ops, error = self._rng.choice(DISK_FAULTS)
        return (ops, self._rng.choice([1, 2, 5, 20]), error, self._rng.random() < 0.3)

    def _clear(self):
        return ()

    _reader = _clear


class Expected(Model):
    def __init__(self, data: Mapping[bytes, bytes], log: bool) -> None:
        super().__init__()
        self.data.update(data)
        self._log = log

    def keep(self, key, value):
        self.put(key, value)

    def expire(self, key, value):
        self.delete(key)

    def ingest(self, edits):
        self.batch(edits)

    def clear(self):
        self.data.clear()

    def set_options(self, seed):
        pass

    def reader(self):
        # Without a log a reader sees only what was flushed.
        return list(self.data.items()) if self._log else None


class Database(Store):
    def __init__(self, path: Path, rng: random.Random, log: bool, deep: bool, keyspaces: int) -> None:
        self._rng, self._log, self._deep, self._keyspaces = rng, log, deep, keyspaces
        self._wal = ["mmap", "write"] if log else [None]
        self._reader: Any = None
        super().__init__(path, self._draw())

    def open(self, path: Path, flag: str = "c", **options: Any) -> Any:
        return open_spread(path, flag, keyspaces=self._keyspaces, **options)

    def _draw(self) -> dict[str, Any]:
        return draw(self._rng, self._deep, wal=self._wal)

    def keep(self, key, value):
        keep(self.db, key, value)

    def expire(self, key, value):
        expire(self.db, key, value)

    def write_edits(self, target, edits):
        for name, *arguments in edits:
            if name in ("keep", "expire"):
                (keep if name == "keep" else expire)(target, *arguments)
            else:
                getattr(target, name)(*arguments)

    def ingest(self, edits):
        path = self.path.with_name("ingested.sst")
        path.unlink(missing_ok=True)
        with lsmkv.SSTWriter(path) as table:
            self.write_edits(table, edits)
        self.db.ingest([path])

    def clear(self):
        self.db.clear()

    def checkpoint(self):
        # A process that was killed may have left its copy.
        shutil.rmtree(self.path.with_name(self.path.name + ".checkpoint"), ignore_errors=True)
        return super().checkpoint()

    def set_options(self, seed):
        self.db.set_options(**draw_live(random.Random(seed), self._log))

    def reader(self):
        if not self._log:
            return None
        while True:
            try:
                if self._reader is None:
                    self._reader = self.open(self.path, "r")
                self._reader.refresh()
                return list(self._reader.items())
            except lsmkv.Error as error:
                # The background may stay ahead of it for a while.
                if getattr(error, "errno", None) != errno.EAGAIN:
                    raise

    def reopen(self):
        self.options = self._draw()
        super().reopen()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self.db.close()


EDITS = {"put": b"p", "delete": b"d", "delete_range": b"r", "keep": b"t", "expire": b"x"}


def edits_of(operation: Operation) -> oracle.Batch | None:
    """The writes of an operation as the oracle records them, None for a read."""
    match operation:
        case (name, *arguments) if name in EDITS:
            return [(EDITS[name], *arguments)]
        case ("batch" | "ingest", edits) | ("transact", _, edits):
            return [(EDITS[name], *arguments) for name, *arguments in edits]
        case ("clear",):
            return [(b"r", b"", LAST)]
    return None


# A session ---------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """The database, the model and the oracle in step. After a call failed, the model waits until the database has been
    read as a whole: what raised may have happened or not.
    """

    folder: Path
    book_path: Path
    control: Control
    rng: random.Random
    log: bool
    deep: bool
    keyspaces: int = 0
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.model = Expected(oracle.settled_state(self.book_path), self.log)
        self.book = oracle.Writer(self.book_path)
        self.store = Database(self.folder, self.rng, self.log, self.deep, self.keyspaces)
        self._hit = False  # a call failed since the last open
        self._uncertain = False
        self._armed_for = -1  # operations until the armed call is given up; below 0 none is armed

    def run(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._armed_for -= 1
            if self._armed_for == 0:
                self._look()
            self._do(operation)
            self.counts[operation[0]] += 1
            if self.problems:
                return
        self._look()

    def _do(self, operation: Operation) -> None:
        edits = edits_of(operation)
        if operation[0] == "fail":
            self._fail(*operation[1:])
        elif operation[0] == "reopen":
            self._reopen()
        elif edits is not None:
            self._write(operation, edits)
        elif not self._uncertain:
            self._read(operation)

    def _write(self, operation: Operation, edits: oracle.Batch) -> None:
        # Without a log only a flush makes a write last; the oracle knows such a write as a synced one.
        flush = not self.log and self.rng.random() < 0.02
        number = self.book.pending(edits, flush)
        try:
            got = self.store.do(operation)
            if flush:
                self.store.flush()
        except lsmkv.Error as error:
            self.book.failed(number)
            self._raised(operation, error)
        else:
            self.book.acked(number)
            self._compare(operation, got, self.model.do(operation))

    def _read(self, operation: Operation) -> None:
        try:
            got = self.store.do(operation)
        except lsmkv.Error as error:
            self._raised(operation, error)
        else:
            self._compare(operation, got, self.model.do(operation))

    def _compare(self, operation: Operation, got: Any, wanted: Any) -> None:
        if got != wanted and not self._uncertain:
            what = f"{operation!r}: {reprlib.repr(got)}, not {reprlib.repr(wanted)}, with {self.store.options}"
            self.problems.append(what)

    # Failures

    kills = False  # a call is armed to kill

    def _fail(self, ops: int, nth: int, error: int, sticky: bool) -> None:
        """Arms a call to fail; not in a session without a log, whose losses no rule describes."""
        if self.log and self._armed_for < 0 and not self.kills:
            self.control.arm(ops, nth, Action.FAIL, error, sticky)
            self._armed_for = WAIT_LIMIT

    def _raised(self, operation: Operation, error: lsmkv.Error) -> None:
        self._hit = self._hit or (not self.kills and self.control.hits() > 0)
        self.counts["raised"] += 1
        self._uncertain = True
        if not self._hit:
            self.problems.append(f"{operation!r} raised without a fault: {error!r}")

    def _look(self) -> None:
        """Calls succeed again; the model takes over what the database holds, if the oracle allows it."""
        if self.kills or not (self._hit or self._uncertain or self._armed_for >= 0):
            return
        self._hit = self._hit or self.control.hits() > 0
        self.counts["faults"] += self._hit
        self.control.disarm()
        self._armed_for = -1
        for slot in range(3):
            self.store.release(slot)
            self.model.release(slot)
        self._adopt()
        if self._hit and self.rng.random() < 0.7:
            self._reopen()

    def _adopt(self) -> dict[bytes, bytes]:
        found = contents(self.store.db)
        self.problems += oracle.settle_failed(oracle.read(self.book_path), found).problems
        self.model.data = SortedDict(found)
        self._uncertain = False
        return found

    def _reopen(self) -> None:
        """Also with a call armed to fail, until an open has failed."""
        try:
            self.store.reopen()
        except lsmkv.Error as error:
            self._raised(("reopen",), error)
            self.control.disarm()
            self.store.db = self.store.open(self.folder, **self.store.options)
        self.model.reopen()
        if self._uncertain or self._hit:
            self.control.disarm()
            self._armed_for = -1
            found = self._adopt()
            self.book.close()
            oracle.restart(self.book_path, found)
            self.book = oracle.Writer(self.book_path)
            self._hit = False


def session(
    folder: str, book: str, seed: str, count: int, log: bool, deep: bool, kill: dict[str, Any] | None, close: bool,
    slack: int | None, known: list[str], keyspaces: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A job of the lab: `count` operations, then a close or just the end. `kill` arms a call to kill the process."""
    control = arm(folder, kill)
    replay.SLACK = replay.SLACK if slack is None else slack
    this = Session(Path(folder), Path(book), control, random.Random(seed), log, deep, keyspaces)
    this.kills = kill is not None
    this.run(Operations(seed, map(bytes.fromhex, known), keyspaces).operations(count))
    levels = sum(map(bool, this.store.db._versions.default.current.levels))
    if close:
        this.store.close()
        this.problems += [f"verify: {finding}" for finding in lsmkv.verify(folder).findings]
    return {"problems": this.problems, "counts": dict(this.counts), "levels": levels}


def settle_session(
    folder: str, book: str, seed: str, log: bool, deep: bool, slack: int | None, keyspaces: int = 0
) -> dict[str, Any]:
    """A job of the lab: opens the database with other options, compares it with the oracle, and lets both go on."""
    arm(folder, None)
    replay.SLACK = replay.SLACK if slack is None else slack
    rng = random.Random(f"{seed}/settle")
    entries = oracle.read(Path(book))
    judge = oracle.settle_failed if any(entry.status == oracle.FAILED for entry in entries) else oracle.settle
    with open_spread(folder, keyspaces=keyspaces, **draw(rng, deep, wal=["mmap", "write", None])) as db:
        found = contents(db)
    problems = (judge if log else oracle.settle_prefix)(entries, found).problems
    oracle.restart(Path(book), found)
    return {"problems": problems, "entries": len(found)}


def repair_copy(folder: str, book: str, seed: str, keyspaces: int = 0) -> list[str]:
    """A job of the lab: what a repair makes of a copy, with and without CURRENT, is what the database holds.

    Without CURRENT a keyspace that has no table loses its name.
    """
    arm(folder, None)
    wanted = oracle.settled_state(Path(book))
    copy = Path(folder).with_name("repaired")
    shutil.copytree(folder, copy)
    try:
        if random.Random(seed).random() < 0.5 and not keyspaces:
            os.unlink(copy / "CURRENT")
        problems = [f"repair: {loss}" for loss in lsmkv.repair(copy).losses]
        with open_spread(copy, keyspaces=keyspaces) as db:
            found = contents(db)
        if found != wanted:
            problems.append(f"repair: {oracle.difference(found, wanted)}")
        return problems
    finally:
        shutil.rmtree(copy)


# A stream ----------------------------------------------------------------------------------------------------


class Failed(AssertionError):
    pass


class Stream:
    """The sessions of one seed, from an empty database or from one that holds `start` already. Its keys are spread over
    `keyspaces` besides the default one.
    """

    def __init__(
        self, lab: Any, folder: Path, seed: int | str, start: Mapping[bytes, bytes] | None = None, keyspaces: int = 0
    ) -> None:
        self._lab, self._folder, self._seed = lab, folder, seed
        self._known = [key.hex() for key in start or ()]
        self._place: dict[str, Any] = {
            "folder": str(folder / "db"),
            "book": str(folder / "book"),
            "keyspaces": keyspaces,
        }
        # Half of the streams keep a tree of the smallest files, which grows over many sessions.
        self._deep = random.Random(seed).random() < 0.5
        self.counts = dict.fromkeys(["sessions", "on seven levels", "operations", "faults", "kills", "repairs"], 0)
        folder.mkdir(parents=True, exist_ok=True)
        oracle.restart(folder / "book", start or {})

    def run(self, sessions: int) -> None:
        for number in range(sessions):
            seed = f"{self._seed}/{number}"
            rng = random.Random(seed)
            call = {
                "seed": seed, "log": rng.random() < 0.85, "deep": self._deep, "slack": rng.choice([None, PIECES]),
            }  # fmt: skip
            self._session(rng, call)
            self._job("settle_session", **call)
            if rng.random() < 0.1:
                self._job("repair_copy", seed=seed)
                self.counts["repairs"] += 1
            self.counts["sessions"] += 1

    def _session(self, rng: random.Random, call: dict[str, Any]) -> None:
        kill, kill_after = None, None
        end = rng.choice(["close", "close", "exit", "kill at a call", "kill at a time"])
        if end == "kill at a call":
            action = rng.choice([Action.KILL, Action.KILL_AFTER])
            kill = {"ops": CHANGES, "nth": rng.randint(1, rng.choice([30, 300, 1500])), "action": int(action)}
        elif end == "kill at a time":
            kill_after = rng.random() ** 2 * 0.5
        call = {**call, "count": rng.choice(LENGTHS), "known": self._known, "kill": kill, "close": end == "close"}
        said = self._job("session", kill_after, **call)
        if said is None:
            self.counts["kills"] += 1
        else:
            self.counts["on seven levels"] += said["levels"] == MAX_LEVELS
            self.counts["operations"] += sum(said["counts"].values())
            self.counts["faults"] += said["counts"].get("faults", 0)

    def _job(self, job: str, kill_after: float | None = None, **arguments: Any) -> Any:
        outcome = self._lab.run(job, kill_after=kill_after, timeout=300, **self._place, **arguments)
        if outcome.signal == 9 and not outcome.timed_out and job == "session":
            return None
        problems = [outcome.words()] if not outcome.ok else outcome.value
        if isinstance(problems, dict):
            problems = problems["problems"]
        if problems:
            raise Failed(f"{job} {arguments}:\n" + "\n".join(problems[:5]))
        return outcome.value


def main() -> None:
    from .lab import Lab

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--keyspaces", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
    with Lab() as lab:
        stream = Stream(lab, folder / "stream", given.seed, keyspaces=given.keyspaces)
        try:
            stream.run(given.sessions)
        except Failed as error:
            print(error)
            sys.exit(f"what it left is in {folder}")
        print(stream.counts)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

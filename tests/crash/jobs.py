"""What the children of the lab do. Every function here runs in a process of its own, under iofault."""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lsmkv

from . import damage, ext4, oracle, trace
from . import replay as crash_states
from .iofault import SYNCS, Action, Control, Op
from .load import Load, write


def arm(folder: str, fault: dict[str, Any] | None) -> Control:
    os.makedirs(folder, exist_ok=True)
    control = Control()
    control.root(folder)
    if fault:
        control.arm(**{**fault, "action": Action(fault["action"])})
    return control


def _writer(db: Any, path: str, seed: str, count: int, errors: list[BaseException]) -> None:
    book = oracle.Writer(path)
    load = Load(seed, Path(path).name.encode() + b":")
    try:
        for _ in range(count):
            batch, sync = load.next()
            number = book.pending(batch, sync)
            write(db, batch, sync)
            book.acked(number)
    except BaseException as error:
        errors.append(error)


def write_until_killed(
    folder: str,
    books: list[str],
    options: dict[str, Any],
    seed: str,
    count: int = 1 << 30,
    fault: dict[str, Any] | None = None,
) -> int:
    """Opens the database and writes from one thread per oracle; returns only if nothing killed it."""
    arm(folder, fault)
    db = lsmkv.open(folder, **options)
    for path in books:
        oracle.Writer(path).opened()
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=_writer, args=(db, path, f"{seed}/{path}", count, errors)) for path in books
    ]
    rng = random.Random(seed)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(rng.random() / 100)
        roll = rng.random()
        if roll < 0.1:
            db.flush(wait=False)
        elif roll < 0.13:
            db.compact_range(wait=False)
    if errors:
        raise errors[0]
    db.close()
    return count


def write_until_power_cut(root: str, delay: float, **arguments: Any) -> int:
    """As write_until_killed, on a file system that loses its power after so many seconds."""

    def cut() -> None:
        time.sleep(delay)
        ext4.cut_power(root)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=cut, daemon=True).start()
    return write_until_killed(**arguments)


def open_until_killed(folder: str, options: dict[str, Any], fault: dict[str, Any] | None = None) -> int:
    """Recovers the database; returns how many watched calls that took if nothing killed it."""
    control = arm(folder, fault)
    lsmkv.open(folder, **options)
    return control.calls()


def contents(db: Any) -> dict[bytes, bytes]:
    """All entries, read by a scan each way and by single gets, which must agree."""
    found = dict(db.items())
    backwards = dict(db.items(reverse=True))
    if backwards != found:
        raise AssertionError(f"forward and reverse scans differ: {oracle.difference(found, backwards)}")
    keys = list(found)
    for key in keys[:: max(1, len(keys) // 50)]:
        if db.get(key) != found[key]:
            raise AssertionError(f"get({key!r}) differs from the scan")
    return found


def check(
    folder: str, books: list[str], options: dict[str, Any], judge: str = "settle", flag: str = "c"
) -> dict[str, Any]:
    """Opens the database after a crash and holds it against the oracles, by the named rule."""
    control = Control()
    control.disarm()
    with lsmkv.open(folder, flag, **options) as db:
        found = contents(db)
    problems = []
    for path in books:
        prefix = Path(path).name.encode() + b":"
        mine = {key: value for key, value in found.items() if key.startswith(prefix)}
        finding = getattr(oracle, judge)(oracle.read(Path(path)), mine)
        problems += [f"{Path(path).name}: {problem}" for problem in finding.problems]
        book = oracle.Writer(path)
        for number, there in finding.settled.items():
            book.settled(number, there)
        book.close()
    known = tuple(Path(path).name.encode() + b":" for path in books)
    problems += [f"invented {key!r}" for key in found if not key.startswith(known)]
    return {"problems": problems, "entries": len(found)}


# ---- recorded runs and their crash states --------------------------------------------------------

BEGIN, ACK, SYNCED = b"B", b"A", b"S"  # marks: a batch starts; it returned; everything before is synced


def record(folder: str, trace_path: str, options: dict[str, Any], seed: str, count: int, extra: bool) -> int:
    """Writes `count` batches from one thread with every I/O call and mark in a trace. `extra` adds explicit
    flushes, compactions and syncs, and a reopen half way."""
    control = arm(folder, None)
    control.trace(trace_path)
    load = Load(seed, b"r:", keys=120, sync_every=12)
    rng = random.Random(seed)
    db = lsmkv.open(folder, **options)
    for number in range(count):
        batch, sync = load.next()
        control.mark(BEGIN + oracle.encode(batch))
        write(db, batch, sync)
        control.mark(SYNCED if sync else ACK)
        roll = rng.random() if extra else 1.0
        if roll < 0.02:
            db.flush()
        elif roll < 0.03:
            db.compact_range()
        elif roll < 0.04:
            db.sync()
            control.mark(SYNCED)
        if extra and number == count // 2:
            db.close()
            db = lsmkv.open(folder, **options)
    db.close()
    control.trace(None)
    return count


def replay(
    trace_path: str, folder: str, options: dict[str, Any], seed: str, wanted: int
) -> dict[str, dict[str, int] | list[str]]:
    """Opens about `wanted` crash states of a trace; returns how many of each kind, and what was wrong."""
    records = list(trace.read(Path(trace_path)))
    rng = random.Random(seed)
    chance = min(1.0, wanted / max(1, len(records) * 11))
    judge = PrefixJudge(records)
    disk = crash_states.Disk()
    seen: set[tuple[int, int]] = set()
    tally: dict[str, int] = {}
    problems: list[str] = []
    for number, step in enumerate(records):
        disk.follow(step)
        judge.follow(step)
        if rng.random() >= chance:
            continue
        for crash in crash_states.crashes(disk, rng):
            key = (hash(tuple(sorted(crash.files.items(), key=lambda item: item[0]))), judge.floor(crash))
            if key in seen:
                continue
            seen.add(key)
            tally[crash.kind] = tally.get(crash.kind, 0) + 1
            problem = try_crash(crash, Path(folder) / "state", options, judge)
            if problem:
                problems.append(f"record {number} of {trace_path}, {crash.kind}: {problem}")
                if len(problems) > 20:
                    return {"tally": tally, "problems": problems}
    return {"tally": tally, "problems": problems}


class PrefixJudge:
    """Knows the contents after every number of batches, and which of them a crash state may show."""

    def __init__(self, records: list[trace.Record]) -> None:
        self.begun = self.acked = self.synced = 0
        self._counts: dict[int, list[int]] = {}
        model: dict[bytes, bytes] = {}
        batches = [r.data[1:] for r in records if r.op == Op.MARK and r.data[:1] == BEGIN]
        self._note(model, 0)
        for number, data in enumerate(batches, 1):
            oracle.apply(model, oracle.decode(data))
            self._note(model, number)

    def _note(self, model: dict[bytes, bytes], number: int) -> None:
        self._counts.setdefault(hash(frozenset(model.items())), []).append(number)

    def follow(self, step: trace.Record) -> None:
        if step.op == Op.MARK:
            kind = step.data[:1]
            if kind == BEGIN:
                self.begun += 1
            else:
                self.acked = self.begun
                if kind == SYNCED:
                    self.synced = self.begun

    def floor(self, crash: crash_states.Crash) -> int:
        return self.acked if crash.complete else self.synced

    def problem(self, crash: crash_states.Crash, found: dict[bytes, bytes]) -> str | None:
        counts = self._counts.get(hash(frozenset(found.items())))
        if counts is None:
            return f"{len(found)} entries that are no prefix of the writes"
        low, high = self.floor(crash), self.begun
        if not any(low <= count <= high for count in counts):
            return f"the state after {counts} batches, but it must be one of {low} to {high}"
        return None


def try_crash(
    crash: crash_states.Crash, place: Path, options: dict[str, Any], judge: PrefixJudge
) -> str | None:
    """Opens one crash state, holds it against the judge, writes to it and opens it again."""
    crash_states.write_state(place, crash.files)
    try:
        with lsmkv.open(place, **options) as db:
            found = dict(db.items())
            wrong = judge.problem(crash, found)
            db.put(b"after", b"crash")
        with lsmkv.open(place, **options) as db:
            again = dict(db.items())
        found[b"after"] = b"crash"
        return wrong or (None if again == found else f"second open: {oracle.difference(again, found)}")
    except lsmkv.Error as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place)


damage_sweep = damage.sweep


# ---- failing I/O ---------------------------------------------------------------------------------


def write_with_fault(
    folder: str, book_path: str, options: dict[str, Any], seed: str, count: int, fault: dict[str, Any]
) -> dict[str, Any]:
    """Writes `count` batches while I/O calls fail; a write that raises is noted as failed, the next goes on."""
    control = arm(folder, fault)
    book = oracle.Writer(book_path)
    load = Load(seed, Path(book_path).name.encode() + b":", keys=100, sync_every=5)
    raised: list[str] = []
    try:
        db = lsmkv.open(folder, **options)
    except (lsmkv.Error, OSError) as error:
        return {"opened": False, "raised": [repr(error)], "hits": control.hits(), "calls": control.calls()}
    for number in range(count):
        batch, sync = load.next()
        entry = book.pending(batch, sync)
        try:
            write(db, batch, sync)
            if number % 25 == 24:
                db.flush()
        except lsmkv.Error as error:
            raised.append(repr(error))
            book.failed(entry)
        else:
            book.acked(entry)
    calls, hits = control.calls(), control.hits()
    try:
        db.close()
    except lsmkv.Error as error:
        raised.append(f"close: {error!r}")
    return {"opened": True, "raised": raised, "hits": hits, "calls": calls}


def fsync_failure(
    folder: str, book_path: str, trace_path: str, options: dict[str, Any], nth: int, match: str = ""
) -> dict[str, Any]:
    """Fails one fsync; what the database then says to writes and reads."""
    control = arm(folder, None)
    book = oracle.Writer(book_path)
    load = Load("fsync", Path(book_path).name.encode() + b":", keys=100, sync_every=3)
    control.trace(trace_path)
    control.arm(SYNCS, nth, Action.FAIL, match=match)
    try:
        db = lsmkv.open(folder, **options)
    except (lsmkv.Error, OSError) as error:
        return {"hits": control.hits(), "open": repr(error)}
    raised: list[str] = []
    for number in range(400):
        if number >= 150 and not control.hits():
            break
        batch, sync = load.next()
        entry = book.pending(batch, sync)
        try:
            write(db, batch, sync)
            if number % 20 == 19:
                db.flush()
        except lsmkv.Error as error:
            book.failed(entry)
            raised.append(type(error).__name__)
            if len(raised) == 5:
                break
        else:
            book.acked(entry)
            if raised:
                raised.append("acknowledged")
    hits = control.hits()
    found = len(dict(db.items())) if hits else 0
    db.close()
    control.trace(None)
    return {"hits": hits, "raised": raised, "readable": found}


# ---- threads, forks, descriptors, full disks -----------------------------------------------------


def _hammer(kind: int, db: Any, seed: int, strange: list[str]) -> None:
    """Uses the database until it is closed; anything but ClosedError is strange."""
    rng = random.Random(seed)
    try:
        while True:
            key = b"k%05d" % rng.randrange(3000)
            if kind == 0:
                db.get(key)
            elif kind == 1:
                db.put(key, rng.randbytes(rng.randrange(400)))
            elif kind == 2:
                for _ in db.items(start=key):
                    if rng.random() < 0.01:
                        break
            elif kind == 3:
                with db.snapshot() as snapshot:
                    for _ in snapshot.items(start=key, stop=key + b"\xff"):
                        pass
                    snapshot.get(key)
            elif kind == 4:
                db.multi_get([key, key + b"x", b"k00001"])
                with db.write_batch() as batch:
                    batch.put(key, b"batch")
                    batch.delete(b"k00001")
            elif kind == 5:
                with db.iterator(reverse=True, start=b"k", stop=key) as it:
                    for _ in range(30):
                        if next(it, None) is None:
                            break
            elif kind == 6:
                db.stats()
                len(db)
            else:
                db.flush(wait=rng.random() < 0.5)
                db.put(key, b"synced", sync=True)
    except lsmkv.ClosedError:
        return
    except BaseException as error:
        strange.append(f"{kind}: {error!r}")


def close_race(folder: str, options: dict[str, Any], seed: int, delay: float) -> list[str]:
    """Eight threads use the database while this one closes it; returns what was not ClosedError."""
    db = lsmkv.open(folder, **options)
    for n in range(3000):
        db.put(b"k%05d" % n, b"v" * 100)
    strange: list[str] = []
    threads = [
        threading.Thread(target=_hammer, args=(kind, db, seed * 8 + kind, strange), daemon=True)
        for kind in range(8)
    ]
    for thread in threads:
        thread.start()
    time.sleep(delay)
    db.close()
    db.close()
    for thread in threads:
        thread.join(20)
        if thread.is_alive():
            strange.append("a thread still runs 20 s after the close")
    try:
        db.get(b"k")
        strange.append("get after close answers")
    except lsmkv.ClosedError:
        pass
    return strange


def fork_use(folder: str, options: dict[str, Any]) -> list[str]:
    """Forks with the database open; the child tries everything, then the parent goes on."""
    problems: list[str] = []
    db = lsmkv.open(folder, **options)
    for n in range(500):
        db.put(b"k%d" % n, b"v")
    it, snapshot, batch = db.iterator(), db.snapshot(), db.write_batch()
    next(it)
    batch.put(b"in batch", b"")
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _forked_child(db, it, snapshot, batch, write_end)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        problems += pipe.read().splitlines()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        problems.append(f"the child ended with status {status}")
    db.put(b"after", b"fork")
    batch.write()
    if db.get(b"k77") != b"v" or next(it) is None or snapshot.get(b"k1") != b"v":
        problems.append("the parent's reads are disturbed")
    if not _locked(folder):
        problems.append("the parent's lock is gone")
    db.close()
    with lsmkv.open(folder, **options) as again:
        if again.get(b"after") != b"fork" or again.get(b"in batch") != b"" or len(again) != 502:
            problems.append("the parent's data is disturbed")
    return problems


def _locked(folder: str) -> bool:
    """Asked from another process: a handle of this one might share the lock."""
    code = (
        "import sys, lsmkv\n"
        "try:\n    lsmkv.open(sys.argv[1], 'w')\nexcept lsmkv.LockError:\n    sys.exit(7)\nsys.exit(0)"
    )
    return subprocess.run([sys.executable, "-c", code, folder], check=False).returncode == 7


def _forked_child(db: Any, it: Any, snapshot: Any, batch: Any, out: int) -> None:
    """Every use must raise ForkError at once; close and the end of the process must be silent."""
    lines = []
    uses: dict[str, Any] = {
        "get": lambda: db.get(b"k1"),
        "put": lambda: db.put(b"k1", b"child"),
        "synced put": lambda: db.put(b"k1", b"child", sync=True),
        "delete": lambda: db.delete(b"k1"),
        "items": lambda: list(db.items()),
        "next": lambda: next(it),
        "snapshot": lambda: snapshot.get(b"k1"),
        "batch": lambda: batch.write(),
        "flush": lambda: db.flush(),
        "compact": lambda: db.compact_range(),
        "stats": lambda: db.stats(),
    }
    for name, use in uses.items():
        began = time.monotonic()
        try:
            use()
            lines.append(f"{name}: no error in the child")
        except lsmkv.ForkError:
            pass
        except BaseException as error:
            lines.append(f"{name}: {error!r} in the child")
        if time.monotonic() - began > 1:
            lines.append(f"{name}: took over a second in the child")
    began = time.monotonic()
    try:
        db.close()
    except lsmkv.ForkError:
        pass
    except BaseException as error:
        lines.append(f"close: {error!r} in the child")
    del db, it, snapshot, batch
    gc.collect()
    if time.monotonic() - began > 1:
        lines.append("close took over a second in the child")
    os.write(out, "\n".join(lines).encode())
    os._exit(0)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def open_and_close(folder: str, options: dict[str, Any], times: int) -> dict[str, list[int]]:
    """Descriptors and threads before and after many opens."""
    lsmkv.open(folder, **options).close()
    before = [_descriptors(), _threads()]
    for n in range(times):
        with lsmkv.open(folder, **options) as db:
            db.put(b"%d" % n, b"x" * 2000)
            db.get(b"0")
    return {"before": before, "after": [_descriptors(), _threads()]}


def many_tables(folder: str, options: dict[str, Any], tables: int, limit: int) -> dict[str, int]:
    """Makes so many tables and reads them all under a small limit of descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with lsmkv.open(folder, **options) as db:
        for n in range(tables):
            db.put(b"t%06d" % n, b"v%d" % n)
            db.flush()
        files = sum(name.endswith(".sst") for name in os.listdir(folder))
        wrong = sum(db.get(b"t%06d" % n) != b"v%d" % n for n in range(tables))
        scanned = sum(1 for _ in db.items())
    with lsmkv.open(folder, **options) as db:
        again = sum(1 for _ in db.items())
    return {"files": files, "wrong": wrong, "scanned": scanned, "again": again}


def full_disk(root: str, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fills a small file system under an open database, makes room again, and goes on without a reopen."""
    rng = random.Random(seed)
    folder, ballast = os.path.join(root, "db"), os.path.join(root, "ballast")
    model: dict[bytes, bytes] = {}
    refused: list[int | None] = []
    unsure: set[bytes] = set()

    def put(sync: bool) -> bool:
        key, value = b"k%04d" % rng.randrange(2000), rng.randbytes(rng.randrange(2000))
        try:
            db.put(key, value, sync=sync)
        except lsmkv.Error as error:
            refused.append(getattr(error, "errno", None))
            unsure.add(key)
            return False
        model[key] = value
        unsure.discard(key)
        return True

    db = lsmkv.open(folder, **options)
    for _ in range(300):
        put(False)
    with open(ballast, "wb") as file:
        room = os.statvfs(root)
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail - rng.randrange(8)) * room.f_bsize)
    for _ in range(20_000):
        if not put(rng.random() < 0.05) and len(refused) >= 5:
            break
    reads = sum(db.get(key) == value for key, value in model.items() if key not in unsure)
    readable = reads == sum(key not in unsure for key in model)
    os.unlink(ballast)
    deadline = time.monotonic() + 10
    while not put(True):
        if time.monotonic() > deadline:
            return {"refused": refused, "readable": readable, "resumed": False, "wrong": -1}
        time.sleep(0.02)
    later = sum(put(False) for _ in range(500))
    db.close()
    with lsmkv.open(folder, **options) as db:
        wrong = sum(db.get(key) != value for key, value in model.items() if key not in unsure)
        invented = sum(key not in model and key not in unsure for key in db)
    return {
        "refused": refused, "readable": readable, "resumed": True, "later": later, "wrong": wrong + invented,
    }  # fmt: skip

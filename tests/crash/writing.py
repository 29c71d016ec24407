"""Jobs of the lab: writers that get killed, and the check after it."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import lsmkv
from lsmkv.recovery import replay

from . import ext4, oracle
from .expiries import lost_expiry
from .iofault import ALL, SYNCS, Action, Control, Op, mask
from .load import Load, write
from .spread import open_spread


def arm(folder: str, fault: dict[str, Any] | None) -> Control:
    os.makedirs(folder, exist_ok=True)
    control = Control()
    control.root(folder)
    if fault:
        control.arm(**{**fault, "action": Action(fault["action"])})
    return control


def open_database(folder: str, options: dict[str, Any], slack: int | None, flag: str = "c") -> Any:
    """`slack`: recovery writes a table when a memtable takes that many bytes more than its log."""
    if slack is not None:
        replay.SLACK = slack
    return open_spread(folder, flag, **options)


def _writer(
    db: Any, path: str, seed: str, count: int, sync_every: int, large: bool, errors: list[BaseException]
) -> None:
    # Not alone: a torn end of the book was cut off at the open, and another process may be noting a power cut now.
    book = oracle.Writer(path, alone=False)
    load = Load(seed, Path(path).name.encode() + b":", sync_every=sync_every, streams=large, ingests=large)
    try:
        for _ in range(count):
            batch, sync = load.next()
            number = book.pending(batch, sync)
            write(db, batch, sync)
            book.acked(number)
    except BaseException as error:
        errors.append(error)


def puts_during_a_sync(folder: str, options: dict[str, Any], threads: int) -> int:
    """Synced puts from many threads while one fdatasync of the log is under way: how many more they need."""
    control = arm(folder, None)
    logs = {"ops": mask(Op.FSYNC, Op.FDATASYNC), "match": ".wal"}
    keys = [b"%d" % number for number in range(threads)]
    with lsmkv.open(folder, **options) as db:
        control.arm(nth=1, action=Action.HOLD, **logs)
        workers = [threading.Thread(target=db.put, args=(key, b"v"), kwargs={"sync": True}) for key in keys]
        workers[0].start()
        while not control.hits():
            time.sleep(0.001)
        for worker in workers[1:]:
            worker.start()
        # A record is in the log before its key can be seen.
        while None in db.multi_get(keys):
            time.sleep(0.001)
        control.arm(nth=1, action=Action.COUNT, **logs)
        for worker in workers:
            worker.join()
        return control.calls()


def calls_of_puts(folder: str, options: dict[str, Any], count: int) -> int:
    """I/O calls of `count` puts in a row, after a first one."""
    control = arm(folder, None)
    with lsmkv.open(folder, **options) as db:
        db.put(b"first", b"")
        control.arm(ALL, 1, Action.COUNT)
        for n in range(count):
            db.put(b"%08d" % n, b"v" * 100)
        return control.calls()


def syncs_of_sessions(folder: str, count: int) -> int:
    """Syncs of `count` sessions of one put each, after the first ones."""
    control = arm(folder, None)
    for n in range(count + 4):
        if n == 4:
            control.arm(SYNCS, 1, Action.COUNT)
        with lsmkv.open(folder) as db:
            db.put(b"%08d" % n, b"v" * 100)
    return control.calls()


def write_until_killed(
    folder: str,
    books: list[str],
    options: dict[str, Any],
    seed: str,
    count: int = 1 << 30,
    fault: dict[str, Any] | None = None,
    sync_every: int = 8,
    slack: int | None = None,
    mark: bool = True,
) -> int:
    """Opens the database and writes from one thread per oracle; returns only if nothing killed it. `mark`: the
    oracles learn that it was opened."""
    arm(folder, fault)
    db = open_database(folder, options, slack)
    for path in books if mark else ():
        oracle.Writer(path).opened()
    errors: list[BaseException] = []
    large = options.get("large_value_threshold") is not None
    threads = [
        threading.Thread(target=_writer, args=(db, path, f"{seed}/{path}", count, sync_every, large, errors))
        for path in books
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


def flush_and_die(folder: str, options: dict[str, Any], count: int) -> None:
    """Writes twice `count` keys, the first half of them flushed, and kills itself."""
    db = lsmkv.open(folder, **options)
    for n in range(2 * count):
        db.put(b"%06d" % n, b"v" * 50)
        if n == count - 1:
            db.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def write_until_power_cut(root: str, delay: float, **arguments: Any) -> int:
    """As write_until_killed, on a file system that loses its power after `delay` seconds."""
    for path in arguments["books"]:
        # Before the clock runs: behind the mark of the cut, this one would make acknowledgements count again.
        oracle.Writer(path).opened()
    # Where a store meets the dead file system, the death of the process is wanted, not a look into running threads.
    faulthandler.disable()

    def cut() -> None:
        time.sleep(delay)
        for path in arguments["books"]:
            oracle.Writer(path, alone=False).cut()
        ext4.cut_power(root)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=cut, daemon=True).start()
    return write_until_killed(mark=False, **arguments)


def open_until_killed(
    folder: str, options: dict[str, Any], fault: dict[str, Any] | None = None, slack: int | None = None
) -> int:
    """Recovers the database; returns how many watched calls that took if nothing killed it."""
    control = arm(folder, fault)
    open_database(folder, options, slack)
    return control.calls()


def contents(db: Any) -> dict[bytes, bytes]:
    """All entries, read by a scan each way and by single gets, which must agree."""
    found = dict(db.items())
    backwards = dict(db.items(reverse=True))
    if backwards != found:
        raise AssertionError(f"forward and reverse scans differ: {oracle.difference(found, backwards)}")
    keys = list(found)
    some = keys[:: max(1, len(keys) // 50)]
    for key in some:
        if db.get(key) != found[key]:
            raise AssertionError(f"get({key!r}) differs from the scan")
    wrong = lost_expiry(db, some)
    if wrong:
        raise AssertionError(wrong)
    return found


def check(
    folder: str,
    books: list[str],
    options: dict[str, Any],
    judge: str = "settle",
    flag: str = "c",
    slack: int | None = None,
) -> dict[str, Any]:
    """Opens the database after a crash and holds it against the oracles, by the named rule."""
    control = Control()
    control.disarm()
    with open_database(folder, options, slack, flag) as db:
        found = contents(db)
        tables = db.recovery_report.tables
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
    return {"problems": problems, "entries": len(found), "tables": tables}

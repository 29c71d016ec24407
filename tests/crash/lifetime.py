"""Jobs of the lab: closing under threads, forks, many tables, full disks."""

from __future__ import annotations

import gc
import os
import random
import resource
import subprocess
import sys
import threading
import time
from typing import Any

import lsmkv


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
        threading.Thread(target=_hammer, args=(kind, db, seed * 8 + kind, strange), daemon=True) for kind in range(8)
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


def close_during_first_order(folder: str, delay: float) -> list[str]:
    """Closes while other threads ask for the first ordered view of a large memtable, which takes a while. A reader's
    handle: before a writer's closes, its last flush has made that order already."""
    strange: list[str] = []
    writer = lsmkv.open(folder)
    with writer.write_batch() as batch:
        for n in range(200_000):
            batch.put(b"%d" % hash(n * 7919), b"")
    db = lsmkv.open(folder, "r")
    started = threading.Barrier(4)

    def look() -> None:
        started.wait()
        try:
            db.iterator().next()
        except lsmkv.ClosedError:
            pass
        except BaseException as error:
            strange.append(repr(error))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    time.sleep(delay)
    db.close()
    for thread in threads:
        thread.join()
    writer.close()
    return strange


def close_during_rotation(folder: str, options: dict[str, Any]) -> list[str]:
    """Closes without a last flush, as at exit, while a writer is in the middle of starting a new log: the writer waits
    there until the close has had time to go on."""
    strange: list[str] = []
    db = lsmkv.open(folder, **options)
    inside, closing = threading.Event(), threading.Event()
    take, stop = db._logs._take, db._scheduler.stop

    def slow_take(last_seq: int) -> Any:
        inside.set()
        closing.wait(10)
        time.sleep(0.2)
        return take(last_seq)

    def fill() -> None:
        try:
            for n in range(1 << 30):
                db.put(b"%d" % n, b"v" * 3000)
        except lsmkv.ClosedError:
            pass
        except BaseException as error:
            strange.append(repr(error))

    writer = threading.Thread(target=fill)

    def stop_during_rotation() -> None:
        db._logs._take = slow_take
        writer.start()
        if not inside.wait(10):
            strange.append("the writer never started a new log")
        stop()
        closing.set()

    db._scheduler.stop = stop_during_rotation
    db._shut(flush=False)
    writer.join()
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


def _quickly(name: str, use: Any, refused: bool) -> list[str]:
    """Problems of a use in the child: another answer than wanted, or over a second for it. A busy machine may be
    slow once; what waits for the parent is slow each time.
    """
    for _ in range(3):
        began = time.monotonic()
        try:
            use()
            if refused:
                return [f"{name}: no error in the child"]
        except lsmkv.ForkError:
            pass
        except BaseException as error:
            return [f"{name}: {error!r} in the child"]
        if time.monotonic() - began <= 1:
            return []
    return [f"{name}: took over a second in the child, three times"]


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
        lines += _quickly(name, use, True)
    lines += _quickly("close", db.close, False)
    uses.clear()
    lines += _quickly("collect", gc.collect, False)
    os.write(out, "\n".join(lines).encode())
    os._exit(0)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def open_and_close(folder: str, options: dict[str, Any], times: int) -> dict[str, list[int]]:
    """Descriptors and threads before and after many opens."""
    threads = _threads()
    lsmkv.open(folder, **options).close()
    before = [_descriptors(), threads]
    for n in range(times):
        with lsmkv.open(folder, **options) as db:
            db.put(b"%d" % n, b"x" * 2000)
            db.get(b"0")
    # A thread leaves /proc a moment after its end.
    deadline = time.monotonic() + 10
    while _threads() > before[1] and time.monotonic() < deadline:
        time.sleep(0.01)
    return {"before": before, "after": [_descriptors(), _threads()]}


def many_tables(folder: str, options: dict[str, Any], tables: int, limit: int) -> dict[str, int]:
    """Makes so many tables and reads them all under a small limit of descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with lsmkv.open(folder, **options) as db:
        pause = db._manual().pause_compaction()  # also of L0 while the flushes are slow
        for n in range(tables):
            db.put(b"t%06d" % n, b"v%d" % n)
            db.flush()
        pause.release()
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
        spare = rng.randrange(8)
        while True:
            # The database itself may take some of the room meanwhile.
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail - spare) * room.f_bsize)
                break
            except OSError:
                spare += 64
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

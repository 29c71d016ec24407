"""Damaged files: every byte flipped, every file cut short and zeroed from every offset.

A small database with tables on two levels, a live log, value logs of a table and of the log, several manifest
records, a second keyspace, expiries and known contents is copied as it is on disk while open (all of it synced).
Each trial damages one file of a copy and opens it.
Allowed: a refused open that changes nothing, right answers, and errors that say "corrupt". Never a wrong
answer, a key that is silently gone, a crash, or a hang.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lsmkv

from .expiries import TAG, expire, keep

OPTIONS: dict[str, Any] = {
    "write_buffer_size": 64 << 10,
    "target_file_size": 32 << 10,
    "block_size": 256,
    "l0_compaction_trigger": 16,
    "block_cache_size": 64 << 10,
    "large_value_threshold": 100,
}
HOW = ("flip", "cut", "zero")
OPEN_LIMIT = 5.0  # seconds of processor time, so that a busy machine does not count
DEADLINE = 120.0  # seconds of wall time, for a trial that hangs


def build(folder: Path, image: Path, wal: str = "mmap") -> dict[bytes, bytes]:
    """Makes the database in `folder` and its image in `image`; returns what it holds."""
    wanted: dict[bytes, bytes] = {}
    with lsmkv.open(folder, **OPTIONS, wal=wal) as db:

        def put(low: int, high: int, step: int, text: bytes) -> None:
            for n in range(low, high, step):
                wanted[b"key%04d" % n] = value = b"%s %d " % (text, n) * 3
                db.put(b"key%04d" % n, value)

        def put_large(low: int, high: int) -> None:
            for n in range(low, high):
                wanted[b"key%04d" % n] = value = b"large %d " % n * 13
                db.put(b"key%04d" % n, value, ttl=10**9 if n % 2 else None)

        def put_expiring(first: int, text: bytes) -> None:
            """One that expires in the far future, and one that is expired and hides what was there before."""
            wanted[b"key%04d" % first] = value = TAG + text
            keep(db, b"key%04d" % first, value)
            wanted.pop(b"key%04d" % (first + 1), None)
            expire(db, b"key%04d" % (first + 1), text)

        def ingest(low: int, high: int) -> None:
            """A table with a value log of its own."""
            path = folder.with_name("ingest.sst")
            with lsmkv.SSTWriter(path, large_value_threshold=100, large_value_compression=None) as table:
                for n in range(low, high):
                    wanted[b"key%04d" % n] = value = b"ingested %d " % n * 11
                    table.put(b"key%04d" % n, value, ttl=10**9 if n % 2 else None)
            db.ingest([path], move=True)

        side = db.keyspace("side")
        put(0, 60, 1, b"bottom")
        put_large(70, 74)
        put_expiring(9, b"bottom")
        db.flush()
        ingest(80, 84)
        db.compact_range()
        put(0, 60, 3, b"upper")
        for n in range(1, 60, 7):
            db.delete(b"key%04d" % n)
            wanted.pop(b"key%04d" % n, None)
        db.delete_range(b"key0050", b"key0053")
        for n in (50, 51, 52):
            wanted.pop(b"key%04d" % n, None)
        put_expiring(20, b"upper")
        for n in range(10):
            side.put(b"key%04d" % n, b"side %d" % n)
        db.flush()
        put(0, 60, 11, b"log")
        put_expiring(30, b"log")
        with db.write_batch() as batch:
            batch.put(b"key0066", b"both")
            batch.put(b"key0066", b"both", keyspace=side)
        wanted[b"key0066"] = b"both"
        put(60, 66, 1, b"log only")
        put_large(73, 76)
        db.sync()
        shutil.copytree(folder, image, ignore=shutil.ignore_patterns("*.tmp"))  # the next log
    return wanted


def kind_of(name: str) -> str | None:
    """WAL, SST, VLOG, MANIFEST, CURRENT, OPTIONS or SYNCED; None for what holds nothing."""
    if name.endswith((".wal", ".sst", ".vlog")):
        return name.partition(".")[2].upper()
    head = name.partition("-")[0]
    return head if head in ("MANIFEST", "CURRENT", "OPTIONS", "SYNCED") else None


@dataclass(frozen=True, slots=True)
class File:
    """A file of the image: its bytes without the zeros that end it (a log is nearly all zeros), and its size."""

    used: bytes
    size: int

    @staticmethod
    def read(path: Path) -> File:
        data = path.read_bytes()
        return File(data.rstrip(b"\0"), len(data))

    def write(self, path: Path) -> None:
        with open(path, "wb") as file:
            file.write(self.used)
            file.truncate(self.size)


def files_of(image: Path) -> dict[str, File]:
    return {path.name: File.read(path) for path in sorted(image.iterdir())}


@dataclass(frozen=True, slots=True)
class Damage:
    name: str
    how: str
    offset: int

    def apply(self, path: Path, original: File) -> None:
        if self.how == "cut":
            os.truncate(path, self.offset)
            return
        with open(path, "r+b") as file:
            file.seek(self.offset)
            if self.how == "flip":
                byte = original.used[self.offset] if self.offset < len(original.used) else 0
                file.write(bytes([byte ^ (1 << self.offset % 8)]))
            else:
                file.write(bytes(len(original.used) - self.offset))


def plan(image: Path, step: int) -> Iterator[Damage]:
    """Every `step`-th offset of every file, each way; a log's empty tail only at a few places."""
    for name, file in files_of(image).items():
        if kind_of(name) is None:
            continue
        end, size = len(file.used), file.size
        offsets = list(range(0, end, step))
        tail = [at for at in (end, end + 1, end + 4096, size - 1) if end <= at < size]
        for how in HOW:
            for at in offsets + (tail if how != "zero" else []):
                yield Damage(name, how, at)


@dataclass
class Trial:
    image: Path
    place: Path
    wanted: dict[bytes, bytes]
    wal: str
    files: dict[str, File] = field(init=False)

    def __post_init__(self) -> None:
        self.files = files_of(self.image)

    def run(self, damage: Damage) -> tuple[str, str | None]:
        """The outcome in a word, and the problem if there is one."""
        self.copy(damage.name)
        try:
            damage.apply(self.place / damage.name, self.files[damage.name])
            before = self._stamps()
            began = time.process_time()
            try:
                db = lsmkv.open(self.place, "w", **OPTIONS, wal=self.wal)
            except lsmkv.Error as error:
                return self._refused(error, before, began)
            took = time.process_time() - began
            with db:
                problem = self._read(db)
            if took > OPEN_LIMIT:
                problem = f"open took {took:.1f} s"
            return ("wrong" if problem else "opened"), problem
        finally:
            shutil.rmtree(self.place)

    def copy(self, victim: str) -> None:
        """Tables are never written in place, so all but the victim may be links."""
        self.place.mkdir()
        for name, file in self.files.items():
            if name.endswith(".sst") and name != victim:
                os.link(self.image / name, self.place / name)
            else:
                file.write(self.place / name)

    def _stamps(self) -> dict[str, tuple[int, int, int]]:
        out = {}
        for path in self.place.iterdir():
            if path.name != "LOCK":
                st = path.stat()
                out[path.name] = (st.st_ino, st.st_size, st.st_mtime_ns)
        return out

    def _refused(self, error: Exception, before: dict, began: float) -> tuple[str, str | None]:
        if time.process_time() - began > OPEN_LIMIT:
            return "wrong", "the refused open took too long"
        if self._stamps() != before:
            changed = sorted({*before.items()} ^ {*self._stamps().items()})
            return "wrong", f"a refused open changed files: {changed} ({error})"
        return "refused", None

    def _read(self, db: Any) -> str | None:
        """Every answer must be right or an error that says so."""
        for key in [*self.wanted, b"key0001", b"key0051", b"absent", b"key0100"]:
            try:
                got = db.get(key)
            except lsmkv.CorruptionError:
                continue
            if got != self.wanted.get(key):
                return f"get({key!r}) is {got!r}, not {self.wanted.get(key)!r}"
        return self._read_side(db) or self._scan(db)

    def _read_side(self, db: Any) -> str | None:
        """A batch over two keyspaces is there in both. The others of the second keyspace are in a table."""
        try:
            found = dict(db.keyspace("side", create=False).items())
        except lsmkv.CorruptionError:
            return None
        wanted = {**{b"key%04d" % n: b"side %d" % n for n in range(10)}, b"key0066": b"both"}
        return None if found == wanted else f"the second keyspace holds {found!r}"

    def _scan(self, db: Any) -> str | None:
        right = sorted(self.wanted.items())
        for reverse in (False, True):
            found, whole = scan(db, reverse)
            due = right[::-1] if reverse else right
            if found != (due if whole else due[: len(found)]):
                return f"the scan is wrong (reverse={reverse}, whole={whole})"
        return None


def scan(db: Any, reverse: bool) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The entries in front of the first damage, and whether there was none."""
    found = []
    try:
        for item in db.items(reverse=reverse):
            found.append(item)
    except lsmkv.CorruptionError:
        return found, False
    return found, True


def sweep(image: str, place: str, wal: str, items: list[list[Any]], wanted: dict[str, str]) -> dict[str, Any]:
    """Runs a list of damages; the tally of outcomes and the problems."""
    contents = {k.encode("latin-1"): v.encode("latin-1") for k, v in wanted.items()}
    trial = Trial(Path(image), Path(place), contents, wal)
    tally: dict[str, int] = {}
    problems: list[str] = []
    for item in items:
        damage = Damage(*item)
        # Ends the process with a traceback even if compiled code loops with the GIL held.
        faulthandler.dump_traceback_later(DEADLINE, exit=True)
        outcome, problem = trial.run(damage)
        faulthandler.cancel_dump_traceback_later()
        key = f"{kind_of(damage.name)} {damage.how} {outcome}"
        tally[key] = tally.get(key, 0) + 1
        if problem:
            problems.append(f"{damage}: {problem}")
            if len(problems) >= 20:
                break
    return {"tally": tally, "problems": problems}

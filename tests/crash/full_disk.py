"""Jobs of the lab: a database that fills its own disk, and the ways out of it."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import lsmkv

from .iofault import Action, Control

FULL_SECONDS = 0.3  # a disk is full once no put succeeded for so long
WAIT_LIMIT = 30.0
VALUE = 1000


def value_of(number: int) -> bytes:
    return random.Random(number).randbytes(VALUE)


def key_of(number: int) -> bytes:
    return b"%08d" % number


def _until_taken(call: Callable[[], Any]) -> None:
    """A flush or compaction may use up the reserve for a moment."""
    deadline = time.monotonic() + WAIT_LIMIT
    while True:
        try:
            call()
            return
        except lsmkv.IOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def fill(db: Any, acked: Callable[[int], None]) -> int:
    """Puts until the disk is full; returns the first number that was refused."""
    n, last = 0, time.monotonic()
    while time.monotonic() - last < FULL_SECONDS:
        try:
            db.put(key_of(n), value_of(n))
        except lsmkv.IOError:
            time.sleep(0.01)
        else:
            acked(n)
            n, last = n + 1, time.monotonic()
    return n


def own_full_disk(root: str, options: dict[str, Any], way: str, reopen: bool) -> dict[str, Any]:
    """Fills the disk, deletes in some `way`, and writes again."""
    folder = os.path.join(root, "db")
    db = lsmkv.open(folder, **options)
    n = fill(db, lambda _: None)
    if reopen:
        db.close()
        db = lsmkv.open(folder, **options)
    readable = all(db.get(key_of(i)) == value_of(i) for i in range(n))
    left = _delete(db, way, n)
    _until_taken(db.compact_range)
    again = min(n // 4, 2000)
    for i in range(again):
        _until_taken(lambda i=i: db.put(b"again" + key_of(i), b"v"))
    expected = [key_of(i) for i in left] + [b"again" + key_of(i) for i in range(again)]
    live = list(db) == expected
    db.close()
    with lsmkv.open(folder, **options) as db:
        return {"filled": n, "readable": readable, "live": live, "reopened": list(db) == expected}


def _delete(db: Any, way: str, n: int) -> range:
    """Deletes and returns the numbers that are left."""
    if way == "clear":
        _until_taken(db.clear)
        return range(0)
    if way == "half":
        _until_taken(lambda: db.delete_range(b"", key_of(n // 2)))
        return range(n // 2, n)
    for i in range(n):
        _until_taken(lambda i=i: db.delete(key_of(i)))
    return range(0)


def fill_until_killed(root: str, options: dict[str, Any], fault: dict[str, Any], book: str) -> None:
    """Fills the disk and deletes every second key, noting in `book` what was taken, until the fault kills it."""
    control = Control()
    control.root(root)
    db = lsmkv.open(os.path.join(root, "db"), **options)
    with open(book, "ab", buffering=0) as file:
        n = fill(db, lambda i: file.write(b"p%08d\n" % i) and None)
        control.arm(**{**fault, "action": Action(fault["action"])})
        for i in range(0, n, 2):
            file.write(b"d%08d\n" % i)  # first: a kill may come after the delete
            _until_taken(lambda i=i: db.delete(key_of(i)))
            if i % 1000 == 0:
                _until_taken(db.flush)
        _until_taken(db.compact_range)
        os.kill(os.getpid(), 9)


def _open_with_a_page(root: str, options: dict[str, Any]) -> Any:
    """Opens the database; its new log needs a page, and the kill may have left none."""
    try:
        return lsmkv.open(os.path.join(root, "db"), **options)
    except lsmkv.IOError as error:
        if error.errno != errno.ENOSPC or os.statvfs(root).f_bavail > 16:
            raise
    subprocess.run(["mount", "-o", "remount,size=8256k", root], check=True)
    return lsmkv.open(os.path.join(root, "db"), **options)


def check_after_kill(root: str, options: dict[str, Any], book: str) -> dict[str, Any]:
    with open(book, "rb") as file:
        lines = file.read().split()
    put = {int(line[1:]) for line in lines if line[:1] == b"p"}
    deleted = [int(line[1:]) for line in lines if line[:1] == b"d"]
    db = _open_with_a_page(root, options)
    there = {int(key) for key in db}
    # The last put may be unnoted, the last delete undone.
    lost = put - there - set(deleted)
    undone = (there & set(deleted)) - set(deleted[-1:])
    invented = there - put - {max(put) + 1}
    wrong = sum(db[key_of(i)] != value_of(i) for i in sorted(there))
    _until_taken(db.clear)
    _until_taken(db.compact_range)
    _until_taken(lambda: db.put(b"after", b"v"))
    db.close()
    return {"deletes": len(deleted), "problems": [sorted(lost), sorted(undone), sorted(invented), wrong]}

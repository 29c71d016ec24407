"""Jobs of the lab: many databases in one process, which share its background threads."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import lsmkv

from .iofault import SYNCS, Action
from .writing import arm

LIMIT = 60.0


def _wait_until(done: Any) -> bool:
    deadline = time.monotonic() + LIMIT
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _threads() -> int:
    return sum(thread.name.startswith("lsmkv-") for thread in threading.enumerate())


def many_databases(folder: str, options: dict[str, Any], count: int) -> dict[str, Any]:
    """Opens many databases and lets all of them flush and compact; how many threads they had."""
    databases = [lsmkv.open(os.path.join(folder, str(n)), **options) for n in range(count)]
    opened, most = _threads(), 0
    model: dict[bytes, bytes] = {}
    for generation in range(4):
        written = {b"k%03d" % (n * (generation + 1)): b"%d" % generation for n in range(20)}
        model |= written
        for db in databases:
            for key, value in written.items():
                db.put(key, value)
            db.flush(wait=False)
        most = max(most, _threads())
    for db in databases:
        db._scheduler.wait_idle()
    wrong = sum(dict(db.items()) != model for db in databases)
    compacted = sum(len(db._versions.default.current.levels[0]) < options["l0_compaction_trigger"] for db in databases)
    _wait_until(lambda: _threads() <= 4)
    idle = _threads()
    for db in databases:
        db.close()
    return {"opened": opened, "most": most, "idle": idle, "closed": _threads(), "wrong": wrong, "compacted": compacted}


def _fill(db: Any, value: bytes) -> dict[bytes, bytes]:
    model = {b"%05d" % (n * 7919 % 5000): value + b"%d" % n for n in range(5000)}
    for key, item in model.items():
        db.put(key, item)
    return model


def beside_a_bad_disk(folder: str, options: dict[str, Any], bad: int, action: int) -> list[str]:
    """Every sync of `bad` databases hangs, or fails; one more database flushes, compacts and closes meanwhile."""
    problems: list[str] = []
    control = arm(folder, None)
    sick = [lsmkv.open(os.path.join(folder, f"bad{n}"), **options) for n in range(bad)]
    well = lsmkv.open(os.path.join(folder, "well"), **options)
    for db in sick:
        db.put(b"before", b"1")
        db.flush()
        db.put(b"before", b"2", sync=True)
        _wait_until(lambda db=db: not db._logs.short)  # or the rotation below would be stuck
    control.arm(SYNCS, 1, Action(action), sticky=True, match="bad")
    for db in sick:
        db.flush(wait=False)
    stuck = Action(action) is Action.HOLD
    if not _wait_until(lambda: all(db._scheduler.status.flushing if stuck else db._engine.refusal for db in sick)):
        problems.append("the bad databases are not at it")
    model = _fill(well, b"first") | _fill(well, b"second")
    well.flush()
    well._scheduler.wait_idle()
    if not well.background.flushes or not well.background.reasons:
        problems.append(f"the other database did no work in the background: {well.background}")
    if dict(well.items()) != model:
        problems.append("the other database lost something")
    well.close()
    control.disarm()
    for db in sick:
        db.close()
    for n in range(bad):
        with lsmkv.open(os.path.join(folder, f"bad{n}"), **options) as db:
            if db.get(b"before") != b"2":
                problems.append(f"bad{n} lost something")
    return problems

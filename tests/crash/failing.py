"""Jobs of the lab: writers whose I/O calls fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lsmkv

from . import oracle
from .iofault import SYNCS, Action
from .load import Load, write
from .spread import open_spread
from .writing import arm, open_database


def _write_next(db: lsmkv.DB, book: oracle.Writer, load: Load, *, flush: bool) -> lsmkv.Error | None:
    """Writes a batch, and flushes it if asked to. Notes in the book how it ended; returns the error."""
    batch, sync = load.next()
    entry = book.pending(batch, sync)
    try:
        write(db, batch, sync)
        if flush:
            db.flush()
    except lsmkv.Error as error:
        book.failed(entry)
        return error
    book.acked(entry)
    return None


def write_with_fault(
    folder: str, book_path: str, options: dict[str, Any], seed: str, count: int, fault: dict[str, Any]
) -> dict[str, Any]:
    """Writes `count` batches while I/O calls fail; one that raises is noted as failed."""
    control = arm(folder, fault)
    book = oracle.Writer(book_path)
    large = options.get("large_value_threshold") is not None
    prefix = Path(book_path).name.encode() + b":"
    load = Load(seed, prefix, keys=100, sync_every=5, streams=large, ingests=large)
    raised: list[str] = []
    try:
        db = open_spread(folder, **options)
    except (lsmkv.Error, OSError) as error:
        return {"opened": False, "raised": [repr(error)], "hits": control.hits(), "calls": control.calls()}
    for number in range(count):
        failure = _write_next(db, book, load, flush=number % 25 == 24)
        if failure is not None:
            raised.append(repr(failure))
    calls, hits = control.calls(), control.hits()
    try:
        db.close()
    except lsmkv.Error as error:
        raised.append(f"close: {error!r}")
    return {"opened": True, "raised": raised, "hits": hits, "calls": calls}


def open_with_fault(
    folder: str, options: dict[str, Any], fault: dict[str, Any], slack: int | None = None
) -> dict[str, Any]:
    """Opens and closes the database while one call fails."""
    control = arm(folder, fault)
    raised = None
    try:
        open_database(folder, options, slack).close()
    except lsmkv.Error as error:
        raised = repr(error)
    return {"raised": raised, "hits": control.hits()}


def fsync_failure_in_compact_range(folder: str, options: dict[str, Any]) -> list[str]:
    """Fails the fsync of a table that compact_range writes. Returns the errors of the call, a put, and a read."""
    control = arm(folder, None)
    db = lsmkv.open(folder, **options)
    for part in range(2):
        for number in range(500):
            db.put(b"%04d" % number, b"%d" % part)
        db.flush()
    control.arm(SYNCS, 1, Action.FAIL, match=".sst")
    said = [_error_of(db.compact_range), _error_of(lambda: db.put(b"more", b"")), _error_of(lambda: db[b"0000"])]
    db.close()
    with lsmkv.open(folder, **options) as db:
        assert dict(db.items()) == {b"%04d" % number: b"1" for number in range(500)}
    return said


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except lsmkv.Error as error:
        return type(error).__name__
    return "none"


def fsync_failure(
    folder: str, book_path: str, trace_path: str, options: dict[str, Any], nth: int, match: str = ""
) -> dict[str, Any]:
    """Fails one fsync; what the database then says to writes and reads."""
    control = arm(folder, None)
    book = oracle.Writer(book_path)
    load = Load("fsync", Path(book_path).name.encode() + b":", keys=100, sync_every=5)
    control.trace(trace_path)
    control.arm(SYNCS, nth, Action.FAIL, match=match)
    try:
        db = lsmkv.open(folder, **options)
    except (lsmkv.Error, OSError) as error:
        return {"hits": control.hits(), "open": repr(error)}
    raised: list[str] = []
    for number in range(400):
        if number >= 90 and not control.hits():
            break
        failure = _write_next(db, book, load, flush=number % 15 == 14)
        if failure is not None:
            raised.append(type(failure).__name__)
            if len(raised) == 5:
                break
        elif raised:
            raised.append("acknowledged")
    hits = control.hits()
    found = len(dict(db.items())) if hits else 0
    db.close()
    control.trace(None)
    return {"hits": hits, "raised": raised, "readable": found}

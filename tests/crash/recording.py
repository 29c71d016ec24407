"""Jobs of the lab: runs whose every I/O call is recorded, and the crash states made of them."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import lsmkv
from lsmkv.compaction.flush import Flusher

from . import oracle, trace
from . import replay as crash_states
from .expiries import lost_expiry
from .iofault import Op
from .load import PIECES, Load, write
from .spread import open_spread
from .writing import arm, open_database

BEGIN, ACK, SYNCED = b"B", b"A", b"S"  # marks: a batch starts; it returned; everything before is synced


def hold_flushes() -> threading.Event:
    """No memtable is flushed until the event is set: for the rest of this process."""
    release, flush = threading.Event(), Flusher._write

    def held(self: Flusher, *arguments: Any) -> Any:
        release.wait()
        return flush(self, *arguments)

    Flusher._write = held
    return release


def record_unflushed(folder: str, trace_path: str, options: dict[str, Any], seed: str, count: int) -> int:
    """Like `record`, while no flush ends: several logs are needed, and nothing but a log's own syncs makes it durable.
    Returns how many logs there were."""
    control = arm(folder, None)
    control.trace(trace_path)
    streams = options.get("large_value_threshold") is not None
    load = Load(seed, b"r:", keys=120, sync_every=12, streams=streams)
    db = open_spread(folder, **options)
    release = hold_flushes()
    for _ in range(count):
        if len(db._versions.engine.logs) >= options["max_write_buffers"] - 2:
            break  # the last write buffer would wait for a flush, and a batch may fill two
        batch, sync = load.next()
        control.mark(BEGIN + oracle.encode(batch))
        write(db, batch, sync)
        control.mark(SYNCED if sync else ACK)
    logs = len(db._versions.engine.logs)
    control.trace(None)
    release.set()
    db.close()
    return logs


def record(folder: str, trace_path: str, options: dict[str, Any], seed: str, count: int, extra: bool) -> int:
    """Writes `count` batches from one thread with every I/O call and mark in a trace. `extra` adds explicit
    flushes, compactions and syncs, a reopen half way, and later one that finds a log, which it replays in pieces."""
    control = arm(folder, None)
    control.trace(trace_path)
    large = options.get("large_value_threshold") is not None
    load = Load(seed, b"r:", keys=120, sync_every=12, streams=large, ingests=large)
    rng = random.Random(seed)
    db = open_spread(folder, **options)
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
        elif roll < 0.06 and options.get("keyspaces"):
            db.churn()
        if extra and number == count // 2:
            db.close()
            db = open_spread(folder, **options)
        if extra and number == count * 3 // 4:
            db._shut(flush=False)
            db = open_database(folder, options, PIECES)
    db.close()
    control.trace(None)
    return count


def replay(
    trace_path: str, folder: str, options: dict[str, Any], seed: str, wanted: int
) -> dict[str, dict[str, int] | list[str]]:
    """Opens up to `wanted` crash states of a trace; returns how many of each kind, and what was wrong."""
    records = list(trace.read(Path(trace_path)))
    rng = random.Random(seed)
    chance = min(1.0, wanted / max(1, len(records) * 7))
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
            if len(seen) == wanted:
                break
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


def try_crash(crash: crash_states.Crash, place: Path, options: dict[str, Any], judge: PrefixJudge) -> str | None:
    """Opens one crash state, holds it against the judge, writes to it and opens it again."""
    crash_states.write_state(place, crash.files)
    try:
        with open_spread(place, **options) as db:
            found = dict(db.items())
            wrong = judge.problem(crash, found) or lost_expiry(db, found)
            db.put(b"after", b"crash")
        with open_spread(place, **options) as db:
            again = dict(db.items())
        found[b"after"] = b"crash"
        return wrong or (None if again == found else f"second open: {oracle.difference(again, found)}")
    except lsmkv.Error as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place)

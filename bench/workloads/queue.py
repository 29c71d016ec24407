"""A queue: each step appends a record at the tail and removes the first one."""

from __future__ import annotations

from array import array
from typing import Any

from ..engines.base import Engine, Pair
from ..native.workload import KeyGenerator
from ..session import Session
from ..settings import Settings
from .loop import Duration, make_operations, outcome_of
from .operations import DELETE, PUT, Operations
from .outcome import Outcome

LENGTH = 100  # of the queue
PORTION = 20_000  # steps; the first and the last portion are compared

Mark = tuple[int, int, int]  # so far: steps, nanoseconds, nanoseconds of CPU time


def _step(engine: Engine) -> Any:
    put, scan, delete = engine.put, engine.scan, engine.delete

    def push_and_pop(pair: Pair) -> Pair:
        put(*pair)
        first = next(scan(b""))
        delete(first[0])
        return first

    return push_and_pop


def _fill(session: Session, operations: Operations, length: int) -> None:
    chunk = operations.take(length)
    for key, value in zip(chunk.keys, chunk.values or (), strict=True):
        session.engine.put(key, value)


def _verify(session: Session, popped: array[int], kept: list[tuple[int, Any]]) -> None:
    """Records leave the queue in the order of their keys. Removes them from the expected state."""
    found = session.state.apply(bytes([DELETE]) * len(popped), popped, session.generation)
    for i, (key, value) in kept:
        session.verifier.expect(key, int(key), popped[i])  # type: ignore[arg-type]
        session.verifier.expect(key, value, session.verifier.value(popped[i], found[i]))


def _portion(before: Mark, after: Mark) -> str:
    steps = after[0] - before[0]
    wall, cpu = ((b - a) / steps / 1e3 for a, b in zip(before[1:], after[1:], strict=True))
    return f"steps {before[0] + 1:,} to {after[0]:,}: {wall:.2f} us each, {cpu:.2f} us of CPU time"


def push_and_pop(session: Session, cfg: Settings) -> Outcome:
    """Keys ascend, so the first one is the oldest. A pop passes whatever the earlier deletes left."""
    step, driver = _step(session.engine), session.driver(cfg)
    operations = make_operations(session, cfg, KeyGenerator("sequential", cfg.num, 0), PUT)
    length = min(LENGTH, cfg.num // 2)
    most = min(cfg.writes or cfg.num, cfg.num - length)
    _fill(session, operations, length)
    duration = Duration(cfg, most)
    written, marks = 0, [(0, 0, 0)]
    while driver.ops < most and not duration.done(driver.ops):
        start = driver.ops
        chunk = operations.take(min(PORTION, most - start))
        kept = driver.each(step, list(zip(chunk.keys, chunk.values or (), strict=True)))
        _verify(session, array("Q", range(start, driver.ops)), kept)
        written += chunk.user_bytes
        marks.append((driver.ops, driver.ns, driver.cpu_ns))
        session.tick(driver.ops, most, driver.ns / 1e9)
    outcome = outcome_of(driver, session, driver.ops, moved=written, written=written)
    outcome.lines = [_portion(*marks[:2]), _portion(*marks[-2:])]
    return outcome

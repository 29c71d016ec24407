"""The loop that most workloads share: generate a chunk, run it in the driver, verify its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..native.latency import Driver
from ..native.workload import KeyGenerator
from ..session import Session
from ..settings import Settings
from .operations import PUT, UPDATE, Operations, chunk_size, key_generator
from .outcome import Outcome

Run = Callable[[Session, Settings], Outcome]
KeySource = Callable[[int], KeyGenerator]  # from a seed; each thread has its own


class Duration:
    """Ends a workload after `ops` operations, or after the configured time."""

    def __init__(self, cfg: Settings, ops: int) -> None:
        self.total = None if cfg.duration else ops  # None: not known in advance
        self._deadline = time.perf_counter() + cfg.duration

    def done(self, ops: int) -> bool:
        return time.perf_counter() >= self._deadline if self.total is None else ops >= self.total

    def remaining(self, ops: int, size: int) -> int:
        """Operations left after `ops`, at most `size`."""
        return size if self.total is None else min(size, self.total - ops)


def outcome_of(driver: Driver, session: Session, calls: int, *, moved: int = 0, written: int = 0) -> Outcome:
    """The driver's counts, and its time without the cost of recording `calls` latencies."""
    cost = session.timer_ns * calls if driver.hist is not None else 0.0
    seconds, cpu = (max(ns - cost, ns * 0.05) / 1e9 for ns in (driver.ns, driver.cpu_ns))
    timer = session.timer_ns if driver.hist is not None else 0.0
    return Outcome(driver.ops, seconds, None, moved, written, driver.hist, cpu, timer_ns=timer)


def run_operations(
    session: Session, cfg: Settings, operations: Operations, ops: int, driver: Driver, *, exact: bool = True
) -> Outcome:
    """Run `ops` operations, or `duration` seconds of them, in one thread."""
    size, done, written = chunk_size(cfg), 0, 0
    duration = Duration(cfg, ops)
    while not duration.done(done):
        chunk = operations.take(duration.remaining(done, size))
        kept = driver.run(chunk.codes, chunk.keys, chunk.values, chunk.lengths)
        session.verifier.chunk(chunk, kept, exact=exact)
        done += len(chunk.keys)
        written += chunk.user_bytes
        session.tick(done, duration.total, driver.ns / 1e9)
    return outcome_of(driver, session, done, moved=written + driver.bytes_read, written=written)


def make_operations(session: Session, cfg: Settings, keys: KeyGenerator, op: int, **more: Any) -> Operations:
    writing = op in (PUT, UPDATE) or more.get("mix") is not None
    generation = session.next_generation(cfg) if writing else session.generation
    return Operations(cfg, session.state, session.values(cfg), generation, keys, op, **more)


def key_source(distribution: str, num: int) -> KeySource:
    if distribution == "power":
        return lambda seed: KeyGenerator("power", num, seed)
    return lambda seed: key_generator(distribution, num, seed)


def derive_seed(cfg: Settings, salt: str, session: Session) -> int:
    """A seed for one workload, the same for all engines."""
    salted: int = sum(ord(c) * 31**i for i, c in enumerate(salt)) % (1 << 31)
    return cfg.seed * 1_000_003 + salted + session.turn

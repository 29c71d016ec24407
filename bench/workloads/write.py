"""Fills, overwrites, updates and deletes."""

from __future__ import annotations

import time

from ..native.workload import KeyGenerator
from ..session import Session
from ..settings import Settings
from .loop import Duration, KeySource, Run, derive_seed, key_source, make_operations, outcome_of, run_operations
from .operations import DELETE, PUT, UPDATE, chunk_size
from .outcome import Outcome
from .threads import run_threads


def _run(
    session: Session, cfg: Settings, op: int, source: KeySource, ops: int, *, salt: str, thread_salt: str
) -> Outcome:
    if cfg.threads > 1:
        return run_threads(session, cfg, op, source, ops, salt=thread_salt)
    engine = session.engine
    operations = make_operations(session, cfg, source(derive_seed(cfg, salt, session)), op)
    driver = session.driver(cfg, get=engine.get, put=engine.put, delete=engine.delete)
    outcome = run_operations(session, cfg, operations, ops, driver)
    if cfg.final_sync:
        began = time.perf_counter()
        engine.sync()
        outcome.seconds += time.perf_counter() - began
    if op == UPDATE:
        outcome.found = driver.found
    return outcome


def fill(distribution: str, share: float = 1.0) -> Run:
    """Puts into an empty database: `share` of `num`, unless `writes` is set."""

    def run(session: Session, cfg: Settings) -> Outcome:
        ops = cfg.writes or max(1, int(cfg.num * share))
        source = key_source(distribution, cfg.num)
        return _run(session, cfg, PUT, source, ops, salt=distribution, thread_salt=distribution)

    return run


def change(op: int) -> Run:
    """Puts, deletes or read-modify-writes on an existing database."""

    def run(session: Session, cfg: Settings) -> Outcome:
        source = key_source(cfg.distribution, cfg.num)
        ops = cfg.writes or cfg.num
        return _run(session, cfg, op, source, ops, salt=f"change{op}", thread_salt=cfg.distribution)

    return run


def fill_batch(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    size, ops = cfg.batch_size or 1000, cfg.writes or cfg.num
    keys = KeyGenerator("uniform", cfg.num, derive_seed(cfg, "batch", session))
    operations = make_operations(session, cfg, keys, PUT)
    driver = session.driver(cfg)
    written = calls = 0
    duration = Duration(cfg, ops)
    while not duration.done(driver.ops):
        batches = []
        for _ in range(max(1, -(-duration.remaining(driver.ops, chunk_size(cfg)) // size))):
            chunk = operations.take(size)
            batches.append(list(zip(chunk.keys, chunk.values or (), strict=True)))
            written += chunk.user_bytes
        driver.each(engine.write_batch, batches, size)
        calls += len(batches)
        session.tick(driver.ops, duration.total, driver.ns / 1e9)
    outcome = outcome_of(driver, session, calls, moved=written, written=written)
    outcome.detail["batch_size"] = size
    return outcome


def delete_sequential(session: Session, cfg: Settings) -> Outcome:
    operations = make_operations(session, cfg, KeyGenerator("sequential", cfg.num, 0), DELETE)
    driver = session.driver(cfg, delete=session.engine.delete)
    return run_operations(session, cfg, operations, cfg.writes or cfg.num, driver)

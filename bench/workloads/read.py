"""Point reads, scans and iterations of a database that nobody writes to."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from ..session import Session
from ..settings import Settings
from .loop import Duration, KeySource, Run, derive_seed, key_source, make_operations, outcome_of, run_operations
from .operations import GET, SCAN, key_generator
from .outcome import Outcome
from .threads import run_threads

CALLS_PER_CHUNK = 64
ITEMS_PER_CHUNK = 65536


def _run(session: Session, cfg: Settings, op: int, source: KeySource, salt: str, **more: Any) -> Outcome:
    ops = cfg.reads or cfg.num
    if cfg.threads > 1:
        return run_threads(session, cfg, op, source, ops, salt=cfg.distribution, **more)
    keys = source(derive_seed(cfg, salt, session))
    with closing(session.engine.reader()) as reader:
        driver = session.driver(cfg, get=reader.get, scan=reader.scan)
        outcome = run_operations(session, cfg, make_operations(session, cfg, keys, op, **more), ops, driver)
    outcome.found = driver.found
    return outcome


def get(salt: str, *, suffix: bytes = b"", share: float = 1.0) -> Run:
    """Random gets in the first `share` of the records; a `suffix` makes the keys absent."""

    def run(session: Session, cfg: Settings) -> Outcome:
        source = key_source(cfg.distribution, max(1, int(cfg.num * share)))
        return _run(session, cfg, GET, source, salt, suffix=suffix)

    return run


def seek(session: Session, cfg: Settings) -> Outcome:
    source, length = key_source(cfg.distribution, cfg.num), max(1, cfg.seek_nexts)
    outcome = _run(session, cfg, SCAN, source, "seek", scan_length=length)
    if cfg.threads == 1:
        outcome.detail.update(seek_nexts=cfg.seek_nexts, items=outcome.found)
        outcome.found = None
    return outcome


def iterate(*, reverse: bool) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        limit = min(cfg.reads or cfg.num, session.state.present)
        driver = session.driver(cfg)
        iterator = session.engine.items(reverse=reverse)
        duration = Duration(cfg, limit)
        while driver.ops < limit and not duration.done(driver.ops):
            start = driver.ops
            taken, kept = driver.iterate(iterator, min(ITEMS_PER_CHUNK, limit - start))
            session.verifier.iteration(kept, start, reverse=reverse)
            session.tick(driver.ops, limit, driver.ns / 1e9)
            if taken == 0:
                session.verifier.expect(b"(end of iteration)", start, limit)  # type: ignore[arg-type]
        del iterator
        outcome = outcome_of(driver, session, driver.ops, moved=driver.bytes_read)
        outcome.found = driver.found
        return outcome

    return run


def multi_get(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    size, ops = cfg.batch_size or 100, cfg.reads or cfg.num
    keys = key_generator(cfg.distribution, cfg.num, derive_seed(cfg, "multi", session))
    operations = make_operations(session, cfg, keys, GET)
    driver = session.driver(replace(cfg, check_every=cfg.check_every * size))
    calls = 0
    duration = Duration(cfg, ops)
    while not duration.done(driver.ops):
        count = -(-duration.remaining(driver.ops, CALLS_PER_CHUNK * size) // size)
        chunks = [operations.take(size) for _ in range(count)]
        for i, got in driver.each(engine.multi_get, [chunk.keys for chunk in chunks], size):
            session.verifier.chunk(chunks[i], list(enumerate(got)))
        calls += len(chunks)
        session.tick(driver.ops, duration.total, driver.ns / 1e9)
    outcome = outcome_of(driver, session, calls)
    outcome.detail["batch_size"] = size
    return outcome


def new_iterator(session: Session, cfg: Settings) -> Outcome:
    driver = session.driver(replace(cfg, check_every=0))
    duration = Duration(cfg, min(cfg.reads or cfg.num, 200_000))
    while not duration.done(driver.ops):
        driver.each(session.engine.new_iterator, [None] * duration.remaining(driver.ops, 4096))
        session.tick(driver.ops, duration.total, driver.ns / 1e9)
    return outcome_of(driver, session, driver.ops)

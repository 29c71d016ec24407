"""Caches: `lsmkv.Cache` and diskcache. Each workload has a cache of its own, in a folder beside the database."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ..engines.base import CacheCalls
from ..native.workload import ExpectedState, KeyGenerator, OperationMix
from ..session import Session
from ..settings import Settings
from .loop import Duration, derive_seed, key_source, make_operations, outcome_of, run_operations
from .operations import CHUNK, GET, PUT, key_generator, largest_value
from .outcome import Outcome

SETS = 10  # percent of the operations of cachemix
DISTRIBUTION = "zipf:0.99"
SHARE = 4  # cachemix has room for a quarter of the records


@contextmanager
def _cache(session: Session, cfg: Settings, size_limit: int | None = None) -> Iterator[CacheCalls]:
    """An empty cache, and the expected state of one. The database of the session stays as it is."""
    folder = os.path.join(session.folder, "cache")
    shutil.rmtree(folder, ignore_errors=True)
    state, session.state = session.state, ExpectedState(cfg.num)
    try:
        with closing(session.engine.open_cache(folder, size_limit)) as cache:
            yield cache
    finally:
        session.state = state
        shutil.rmtree(folder, ignore_errors=True)


def _fill(session: Session, cfg: Settings, cache: CacheCalls, ops: int, distribution: str) -> Outcome:
    keys = key_source(distribution, cfg.num)(derive_seed(cfg, "cacheset", session))
    operations = make_operations(session, cfg, keys, PUT)
    return run_operations(session, cfg, operations, ops, session.driver(cfg, put=cache.set))


def sets(session: Session, cfg: Settings) -> Outcome:
    """Sets of random keys in an empty cache."""
    with _cache(session, cfg) as cache:
        return _fill(session, cfg, cache, cfg.writes or cfg.num, "uniform")


def gets(session: Session, cfg: Settings) -> Outcome:
    """Gets of random keys that are all there. The sets before them are not measured."""
    with _cache(session, cfg) as cache:
        _fill(session, cfg, cache, cfg.num, "sequential")
        keys = key_generator(cfg.distribution, cfg.num, derive_seed(cfg, "cacheget", session))
        driver = session.driver(cfg, get=cache.get)
        outcome = run_operations(session, cfg, make_operations(session, cfg, keys, GET), cfg.reads or cfg.num, driver)
    outcome.found = driver.found
    return outcome


def mix(session: Session, cfg: Settings) -> Outcome:
    """Gets, and sets of the same keys, in a cache with room for a part of them. Reports how many gets hit."""
    seed = derive_seed(cfg, "cachemix", session)
    weights = {"get": 100.0 - SETS, "put": float(SETS)}
    size_limit = cfg.num * (cfg.key_size + largest_value(cfg)) // SHARE
    with _cache(session, cfg, size_limit) as cache:
        keys: KeyGenerator = key_source(DISTRIBUTION, cfg.num)(seed)
        operations = make_operations(session, cfg, keys, GET, mix=OperationMix(keys, weights, seed))
        driver = session.driver(cfg, get=cache.get, put=cache.set)
        duration = Duration(cfg, cfg.reads or cfg.num)
        gets = written = 0
        while not duration.done(driver.ops):
            chunk = operations.take(duration.remaining(driver.ops, CHUNK))
            for i, got in driver.run(chunk.codes, chunk.keys, chunk.values, chunk.lengths):
                if chunk.codes[i] == GET:
                    session.verifier.written_once(chunk.keys[i], chunk.numbers[i], got, required=False)
            gets += chunk.codes.count(GET)
            written += chunk.user_bytes
            session.tick(driver.ops, duration.total, driver.ns / 1e9)
    outcome = outcome_of(driver, session, driver.ops, moved=written + driver.bytes_read, written=written)
    outcome.detail.update(size_limit=size_limit, hit_ratio=driver.found / gets if gets else None)
    outcome.lines.append(f"hit ratio {driver.found / max(gets, 1):.1%} of {gets} gets, size limit {size_limit} bytes")
    return outcome


def _calls(session: Session, cfg: Settings, call: Any, argument: Any) -> Outcome:
    driver = session.driver(cfg)
    duration = Duration(cfg, cfg.writes or cfg.num)
    while not duration.done(driver.ops):
        driver.each(call, [argument] * duration.remaining(driver.ops, CHUNK))
        session.tick(driver.ops, duration.total, driver.ns / 1e9)
    return outcome_of(driver, session, driver.ops)


def increments(session: Session, cfg: Settings) -> Outcome:
    """Increments of one counter."""
    with _cache(session, cfg) as cache:
        return _calls(session, cfg, cache.incr, b"counter")


def memoized(session: Session, cfg: Settings) -> Outcome:
    """Calls of a memoized function with one argument, all but the first of which hit."""
    value = session.values(cfg).value(0, session.next_generation(cfg))
    with _cache(session, cfg) as cache:
        function = cache.memoize()(lambda number: value)
        function(1)
        return _calls(session, cfg, function, 1)

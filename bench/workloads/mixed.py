"""Mixes of reads and writes: YCSB, mixgraph, readrandomwriterandom."""

from __future__ import annotations

from typing import Any

from ..native.workload import KeyGenerator, OperationMix
from ..session import Session
from ..settings import Settings
from .loop import Run, derive_seed, key_source, make_operations, run_operations
from .operations import GET
from .outcome import Outcome
from .threads import run_threads

# YCSB's core workloads: zipfian with exponent 0.99, scans of 1 to 100 records.
YCSB: dict[str, tuple[dict[str, float], str]] = {
    "ycsba": ({"get": 50, "put": 50}, "zipf:0.99"),
    "ycsbb": ({"get": 95, "put": 5}, "zipf:0.99"),
    "ycsbc": ({"get": 100}, "zipf:0.99"),
    "ycsbd": ({"get": 95, "insert": 5}, "latest"),
    "ycsbe": ({"scan": 95, "insert": 5}, "zipf:0.99"),
    "ycsbf": ({"get": 50, "update": 50}, "zipf:0.99"),
}


def mixed(
    salt: str,
    weights: dict[str, float],
    distribution: str | None = None,
    scan: tuple[Any, ...] = ("uniform", 100),
) -> Run:
    """Operations by weight. Without a `distribution` the flag decides."""

    def run(session: Session, cfg: Settings) -> Outcome:
        seed = derive_seed(cfg, salt, session)
        last = session.state.next_present(session.state.capacity - 1, -1) or 0
        source = key_source(distribution or cfg.distribution, max(last, cfg.num - 1) + 1)
        ops = cfg.reads or cfg.num

        def make_mix(keys: KeyGenerator, seed: int) -> OperationMix:
            return OperationMix(keys, weights, seed, scan)

        if cfg.threads > 1:
            outcome = run_threads(session, cfg, GET, source, ops, salt=salt, make_mix=make_mix)
            outcome.found = None
        else:
            engine, keys = session.engine, source(seed)
            driver = session.driver(cfg, get=engine.get, put=engine.put, delete=engine.delete, scan=engine.scan)
            operations = make_operations(session, cfg, keys, GET, mix=make_mix(keys, seed))
            # The expected state already has the chunk's later inserts, which a scan does not see.
            outcome = run_operations(session, cfg, operations, ops, driver, exact="scan" not in weights)
        outcome.detail["weights"] = weights
        return outcome

    return run


def read_random_write_random(session: Session, cfg: Settings) -> Outcome:
    share = cfg.readwritepercent
    return mixed("rrwr", {"get": share, "put": 100 - share})(session, cfg)

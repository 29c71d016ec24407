"""Operations on the whole database: compact, flush, reopen, print statistics."""

from __future__ import annotations

import time

from .. import resources
from ..native.latency import Histogram
from ..session import Session
from ..settings import Settings
from .loop import Run
from .outcome import Outcome


def timed(method: str) -> Run:
    """Time one call of an engine's method."""

    def run(session: Session, cfg: Settings) -> Outcome:
        live = _live_bytes(session, cfg)
        start = time.perf_counter()
        getattr(session.engine, method)()
        outcome = Outcome(1, time.perf_counter() - start, bytes=live if method == "compact" else 0)
        outcome.detail["live_bytes"] = live
        return outcome

    return run


def _live_bytes(session: Session, cfg: Settings) -> int:
    """Bytes of the keys and values in the database; keys only if value sizes vary."""
    size = cfg.value_size if cfg.value_size_distribution == "fixed" else 0
    return session.state.present * (cfg.key_size + size)


def reopen(session: Session, cfg: Settings) -> Outcome:
    """Open an existing database and read one record."""
    engine = session.engine
    hist = Histogram()
    number = session.state.next_present(0) or 0
    key = b"%0*d" % (cfg.key_size, number)
    for _ in range(max(1, min(cfg.reads or 5, 5))):
        engine.close()
        start = time.perf_counter_ns()
        engine.open()
        got = engine.get(key)
        hist.record(time.perf_counter_ns() - start)
        session.verifier.expect(key, got, session.verifier.value(number, session.state.generation(number)))
    return Outcome(hist.count, hist.mean * hist.count / 1e9, hist=hist)


def settle(session: Session, cfg: Settings) -> Outcome:
    return Outcome(1, resources.wait_until_idle())


def print_stats(name: str) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        return Outcome(lines=session.engine.stats_text(name).splitlines())

    return run

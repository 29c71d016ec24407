"""The workloads by db_bench's names.

Each is a function (session, settings of the step) -> Outcome. Keys and values are made outside the
clock, chunk by chunk; the driver's own time is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..native.latency import Driver, Histogram
from ..native.workload import Mix, Stream
from ..session import Outcome, Session
from ..settings import Settings
from .loop import Until
from .operations import DELETE, GET, PUT, SCAN, UPDATE, Work, chunk_size, distribution_stream

Run = Callable[[Session, Settings], Outcome]
CHUNKS_AT_ONCE = 64


@dataclass(frozen=True)
class Workload:
    run: Run
    what: str
    fresh: bool = False  # starts from an empty database
    writes: bool = False  # leaves background work behind, so it is followed by settling
    prepare: Callable[[Settings], Settings] | None = None  # what the name itself implies, e.g. sync
    ordered: bool = False  # needs keys in order
    threads: bool = False  # can run in several

    def settings(self, cfg: Settings) -> Settings:
        """With what the name implies."""
        return self.prepare(cfg) if self.prepare else cfg


# -- loops ------------------------------------------------------------------------------------------------


def outcome_of(driver: Driver, session: Session, calls: int, *, moved: int = 0, written: int = 0) -> Outcome:
    """What the driver did, its time less what taking the timestamps of its `calls` cost."""
    cost = session.timer_ns * calls if driver.hist is not None else 0.0
    seconds, cpu = (max(ns - cost, ns * 0.05) / 1e9 for ns in (driver.ns, driver.cpu_ns))
    timer = session.timer_ns if driver.hist is not None else 0.0
    return Outcome(driver.ops, seconds, None, moved, written, driver.hist, cpu, timer_ns=timer)


def run_work(
    session: Session, cfg: Settings, work: Work, ops: int, driver: Driver, *, exact: bool = True
) -> Outcome:
    """`ops` operations (or `duration` seconds of them) in one thread."""
    size, done, written = chunk_size(cfg), 0, 0
    until = Until(cfg, ops)
    while not until.over(done):
        chunk = work.take(until.room(done, size))
        kept = driver.run(chunk.codes, chunk.keys, chunk.values, chunk.lengths)
        session.checker.chunk(chunk, kept, exact=exact)
        done += len(chunk.keys)
        written += chunk.user_bytes
        session.tick(done, until.total, driver.ns / 1e9)
    return outcome_of(driver, session, done, moved=written + driver.bytes_read, written=written)


def make_work(session: Session, cfg: Settings, stream: Stream, op: int, **more: Any) -> Work:
    writing = op in (PUT, UPDATE) or more.get("mix") is not None
    generation = session.next_generation(cfg) if writing else session.generation
    return Work(cfg, session.ledger, session.values(cfg), generation, stream, op, **more)


def streams(kind: str, span: int) -> Callable[[int], Stream]:
    """Makes the stream of a seed: each thread has one of its own."""
    if kind == "power":
        return lambda seed: Stream("power", span, seed)
    return lambda seed: distribution_stream(kind, span, seed)


def salted(cfg: Settings, salt: str, session: Session) -> int:
    """A seed of its own for each workload name, the same for every engine."""
    return cfg.seed * 1_000_003 + sum(ord(c) * 31**i for i, c in enumerate(salt)) % (1 << 31) + session.turn


# -- writes -----------------------------------------------------------------------------------------------


def fill(kind: str, share: float = 1.0) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        from .threads import run_threads

        ops = cfg.writes or max(1, int(cfg.num * share))
        engine = session.engine
        assert engine is not None
        if cfg.threads > 1:
            return run_threads(session, cfg, PUT, streams(kind, cfg.num), ops, salt=kind)
        stream = distribution_stream(kind, cfg.num, salted(cfg, kind, session))
        work = make_work(session, cfg, stream, PUT)
        return run_work(session, cfg, work, ops, session.driver(cfg, put=engine.put))

    return run


def fill_batch(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    assert engine is not None
    size, ops = cfg.batch_size or 1000, cfg.writes or cfg.num
    work = make_work(session, cfg, Stream("uniform", cfg.num, salted(cfg, "batch", session)), PUT)
    driver = session.driver(cfg)
    written = calls = 0
    until = Until(cfg, ops)
    while not until.over(driver.ops):
        batches = []
        for _ in range(max(1, -(-until.room(driver.ops, chunk_size(cfg)) // size))):
            chunk = work.take(size)
            batches.append(list(zip(chunk.keys, chunk.values or (), strict=True)))
            written += chunk.user_bytes
        driver.each(engine.write_many, batches, size)
        calls += len(batches)
        session.tick(driver.ops, until.total, driver.ns / 1e9)
    outcome = outcome_of(driver, session, calls, moved=written, written=written)
    outcome.detail["batch_size"] = size
    return outcome


def change(op: int) -> Run:
    """Puts, deletes or read-modify-writes of records by the chosen distribution."""

    def run(session: Session, cfg: Settings) -> Outcome:
        from .threads import run_threads

        engine = session.engine
        assert engine is not None
        ops = cfg.writes or cfg.num
        if cfg.threads > 1:
            return run_threads(session, cfg, op, streams(cfg.distribution, cfg.num), ops, salt=cfg.distribution)
        stream = distribution_stream(cfg.distribution, cfg.num, salted(cfg, f"change{op}", session))
        work = make_work(session, cfg, stream, op)
        driver = session.driver(cfg, get=engine.get, put=engine.put, delete=engine.delete)
        outcome = run_work(session, cfg, work, ops, driver)
        if op == UPDATE:
            outcome.found = driver.found
        return outcome

    return run


def delete_sequential(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    assert engine is not None
    work = make_work(session, cfg, Stream("sequential", cfg.num, 0), DELETE)
    return run_work(session, cfg, work, cfg.writes or cfg.num, session.driver(cfg, delete=engine.delete))


# -- reads ------------------------------------------------------------------------------------------------


def read_points(salt: str, *, suffix: bytes = b"", share: float = 1.0) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        from .threads import run_threads

        engine = session.engine
        assert engine is not None
        ops = cfg.reads or cfg.num
        stream_of = streams(cfg.distribution, max(1, int(cfg.num * share)))
        if cfg.threads > 1:
            return run_threads(session, cfg, GET, stream_of, ops, salt=cfg.distribution, suffix=suffix)
        stream = stream_of(salted(cfg, salt, session))
        reads = engine.frozen()
        driver = session.driver(cfg, get=reads.get)
        try:
            outcome = run_work(session, cfg, make_work(session, cfg, stream, GET, suffix=suffix), ops, driver)
        finally:
            reads.close()
        outcome.found = driver.found
        return outcome

    return run


def read_all(*, reverse: bool) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        engine = session.engine
        assert engine is not None
        limit = min(cfg.reads or cfg.num, session.ledger.present)
        driver = session.driver(cfg)
        iterator = engine.items(reverse=reverse)
        until = Until(cfg, limit)
        while driver.ops < limit and not until.over(driver.ops):
            start = driver.ops
            taken, kept = driver.iterate(iterator, min(65536, limit - start))
            session.checker.walk(kept, start, reverse=reverse)
            session.tick(driver.ops, limit, driver.ns / 1e9)
            if taken == 0:
                session.checker.expect(b"(end of iteration)", start, limit)  # type: ignore[arg-type]
        del iterator
        outcome = outcome_of(driver, session, driver.ops, moved=driver.bytes_read)
        outcome.found = driver.found
        return outcome

    return run


def seek_random(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    assert engine is not None
    from .threads import run_threads

    stream_of, length, ops = streams(cfg.distribution, cfg.num), max(1, cfg.seek_nexts), cfg.reads or cfg.num
    if cfg.threads > 1:
        return run_threads(session, cfg, SCAN, stream_of, ops, salt=cfg.distribution, scan_length=length)
    work = make_work(session, cfg, stream_of(salted(cfg, "seek", session)), SCAN, scan_length=length)
    reads = engine.frozen()
    driver = session.driver(cfg, scan=reads.scan)
    try:
        outcome = run_work(session, cfg, work, ops, driver)
    finally:
        reads.close()
    outcome.detail.update(seek_nexts=cfg.seek_nexts, items=driver.found)
    return outcome


def multi_read(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    assert engine is not None
    size, ops = cfg.batch_size or 100, cfg.reads or cfg.num
    stream = distribution_stream(cfg.distribution, cfg.num, salted(cfg, "multi", session))
    work = make_work(session, cfg, stream, GET)
    driver = session.driver(replace(cfg, check_every=cfg.check_every * size))
    calls = 0
    until = Until(cfg, ops)
    while not until.over(driver.ops):
        some = -(-until.room(driver.ops, CHUNKS_AT_ONCE * size) // size)
        chunks = [work.take(size) for _ in range(some)]
        for i, got in driver.each(engine.multi_get, [chunk.keys for chunk in chunks], size):
            session.checker.chunk(chunks[i], list(enumerate(got)))
        calls += len(chunks)
        session.tick(driver.ops, until.total, driver.ns / 1e9)
    outcome = outcome_of(driver, session, calls)
    outcome.detail["batch_size"] = size
    return outcome


def new_iterator(session: Session, cfg: Settings) -> Outcome:
    engine = session.engine
    assert engine is not None
    driver = session.driver(replace(cfg, check_every=0))
    until = Until(cfg, min(cfg.reads or cfg.num, 200_000))
    while not until.over(driver.ops):
        driver.each(engine.new_iterator, [None] * until.room(driver.ops, 4096))
        session.tick(driver.ops, until.total, driver.ns / 1e9)
    return outcome_of(driver, session, driver.ops)


# -- whole-database operations ----------------------------------------------------------------------------


def timed_once(call: str) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        engine = session.engine
        assert engine is not None
        live = live_bytes(session, cfg)
        start = time.perf_counter()
        getattr(engine, call)()
        outcome = Outcome(1, time.perf_counter() - start, bytes=live if call == "compact" else 0)
        outcome.detail["live_bytes"] = live
        return outcome

    return run


def live_bytes(session: Session, cfg: Settings) -> int:
    """Bytes of keys and values that are in the database, exact for fixed sizes."""
    size = cfg.value_size if cfg.value_size_distribution == "fixed" else 0
    return session.ledger.present * (cfg.key_size + size)


def reopen(session: Session, cfg: Settings) -> Outcome:
    """Opening an existing database up to its first answer."""
    engine = session.engine
    assert engine is not None
    hist = Histogram()
    number = session.ledger.following(0)
    key = b"%0*d" % (cfg.key_size, number or 0)
    for _ in range(max(1, min(cfg.reads or 5, 5))):
        engine.close()
        start = time.perf_counter_ns()
        engine.open()
        got = engine.get(key)
        hist.record(time.perf_counter_ns() - start)
        session.checker.expect(
            key, got, session.checker.value(number or 0, session.ledger.generation(number or 0))
        )
    return Outcome(hist.count, hist.mean * hist.count / 1e9, hist=hist)


def print_text(what: str) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        engine = session.engine
        assert engine is not None
        return Outcome(lines=engine.text(what).splitlines())

    return run


# -- mixes ------------------------------------------------------------------------------------------------


def mixed(
    salt: str,
    weights: dict[str, float],
    distribution: str | None = None,
    scan: tuple[Any, ...] = ("uniform", 100),
) -> Run:
    """Operations by weight. `distribution` None takes the one of the settings."""

    def run(session: Session, cfg: Settings) -> Outcome:
        engine = session.engine
        assert engine is not None
        from .threads import run_threads

        seed = salted(cfg, salt, session)
        span = max(session.ledger.following(session.ledger.capacity - 1, -1) or 0, cfg.num - 1) + 1
        stream_of = streams(distribution or cfg.distribution, span)
        ops = cfg.reads or cfg.num

        def mix_of(stream: Stream, seed: int) -> Mix:
            return Mix(stream, weights, seed, scan)

        if cfg.threads > 1:
            outcome = run_threads(session, cfg, GET, stream_of, ops, salt=salt, mix_of=mix_of)
            outcome.found = None
            outcome.detail["weights"] = weights
            return outcome
        stream = stream_of(seed)
        mix = mix_of(stream, seed)
        driver = session.driver(cfg, get=engine.get, put=engine.put, delete=engine.delete, scan=engine.scan)
        work = make_work(session, cfg, stream, GET, mix=mix)
        pure = "scan" not in weights
        outcome = run_work(session, cfg, work, ops, driver, exact=pure)
        outcome.detail["weights"] = weights
        return outcome

    return run


def read_random_write_random(session: Session, cfg: Settings) -> Outcome:
    share = cfg.readwritepercent
    return mixed("rrwr", {"get": share, "put": 100 - share})(session, cfg)


def _while_writing(op: int) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        from .threads import while_writing

        return while_writing(session, cfg, op)

    return run


def _kernel(name: str) -> Run:
    def run(session: Session, cfg: Settings) -> Outcome:
        from .micro import KERNELS

        return KERNELS[name](session, cfg)

    return run


def _settle(session: Session, cfg: Settings) -> Outcome:
    from .. import resources as probe

    return Outcome(1, probe.settle())


def _synced(cfg: Settings) -> Settings:
    return replace(cfg, sync=True)


def _large(cfg: Settings) -> Settings:
    return replace(cfg, value_size=100_000, value_size_distribution="fixed")


def _pareto(cfg: Settings) -> Settings:
    return replace(cfg, value_size_distribution="pareto")


# YCSB's core workloads. Zipfian requests with exponent 0.99, scans of 1 to 100 records.
YCSB: dict[str, tuple[dict[str, float], str]] = {
    "ycsba": ({"get": 50, "put": 50}, "zipf:0.99"),
    "ycsbb": ({"get": 95, "put": 5}, "zipf:0.99"),
    "ycsbc": ({"get": 100}, "zipf:0.99"),
    "ycsbd": ({"get": 95, "insert": 5}, "latest"),
    "ycsbe": ({"scan": 95, "insert": 5}, "zipf:0.99"),
    "ycsbf": ({"get": 50, "update": 50}, "zipf:0.99"),
}

WORKLOADS: dict[str, Workload] = {
    "fillseq": Workload(fill("sequential"), "writes in key order", True, True, threads=True),
    "fillrandom": Workload(fill("uniform"), "writes in random order, keys repeat", True, True, threads=True),
    "filluniquerandom": Workload(fill("unique"), "writes each key once in random order", True, True, threads=True),
    "fillsync": Workload(fill("uniform", 0.001), "num/1000 writes, each synced", True, True, _synced, threads=True),
    "fill100k": Workload(fill("uniform", 0.001), "num/1000 writes of 100 kB values", True, True, _large, threads=True),
    "fillbatch": Workload(fill_batch, "random writes in batches of batch_size (1000)", True, True),
    "overwrite": Workload(change(PUT), "random writes over an existing database", writes=True, threads=True),
    "updaterandom": Workload(change(UPDATE), "random read-modify-writes", writes=True, threads=True),
    "deleteseq": Workload(delete_sequential, "deletes in key order", writes=True),
    "deleterandom": Workload(change(DELETE), "deletes in random order", writes=True, threads=True),
    "readseq": Workload(read_all(reverse=False), "iterates over all records", ordered=True),
    "readreverse": Workload(read_all(reverse=True), "iterates backwards", ordered=True),
    "readrandom": Workload(read_points("read"), "random reads", threads=True),
    "readmissing": Workload(
        read_points("miss", suffix=b"."), "reads of keys that lie between existing ones", threads=True
    ),
    "readhot": Workload(read_points("hot", share=0.01), "random reads in 1 % of the key space", threads=True),
    "multireadrandom": Workload(multi_read, "random reads, batch_size (100) keys per call"),
    "seekrandom": Workload(seek_random, "random seeks, each followed by seek_nexts steps", ordered=True, threads=True),
    "newiterator": Workload(new_iterator, "makes iterators", ordered=True),
    "readwhilewriting": Workload(
        _while_writing(GET), "random reads while one thread writes", writes=True, threads=True
    ),
    "seekrandomwhilewriting": Workload(
        _while_writing(SCAN), "random seeks while one thread writes", writes=True, ordered=True, threads=True
    ),
    "readrandomwriterandom": Workload(
        read_random_write_random, "readwritepercent reads, the rest writes", writes=True, threads=True
    ),
    "mixgraph": Workload(
        mixed("graph", {"get": 83, "put": 14, "scan": 3}, "power", ("pareto", 0.0, 2.517, 14.236, 10000)),
        "83 % get, 14 % put, 3 % scan; power-law keys, Pareto values and scan lengths",
        writes=True,
        prepare=_pareto,
        ordered=True,
        threads=True,
    ),
    "compact": Workload(timed_once("compact"), "compacts the whole key range", writes=True),
    "flush": Workload(timed_once("flush"), "writes the memtable out", writes=True),
    "open": Workload(reopen, "reopens the database, to the first answer"),
    "settle": Workload(_settle, "waits until background work rests"),
    "stats": Workload(print_text("stats"), "prints the engine's statistics"),
    "levelstats": Workload(print_text("levelstats"), "prints files and bytes per level"),
    "sstables": Workload(print_text("sstables"), "prints the tables"),
    "filterstats": Workload(print_text("filterstats"), "prints what the filters saved"),
    **{
        name: Workload(
            mixed(name, weights, kind),
            f"YCSB {name[-1].upper()}: "
            + ", ".join(f"{w:g} % {op}" for op, w in weights.items())
            + f", {kind}",
            writes=set(weights) != {"get"},
            ordered="scan" in weights,
            threads=True,
        )
        for name, (weights, kind) in YCSB.items()
    },
    **{
        name: Workload(_kernel(name), what)
        for name, what in {
            "bloomadd": "adds keys to a standalone filter",
            "bloomprobe": "probes a standalone filter with absent keys",
            "xxh3": "hashes blocks of block_size with XXH3-64",
            "lz4comp": "compresses blocks with LZ4",
            "lz4decomp": "decompresses blocks with LZ4",
        }.items()
    },
}


def find(name: str) -> Workload:
    if name not in WORKLOADS:
        from difflib import get_close_matches

        near = get_close_matches(name, WORKLOADS, n=1)
        raise ValueError(f"no benchmark {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return WORKLOADS[name]


__all__ = ["WORKLOADS", "Outcome", "Workload", "find", "run_work"]

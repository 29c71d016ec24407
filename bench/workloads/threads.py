"""Workloads with several Python threads on one database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..native.latency import Driver, Histogram
from ..native.workload import KeyGenerator, OperationMix
from ..session import Session
from ..settings import Settings
from .loop import KeySource, Run, derive_seed, key_source
from .operations import GET, PUT, SCAN, UPDATE, Chunk, Operations, chunk_size, largest_value
from .outcome import Outcome

# Operations generated in advance per thread, and bytes of their values. Longer runs repeat them.
PREPARED = 1 << 18
PREPARED_BYTES = 256 << 20
UNLIMITED = 1 << 62


class ThreadState:
    """The chunks of one thread, generated in advance, and the driver that runs them."""

    def __init__(self, operations: Operations, ops: int, driver: Driver, cfg: Settings) -> None:
        size = min(chunk_size(cfg), 4096)
        count = min(ops, PREPARED)
        if operations.writes:
            count = min(count, max(1, PREPARED_BYTES // max(1, largest_value(cfg))))
        self.chunks: list[Chunk] = [operations.take(min(size, count - at), apply=False) for at in range(0, count, size)]
        self.state = operations.state
        self.driver = driver
        self.kept: list[tuple[Chunk, list[tuple[int, Any]]]] = []
        self.prepared_bytes = sum(chunk.user_bytes for chunk in self.chunks)
        self.count = count

    def run(self, ops: int, stop: Callable[[], bool]) -> None:
        done = 0
        while not stop():
            for chunk in self.chunks:
                if stop() or done >= ops:
                    return
                part = chunk.first(ops - done)
                kept = self.driver.run(part.codes, part.keys, part.values, part.lengths)
                self.kept.append((part, kept))
                done += len(part.keys)

    def write_until(self, over: threading.Event, rate: int) -> None:
        """Write until `over` is set, at `rate` writes per second in steps of 10 ms."""
        start, step = time.perf_counter(), max(1, rate // 100)
        at = 0
        while not over.is_set():
            chunk = self.chunks[at % len(self.chunks)]
            at += 1
            for low in range(0, len(chunk.keys), step if rate else len(chunk.keys)):
                high = min(low + step, len(chunk.keys)) if rate else len(chunk.keys)
                values = chunk.values[low:high] if chunk.values is not None else None
                self.driver.run(chunk.codes[low:high], chunk.keys[low:high], values)
                due = start + self.driver.ops / rate if rate else 0.0
                if over.is_set() or (rate and over.wait(max(0.0, due - time.perf_counter()))):
                    return

    def apply_writes(self) -> None:
        """Apply the writes that ran to the expected state."""
        left = self.driver.ops
        for chunk in self.chunks:
            n = min(left, len(chunk.keys))
            self.state.apply(chunk.codes[:n], chunk.numbers[:n], chunk.generation)
            left -= n

    def bytes_written(self) -> int:
        return round(self.prepared_bytes * self.driver.ops / self.count) if self.count else 0


def _start(
    targets: list[Callable[[], None]],
) -> tuple[list[threading.Thread], threading.Barrier, list[BaseException]]:
    """Threads that wait at a barrier, and the list for their exceptions."""
    barrier = threading.Barrier(len(targets) + 1)
    failures: list[BaseException] = []

    def body(target: Callable[[], None]) -> None:
        barrier.wait()
        try:
            target()
        except BaseException as error:  # the caller raises it
            failures.append(error)

    threads = [threading.Thread(target=body, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    return threads, barrier, failures


def _join(session: Session, threads: list[threading.Thread], states: list[ThreadState], total: int | None) -> None:
    """Wait for the threads and report progress."""
    start = time.perf_counter()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.05)
        session.tick(sum(s.driver.ops for s in states), total, time.perf_counter() - start)


def _driver(session: Session, cfg: Settings) -> Driver:
    engine = session.engine
    hist = Histogram() if cfg.latency else None
    return Driver(
        engine.get,
        engine.put,
        engine.delete,
        engine.scan,
        hist=hist,
        check_every=cfg.check_every,
        threaded=True,
    )


def _thread_state(
    session: Session,
    cfg: Settings,
    op: int,
    source: KeySource,
    ops: int,
    thread: int,
    *,
    salt: str,
    make_mix: Callable[[KeyGenerator, int], OperationMix] | None = None,
    **more: Any,
) -> ThreadState:
    seed = derive_seed(cfg, f"{salt}{op}", session) + 7919 * (thread + 1)
    keys = source(seed)
    mix = make_mix(keys, seed) if make_mix is not None else None
    operations = Operations(cfg, session.state, session.values(cfg), session.generation, keys, op, mix=mix, **more)
    return ThreadState(operations, ops, _driver(session, cfg), cfg)


def _outcome(session: Session, states: list[ThreadState], seconds: float, failures: list[BaseException]) -> Outcome:
    """Verify the answers of all threads and sum up what they did."""
    if failures:
        raise failures[0]
    hist = Histogram()
    for state in states:
        if state.driver.hist is not None:
            hist.merge(state.driver.hist)
        for chunk, kept in state.kept:
            session.verifier.chunk(chunk, kept, exact=False)
        state.apply_writes()
    ops = sum(s.driver.ops for s in states)
    written = sum(s.bytes_written() for s in states)
    moved = written + sum(s.driver.bytes_read for s in states)
    cpu = sum(s.driver.cpu_ns for s in states) / 1e9
    return Outcome(ops, seconds, None, moved, written, hist if hist.count else None, cpu)


def _histograms(states: list[ThreadState]) -> list[Histogram]:
    return [state.driver.hist for state in states if state.driver.hist is not None]


def run_threads(session: Session, cfg: Settings, op: int, source: KeySource, ops: int, **more: Any) -> Outcome:
    """Run `ops` operations in each of `threads` threads."""
    if op in (PUT, UPDATE) or "make_mix" in more:
        session.next_generation(cfg)
    states = [_thread_state(session, cfg, op, source, ops, t, **more) for t in range(cfg.threads)]
    session.recording = _histograms(states)
    deadline = time.perf_counter() + cfg.duration if cfg.duration else None

    def stop() -> bool:
        return deadline is not None and time.perf_counter() >= deadline

    limit = ops if deadline is None else UNLIMITED
    threads, barrier, failures = _start([lambda s=s: s.run(limit, stop) for s in states])  # type: ignore[misc]
    barrier.wait()
    start = time.perf_counter()
    _join(session, threads, states, None if deadline else ops * cfg.threads)
    outcome = _outcome(session, states, time.perf_counter() - start, failures)
    if op == GET:
        outcome.found = sum(s.driver.found for s in states)
    return outcome


def while_writing(op: int) -> Run:
    """`threads` readers, which are timed, beside one writer at `rate` writes per second."""

    def run(session: Session, cfg: Settings) -> Outcome:
        ops = cfg.reads or cfg.num
        length = max(1, cfg.seek_nexts) if op == SCAN else 1
        salt, source = cfg.distribution, key_source(cfg.distribution, cfg.num)
        readers = [
            _thread_state(session, cfg, op, source, ops, t, salt=salt, scan_length=length) for t in range(cfg.threads)
        ]
        session.recording = _histograms(readers)
        session.next_generation(cfg)
        writer = _thread_state(session, cfg, PUT, source, PREPARED // 4, 1000, salt=salt)
        over = threading.Event()
        deadline = time.perf_counter() + cfg.duration if cfg.duration else None

        def stop() -> bool:
            return over.is_set() or (deadline is not None and time.perf_counter() >= deadline)

        limit = ops if deadline is None else UNLIMITED
        targets = [lambda r=r: r.run(limit, stop) for r in readers]  # type: ignore[misc]
        threads, barrier, failures = _start([*targets, lambda: writer.write_until(over, cfg.rate)])
        barrier.wait()
        start = time.perf_counter()
        _join(session, threads[:-1], readers, None if deadline else ops * cfg.threads)
        seconds = time.perf_counter() - start
        over.set()
        threads[-1].join()
        outcome = _outcome(session, readers, seconds, failures)
        writer.apply_writes()
        outcome.written = writer.bytes_written()
        outcome.detail.update(writes=writer.driver.ops, writes_per_second=writer.driver.ops / seconds, rate=cfg.rate)
        return outcome

    return run

"""Workloads with several Python threads on one database: what a Python user has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..native.latency import Driver, Histogram
from ..native.workload import Mix, Stream
from ..session import Outcome, Session
from ..settings import Settings
from .operations import GET, PUT, SCAN, UPDATE, Chunk, Work, chunk_size, distribution_stream, largest_value

# Operations made ahead per thread, and bytes of their values; longer runs go through them again.
PREPARED = 1 << 18
PREPARED_BYTES = 256 << 20


class _Player:
    """One thread's prepared chunks and the driver that runs them."""

    def __init__(self, work: Work, ops: int, driver: Driver, cfg: Settings) -> None:
        size = min(chunk_size(cfg), 4096)
        count = min(ops, PREPARED)
        if work.writes:
            count = min(count, max(1, PREPARED_BYTES // max(1, largest_value(cfg))))
        self.chunks: list[Chunk] = [
            work.take(min(size, count - at), apply=False) for at in range(0, count, size)
        ]
        self.ledger = work.ledger
        self.driver = driver
        self.kept: list[tuple[Chunk, list[tuple[int, Any]]]] = []
        self.sent = sum(chunk.user_bytes for chunk in self.chunks)
        self.count = count

    def play(self, ops: int, stop: Callable[[], bool]) -> None:
        done = 0
        while not stop():
            for chunk in self.chunks:
                if stop() or done >= ops:
                    return
                part = chunk.first(ops - done)
                kept = self.driver.run(part.codes, part.keys, part.values, part.lengths)
                self.kept.append((part, kept))
                done += len(part.keys)

    def enter(self) -> None:
        """Enters the writes that were really made in the ledger."""
        left = self.driver.ops
        for chunk in self.chunks:
            n = min(left, len(chunk.keys))
            self.ledger.play(chunk.codes[:n], chunk.numbers[:n], chunk.generation)
            left -= n

    def written(self) -> int:
        return round(self.sent * self.driver.ops / self.count) if self.count else 0


def _spawn(
    targets: list[Callable[[], None]],
) -> tuple[list[threading.Thread], threading.Barrier, list[BaseException]]:
    """Threads that start together; what one of them raises is kept for the caller."""
    gate = threading.Barrier(len(targets) + 1)
    failures: list[BaseException] = []

    def body(target: Callable[[], None]) -> None:
        gate.wait()
        try:
            target()
        except BaseException as error:  # a thread has no caller to raise to
            failures.append(error)

    threads = [threading.Thread(target=body, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    return threads, gate, failures


def _watch(
    session: Session, threads: list[threading.Thread], players: list[_Player], total: int | None
) -> None:
    start = time.perf_counter()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.05)
        session.tick(sum(p.driver.ops for p in players), total, time.perf_counter() - start)


def _driver(session: Session, cfg: Settings) -> Driver:
    engine = session.engine
    assert engine is not None
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


def _player(
    session: Session,
    cfg: Settings,
    op: int,
    stream_of: Callable[[int], Stream],
    ops: int,
    thread: int,
    *,
    salt: str,
    mix_of: Callable[[Stream, int], Mix] | None = None,
    **more: Any,
) -> _Player:
    from .registry import salted

    seed = salted(cfg, f"{salt}{op}", session) + 7919 * (thread + 1)
    stream = stream_of(seed)
    mix = mix_of(stream, seed) if mix_of is not None else None
    work = Work(cfg, session.ledger, session.values(cfg), session.generation, stream, op, mix=mix, **more)
    return _Player(work, ops, _driver(session, cfg), cfg)


def _finish(
    session: Session, players: list[_Player], seconds: float, failures: list[BaseException]
) -> Outcome:
    if failures:
        raise failures[0]
    hist = Histogram()
    for player in players:
        if player.driver.hist is not None:
            hist.merge(player.driver.hist)
        for chunk, kept in player.kept:
            session.checker.chunk(chunk, kept, exact=False)
        player.enter()
    ops = sum(p.driver.ops for p in players)
    written = sum(p.written() for p in players)
    moved = written + sum(p.driver.bytes_read for p in players)
    cpu = sum(p.driver.cpu_ns for p in players) / 1e9
    return Outcome(ops, seconds, None, moved, written, hist if hist.count else None, cpu)


def run_threads(
    session: Session, cfg: Settings, op: int, stream_of: Callable[[int], Stream], ops: int, **more: Any
) -> Outcome:
    """`threads` threads, each doing `ops` operations of one kind, or of a mix."""
    if op in (PUT, UPDATE) or "mix_of" in more:
        session.next_generation(cfg)
    players = [_player(session, cfg, op, stream_of, ops, t, **more) for t in range(cfg.threads)]
    _show_live(session, players)
    deadline = time.perf_counter() + cfg.duration if cfg.duration else None

    def stop() -> bool:
        return deadline is not None and time.perf_counter() >= deadline

    limit = ops if deadline is None else 1 << 62
    threads, gate, failures = _spawn([lambda p=p: p.play(limit, stop) for p in players])  # type: ignore[misc]
    gate.wait()
    start = time.perf_counter()
    _watch(session, threads, players, None if deadline else ops * cfg.threads)
    outcome = _finish(session, players, time.perf_counter() - start, failures)
    if op == GET:
        outcome.found = sum(p.driver.found for p in players)
    return outcome


def _show_live(session: Session, players: list[_Player]) -> None:
    """Their latencies are those of the progress line."""
    session.recording = [player.driver.hist for player in players if player.driver.hist is not None]


def while_writing(session: Session, cfg: Settings, op: int) -> Outcome:
    """`threads` timed readers, and a writer until they are done, at `rate` writes a second if that is set."""
    ops = cfg.reads or cfg.num
    length = max(1, cfg.seek_nexts) if op == SCAN else 1
    kind = cfg.distribution

    def stream_of(seed: int) -> Stream:
        return distribution_stream(kind, cfg.num, seed)

    readers = [
        _player(session, cfg, op, stream_of, ops, t, salt=kind, scan_length=length)
        for t in range(cfg.threads)
    ]
    _show_live(session, readers)
    session.next_generation(cfg)
    writer = _player(session, cfg, PUT, stream_of, PREPARED // 4, 1000, salt=kind)
    over = threading.Event()
    deadline = time.perf_counter() + cfg.duration if cfg.duration else None

    def stop() -> bool:
        return over.is_set() or (deadline is not None and time.perf_counter() >= deadline)

    limit = ops if deadline is None else 1 << 62
    targets = [lambda p=p: p.play(limit, stop) for p in readers]  # type: ignore[misc]
    threads, gate, failures = _spawn([*targets, lambda: _write(writer, cfg.rate, over)])
    gate.wait()
    start = time.perf_counter()
    _watch(session, threads[:-1], readers, None if deadline else ops * cfg.threads)
    seconds = time.perf_counter() - start
    over.set()
    threads[-1].join()
    outcome = _finish(session, readers, seconds, failures)
    writer.enter()
    outcome.written = writer.written()
    outcome.detail.update(
        writes=writer.driver.ops, writes_per_second=writer.driver.ops / seconds, rate=cfg.rate
    )
    return outcome


def _write(writer: _Player, rate: int, over: threading.Event) -> None:
    """Writes until told to stop. A rate is kept in steps of a hundredth of a second."""
    start, step = time.perf_counter(), max(1, rate // 100)
    at = 0
    while not over.is_set():
        chunk = writer.chunks[at % len(writer.chunks)]
        at += 1
        for low in range(0, len(chunk.keys), step if rate else len(chunk.keys)):
            high = min(low + step, len(chunk.keys)) if rate else len(chunk.keys)
            values = chunk.values[low:high] if chunk.values is not None else None
            writer.driver.run(chunk.codes[low:high], chunk.keys[low:high], values)
            due = start + writer.driver.ops / rate if rate else 0.0
            if over.is_set() or (rate and over.wait(max(0.0, due - time.perf_counter()))):
                return

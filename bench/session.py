"""One engine in one process: its database, what must be in it, and the measuring of a workload."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import resources as probe
from .engines import Engine, engine_class
from .native.latency import Driver, Histogram, timer_cost
from .native.workload import Ledger, Values
from .settings import Settings
from .workloads.operations import value_sizes
from .workloads.verify import Checker

STALL_NS = 10_000_000  # an operation longer than this is counted as a stall, for every engine
PERCENTILES = (50, 75, 99, 99.9, 99.99)

# Settings that an open database cannot change: a step that differs in one reopens it.
OPEN_FIELDS = (
    "cache_size",
    "bits_per_key",
    "optimize_filters_for_hits",
    "block_size",
    "write_buffer_size",
    "max_write_buffers",
    "sync",
    "disable_wal",
    "compression",
)


class Refused(Exception):
    """The engine or the folder cannot be used with these settings."""


Emit = Callable[[dict[str, Any]], None]


@dataclass
class Outcome:
    """What a workload did. Everything else of a result is measured around it."""

    ops: int = 0
    seconds: float = 0.0
    found: int | None = None  # None where "found" means nothing
    bytes: int = 0  # moved to or from the user: keys and values
    written: int = 0  # of these, written: what write amplification is relative to
    hist: Histogram | None = None
    cpu: float | None = None  # processor seconds of the threads that did it, None if not measured
    lines: list[str] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    timer_ns: float = 0.0  # what recording a latency cost, already taken off `seconds`


class Session:
    def __init__(self, engine: str, folder: str, settings: Settings, emit: Emit) -> None:
        self.settings = settings
        self.emit = emit
        self.folder = folder
        self.path = os.path.join(folder, "db")
        self.engine_type = engine_class(engine)
        self.engine: Engine | None = None
        self.opened: Settings | None = None
        self.ledger = Ledger(settings.num)
        self.checker = Checker(self.ledger, settings.key_size)
        self.generation = 0
        self.turn = 0  # which run of which step: part of every stream's seed
        self.user_bytes = 0  # written since the database was made
        self.stored = 0  # bytes that reached storage since then
        self.timer_ns = timer_cost() if settings.latency else 0.0
        self._makers: dict[tuple[Any, ...], Values] = {}
        self.recording: list[Histogram] = []  # of the workload under way, one for each thread
        self._last_tick = 0.0
        self._series: list[tuple[float, int]] = []
        self.base_rss = probe.rss()
        self.base_anon = probe.rss_anon()

    # -- the database -----------------------------------------------------------------------------------

    def ensure(self, cfg: Settings, *, fresh: bool) -> Engine:
        """The open engine with `cfg`'s options; a new empty database if `fresh`."""
        if fresh:
            self.close()
            if os.path.isdir(self.path):
                shutil.rmtree(self.path)
            self.engine = None
            self.ledger.clear()
            self.user_bytes = self.stored = 0
        if self.engine is not None and self.opened is not None and _differs(self.opened, cfg):
            self.engine.close()
            self.opened = None
            self.engine.settings = cfg
        if self.engine is None:
            os.makedirs(self.path, exist_ok=True)
            self.engine = self.engine_type(self.path, cfg)
        if self.opened is None:
            try:
                self.engine.open()
            except Exception as error:
                raise Refused(f"cannot open its database: {error}") from error
            self.opened = cfg
        return self.engine

    def close(self) -> None:
        if self.engine is not None and self.opened is not None:
            self.engine.close()
        self.opened = None

    # -- what was written -------------------------------------------------------------------------------

    def values(self, cfg: Settings) -> Values:
        recipe = (*value_sizes(cfg), cfg.compression_ratio)
        if recipe not in self._makers:
            self._makers[recipe] = Values(cfg.seed, value_sizes(cfg), cfg.compression_ratio)
        return self._makers[recipe]

    def next_generation(self, cfg: Settings) -> int:
        self.generation = self.generation % 255 + 1
        self.checker.makers[self.generation] = self.values(cfg)
        return self.generation

    def _sidecar(self) -> Path:
        return Path(self.folder) / "ledger"

    def save(self) -> None:
        """Leaves what the database must hold beside it, for a later run with `use_existing_db`."""
        self._sidecar().write_bytes(bytes([self.generation]) + self.ledger.to_bytes())

    def restore(self, cfg: Settings) -> None:
        if not self._sidecar().exists():
            raise Refused(f"use_existing_db: no earlier run left its ledger in {self.folder}")
        data = self._sidecar().read_bytes()
        self.generation = data[0]
        self.ledger.load(data[1:])
        self.checker.makers = {g: self.values(cfg) for g in range(1, 256) if g in set(data[1:])}

    # -- measuring --------------------------------------------------------------------------------------

    def driver(self, cfg: Settings, **calls: Any) -> Driver:
        """A driver whose histogram feeds the progress line."""
        hist = Histogram() if cfg.latency else None
        self.recording = [hist] if hist is not None else []
        return Driver(**calls, hist=hist, check_every=cfg.check_every)

    def tick(self, done: int, total: int | None, seconds: float) -> None:
        """Between chunks: reports progress now and then, never inside the clock."""
        now = time.perf_counter()
        if now - self._last_tick < self.settings.report_interval_seconds:
            return
        self._last_tick = now
        self._series.append((round(seconds, 4), done))
        event = {"event": "progress", "done": done, "total": total, "seconds": seconds}
        if self.recording:
            hist = Histogram()
            for one in self.recording:
                hist.merge(one)
            event["p99"] = hist.percentile(99)
            event["stalls"] = hist.above(STALL_NS)[0]
        self.emit(event)

    @contextmanager
    def measured(self) -> Iterator[dict[str, Any]]:
        """Resources used in the block, settling included if the block asks for it."""
        probe.reset_peak()
        self._series = []
        self.recording = []
        self._last_tick = time.perf_counter()
        before = probe.Usage.now()
        used: dict[str, Any] = {}
        yield used
        spent = probe.Usage.now().since(before)
        if spent.written is not None:
            self.stored += spent.written
        used.update(
            wall_seconds=spent.wall,
            cpu_seconds=spent.cpu,
            stored_bytes=spent.written,
            rss_peak=probe.rss_peak(),
            rss=probe.rss(),
            rss_anon=probe.rss_anon(),
            rss_base=self.base_rss,
            rss_anon_base=self.base_anon,
            disk=probe.disk_size(self.path),
            series=list(self._series),
        )

    def result(self, name: str, cfg: Settings, outcome: Outcome, used: dict[str, Any]) -> dict[str, Any]:
        """The record that goes into the JSON file."""
        self.user_bytes += outcome.written
        seconds = outcome.seconds
        amplification = self.stored / self.user_bytes if self.user_bytes and self.stored else None
        record: dict[str, Any] = {
            "workload": name,
            "ops": outcome.ops,
            "seconds": seconds,
            "micros_per_op": seconds * 1e6 / outcome.ops if outcome.ops else None,
            "cpu_micros_per_op": outcome.cpu * 1e6 / outcome.ops if outcome.cpu and outcome.ops else None,
            "ops_per_second": outcome.ops / seconds if seconds else None,
            "mb_per_second": outcome.bytes / seconds / 1e6 if seconds and outcome.bytes else None,
            "found": outcome.found,
            "threads": cfg.threads,
            "user_bytes_written": outcome.written,
            "write_amplification": amplification,
            "checked": self.checker.checked,
            "timer_ns": outcome.timer_ns,
            "lines": outcome.lines,
            "detail": outcome.detail,
            **used,
        }
        if outcome.hist is not None and outcome.hist.count:
            record["latency"] = latency_record(outcome.hist)
        return record


def latency_record(hist: Histogram) -> dict[str, Any]:
    """Nanoseconds."""
    stalls, stalled = hist.above(STALL_NS)
    return {
        **{f"p{p:g}": hist.percentile(p) for p in PERCENTILES},
        "mean": hist.mean,
        "stddev": hist.stddev,
        "max": hist.max,
        "stalls": stalls,
        "stall_seconds": stalled / 1e9,
        "histogram": hist.to_dict(),
    }


def _differs(a: Settings, b: Settings) -> bool:
    return any(getattr(a, name) != getattr(b, name) for name in OPEN_FIELDS)

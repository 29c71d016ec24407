"""One engine in a worker process: its database, the expected contents, and the measurement of a workload."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import resources
from .engines import Engine, engine_class
from .native.latency import Driver, Histogram, timer_cost
from .native.workload import ExpectedState, ValueGenerator
from .settings import Settings
from .workloads.operations import value_generator, value_sizes
from .workloads.outcome import Outcome
from .workloads.verify import Verifier

STALL_NS = 10_000_000  # a longer operation counts as a stall
PERCENTILES = (50, 75, 99, 99.9, 99.99)

# Settings of an open database. A step that changes one reopens it.
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
    "large_value_threshold",
)


class Refused(Exception):
    """The engine or the folder does not work with these settings."""


Emit = Callable[[dict[str, Any]], None]


class Session:
    def __init__(self, engine: str, folder: str, settings: Settings, emit: Emit) -> None:
        self.settings = settings
        self.emit = emit
        self.folder = folder
        self.path = os.path.join(folder, "db")
        self.engine_type = engine_class(engine)
        self._engine: Engine | None = None
        self._opened: Settings | None = None  # the settings of the open database
        self.state = ExpectedState(settings.num)
        self.verifier = Verifier(self.state)
        self.generation = 0
        self.turn = 0  # number of the step and the repeat; part of every seed
        self.user_bytes = 0  # keys and values written since the database was created
        self.stored_bytes = 0  # bytes written to storage since then
        self.timer_ns = timer_cost() if settings.latency else 0.0
        self._generators: dict[tuple[Any, ...], ValueGenerator] = {}
        self.recording: list[Histogram] = []  # of the running workload, one per thread
        self._last_tick = 0.0
        self._series: list[tuple[float, int]] = []
        self.base_rss = resources.rss()
        self.base_anon = resources.rss_anon()

    # -- database ---------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def open(self, cfg: Settings, *, fresh: bool) -> Engine:
        """Open the engine with the options of `cfg`; `fresh` starts with an empty database."""
        if fresh:
            self.close()
            if os.path.isdir(self.path):
                shutil.rmtree(self.path)
            self._engine = None
            self.state.clear()
            self.user_bytes = self.stored_bytes = 0
        if self._engine is not None and self._opened is not None and _needs_reopen(self._opened, cfg):
            self.close()
            self._engine.settings = cfg
        if self._engine is None:
            os.makedirs(self.path, exist_ok=True)
            self._engine = self.engine_type(self.path, cfg)
        if self._opened is None:
            try:
                self._engine.open()
            except Exception as error:
                raise Refused(f"cannot open its database: {error}") from error
            self._opened = cfg
        return self._engine

    def close(self) -> None:
        if self._engine is not None and self._opened is not None:
            self._engine.close()
        self._opened = None

    # -- expected contents ------------------------------------------------------------------------------

    def values(self, cfg: Settings) -> ValueGenerator:
        key = (*value_sizes(cfg), cfg.compression_ratio, cfg.values)
        if key not in self._generators:
            self._generators[key] = value_generator(cfg)
        return self._generators[key]

    def next_generation(self, cfg: Settings) -> int:
        self.generation = self.generation % 255 + 1
        self.verifier.generators[self.generation] = self.values(cfg)
        return self.generation

    def _state_file(self) -> Path:
        return Path(self.folder) / "expected_state"

    def save(self) -> None:
        """Save the expected state beside the database, for a later run with `use_existing_db`."""
        self._state_file().write_bytes(bytes([self.generation]) + self.state.to_bytes())

    def restore(self, cfg: Settings) -> None:
        if not self._state_file().exists():
            raise Refused(f"use_existing_db: {self.folder} has no expected_state file of an earlier run")
        data = self._state_file().read_bytes()
        self.generation = data[0]
        self.state.load(data[1:])
        self.verifier.generators = {g: self.values(cfg) for g in range(1, 256) if g in set(data[1:])}

    # -- measurement ------------------------------------------------------------------------------------

    def driver(self, cfg: Settings, **calls: Any) -> Driver:
        """A driver whose histogram feeds the progress line."""
        hist = Histogram() if cfg.latency else None
        self.recording = [hist] if hist is not None else []
        return Driver(**calls, hist=hist, check_every=cfg.check_every)

    def tick(self, done: int, total: int | None, seconds: float) -> None:
        """Report progress if it is due. Called between chunks, outside the measured time."""
        now = time.perf_counter()
        if now - self._last_tick < self.settings.report_interval_seconds:
            return
        self._last_tick = now
        self._series.append((round(seconds, 4), done))
        event = {"event": "progress", "done": done, "total": total, "seconds": seconds}
        if self.recording:
            merged = Histogram()
            for hist in self.recording:
                merged.merge(hist)
            event["p99"] = merged.percentile(99)
            event["stalls"] = merged.above(STALL_NS)[0]
        self.emit(event)

    @contextmanager
    def measured(self) -> Iterator[dict[str, Any]]:
        """Measure the resources that the block uses."""
        resources.reset_peak()
        self._series = []
        self.recording = []
        self._last_tick = time.perf_counter()
        before = resources.Usage.now()
        used: dict[str, Any] = {}
        yield used
        spent = resources.Usage.now().since(before)
        if spent.written is not None:
            self.stored_bytes += spent.written
        used.update(
            wall_seconds=spent.wall,
            cpu_seconds=spent.cpu,
            system_seconds=spent.system,
            page_faults=spent.faults,
            user_seconds=spent.user,
            stored_bytes=spent.written,
            rss_peak=resources.rss_peak(),
            rss=resources.rss(),
            rss_anon=resources.rss_anon(),
            rss_base=self.base_rss,
            rss_anon_base=self.base_anon,
            disk=resources.disk_size(self.path),
            series=list(self._series),
        )

    def result(self, name: str, cfg: Settings, outcome: Outcome, used: dict[str, Any]) -> dict[str, Any]:
        """The record for the JSON file."""
        self.user_bytes += outcome.written
        seconds = outcome.seconds
        amplification = self.stored_bytes / self.user_bytes if self.user_bytes and self.stored_bytes else None
        user = used["user_seconds"] * 1e6 / outcome.ops if cfg.threads == 1 and outcome.ops else None
        record: dict[str, Any] = {
            "workload": name,
            "ops": outcome.ops,
            "seconds": seconds,
            "micros_per_op": seconds * 1e6 / outcome.ops if outcome.ops else None,
            "cpu_micros_per_op": outcome.cpu * 1e6 / outcome.ops if outcome.cpu and outcome.ops else None,
            "user_micros_per_op": user,
            "ops_per_second": outcome.ops / seconds if seconds else None,
            "mb_per_second": outcome.bytes / seconds / 1e6 if seconds and outcome.bytes else None,
            "found": outcome.found,
            "threads": cfg.threads,
            "user_bytes_written": outcome.written,
            "write_amplification": amplification,
            "checked": self.verifier.checked,
            "timer_ns": outcome.timer_ns,
            "lines": outcome.lines,
            "detail": outcome.detail,
            **used,
        }
        if outcome.hist is not None and outcome.hist.count:
            record["latency"] = latency_record(outcome.hist)
        return record


def latency_record(hist: Histogram) -> dict[str, Any]:
    """Latencies in nanoseconds."""
    stalls, stall_ns = hist.above(STALL_NS)
    return {
        **{f"p{p:g}": hist.percentile(p) for p in PERCENTILES},
        "mean": hist.mean,
        "stddev": hist.stddev,
        "max": hist.max,
        "stalls": stalls,
        "stall_seconds": stall_ns / 1e9,
        "histogram": hist.to_dict(),
    }


def _needs_reopen(a: Settings, b: Settings) -> bool:
    return any(getattr(a, name) != getattr(b, name) for name in OPEN_FIELDS)

"""Runs all engines side by side: one worker process per engine, which take turns step by step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .engines import BEFORE, NotInstalled, engine_class, version_of
from .report.machine import machine
from .report.results import Results
from .settings import Settings
from .worker import REFUSED, WRONG_ANSWER
from .workloads.benchmark_list import parse_steps
from .workloads.operations import check_distributions
from .workloads.registry import find


class RunFailed(Exception):
    """A wrong answer, or a worker that could not start or died."""


Listener = Callable[[dict[str, Any]], None]


def rotation(engines: list[str], turn: int) -> list[str]:
    """The engines in the order of this turn: each is first once."""
    shift = turn % len(engines) if engines else 0
    return engines[shift:] + engines[:shift]


def usable_engines(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """The versions of the engines that can run, and the reasons why others cannot."""
    versions: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in settings.engines:
        try:
            version = version_of(name)
        except NotInstalled as error:
            left_out[name] = str(error)
            continue
        max_key = engine_class(name).max_key
        if max_key is not None and settings.key_size > max_key:
            left_out[name] = f"{name}: keys are limited to {max_key} bytes, key_size is {settings.key_size}"
        else:
            versions[name] = version
    return versions, left_out


def run_all(settings: Settings, listen: Listener) -> Results:
    settings.resolved()
    _check_before(settings)
    steps = parse_steps(settings.benchmarks)
    for step in steps:
        cfg = find(step.name).settings(settings.with_flags(step.flags))
        check_distributions(cfg.resolved())
    versions, left_out = usable_engines(settings)
    if not versions:
        raise RunFailed("no engine to run: " + "; ".join(left_out.values()))
    results = Results(settings, versions=versions, left_out=left_out)
    root = settings.db or tempfile.mkdtemp(prefix="lsmkv-bench-")
    os.makedirs(root, exist_ok=True)
    results.machine = machine(root)
    try:
        for run in range(settings.runs):
            listen({"event": "run", "engines": list(versions), "run": run})
            _run_once(run, len(steps), root, results, listen)
    finally:
        if settings.db is None:
            shutil.rmtree(root, ignore_errors=True)
    return results


def _run_once(run: int, steps: int, root: str, results: Results, listen: Listener) -> None:
    """All engines run the first step, then all run the second: they are compared seconds apart."""
    names = list(results.versions)
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(name, run, root, results, listen)) for name in names}
        for worker in workers.values():
            worker.prepare()
        for step in range(steps):
            for name in rotation(names, run + step):
                workers[name].run_step()
        for worker in workers.values():
            worker.finish()


def environment(engine: str, before: str | None) -> dict[str, str]:
    """What a worker process runs with. That of `before` imports lsmkv from the other checkout."""
    if engine != BEFORE or before is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.path.abspath(before)}


def _check_before(settings: Settings) -> None:
    if BEFORE not in settings.engines:
        return
    if not settings.before or not os.path.isdir(os.path.join(settings.before, "lsmkv_ext")):
        raise ValueError(f"the engine {BEFORE} needs --before FOLDER, a checkout of lsmkv built in place")


# Marks the folders that a run created. Only those are ever deleted.
MARKER = "made-by-lsmkv-bench"


def _make_empty(folder: str) -> None:
    """Create the folder, in place of one that an earlier run left."""
    if os.path.isdir(folder) and os.listdir(folder):
        if not os.path.isfile(os.path.join(folder, MARKER)):
            raise ValueError(f"{folder} exists and was not created by lsmkv-bench; remove it or choose another --db")
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, MARKER), "w", encoding="utf-8"):
        pass


class Worker:
    """The process of one engine. It is stopped, with its background threads, while another engine runs."""

    def __init__(self, engine: str, run: int, root: str, results: Results, listen: Listener) -> None:
        self.engine = engine
        self.run = run
        self.results = results
        self.listen = listen
        settings = results.settings
        self.folder = os.path.join(root, engine)
        if not settings.use_existing_db:
            _make_empty(self.folder)
        os.makedirs(self.folder, exist_ok=True)
        self.keep = settings.db is not None
        command = [sys.executable, "-m", "lsmkv_bench.worker"]
        env = environment(engine, settings.before)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self) -> None:
        """Import modules and measure the cost of the timer, while no other worker runs."""
        settings = self.results.settings.to_dict()
        command = {"settings": settings, "engine": self.engine, "folder": self.folder, "keep": self.keep}
        self._take_turn(command, "ready")

    def run_step(self) -> None:
        self._take_turn({"go": True}, "turn")

    def finish(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._send({"go": False})
        self._receive("end")
        self._check(self.process.wait())

    def _take_turn(self, command: dict[str, Any], last: str) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._send(command)
        self._receive(last)
        self.process.send_signal(signal.SIGSTOP)

    def _send(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._check(self.process.wait())

    def _receive(self, last: str) -> None:
        """Handle events until the event `last`."""
        assert self.process.stdout is not None
        message = ""
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == last:
                return
            message = event.get("message", message)
            self._handle(event)
        self._check(self.process.wait(), message)

    def _check(self, code: int, message: str = "") -> None:
        if code == WRONG_ANSWER:
            raise RunFailed(f"{self.engine} gave a wrong answer: {message}")
        if code == REFUSED:
            raise RunFailed(f"{self.engine}: {message}")
        if code:
            raise RunFailed(f"{self.engine}: {message or f'its process ended with {code}'}")

    def _handle(self, event: dict[str, Any]) -> None:
        event.update(engine=self.engine, run=self.run)
        results = self.results
        if event["event"] == "result":
            event["result"].update(engine=self.engine, run=self.run)
            results.results.append(event["result"])
        elif event["event"] == "mapping":
            results.mappings.setdefault(self.engine, event["mapping"])
        elif event["event"] == "skip" and self.run == 0:
            results.skipped.append({key: event[key] for key in ("engine", "workload", "message")})
        self.listen(event)

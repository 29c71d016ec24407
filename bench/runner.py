"""Runs every engine in a fresh process, step by step in rotating order, and gathers what the workers say."""

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
from dataclasses import dataclass, field
from typing import Any

from .engines import Missing, engine_class, version_of
from .settings import Settings
from .worker import REFUSED, WRONG
from .workloads.benchmark_list import parse_steps
from .workloads.operations import check_words
from .workloads.registry import find

SCHEMA = 1


class RunFailed(Exception):
    """An engine gave a wrong answer, could not begin, or its process died."""


@dataclass
class Gathered:
    """All results of one invocation."""

    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    mappings: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "command": self.command,
            "machine": self.machine,
            "versions": self.versions,
            "left_out": self.left_out,
            "settings": self.settings.to_dict(),
            "mappings": self.mappings,
            "skipped": self.skipped,
            "results": self.results,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Gathered:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"result file has schema {data.get('schema')!r}, this program reads {SCHEMA}")
        names = ("results", "versions", "left_out", "mappings", "skipped", "machine", "command")
        try:
            return cls(Settings.from_dict(data["settings"]), **{name: data[name] for name in names})
        except (KeyError, TypeError) as error:
            raise ValueError(f"result file is not complete: {error}") from None


Listener = Callable[[dict[str, Any]], None]


def rotation(engines: list[str], turn: int) -> list[str]:
    """The engines' order: each one comes first in turn."""
    shift = turn % len(engines) if engines else 0
    return engines[shift:] + engines[:shift]


def installed(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the engines that are there, and why the others are not."""
    versions: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in settings.engines:
        try:
            version = version_of(name)
        except Missing as error:
            left_out[name] = str(error)
            continue
        longest = engine_class(name).max_key
        if longest is not None and settings.key_size > longest:
            left_out[name] = f"{name}: its keys have at most {longest} bytes, not {settings.key_size}"
        else:
            versions[name] = version
    return versions, left_out


def run_all(settings: Settings, listen: Listener) -> Gathered:
    from .machine import machine

    settings.resolved()
    steps = parse_steps(settings.benchmarks)
    for step in steps:
        cfg = find(step.name).settings(settings.but(step.flags))
        check_words(cfg.resolved())
    versions, left_out = installed(settings)
    if not versions:
        raise RunFailed("no engine is left to run: " + "; ".join(left_out.values()))
    gathered = Gathered(settings, versions=versions, left_out=left_out)
    root = settings.db or tempfile.mkdtemp(prefix="lsmkv-bench-")
    os.makedirs(root, exist_ok=True)
    gathered.machine = machine(root)
    try:
        for run in range(settings.runs):
            listen({"event": "run", "engines": list(versions), "run": run})
            _run_once(run, len(steps), root, gathered, listen)
    finally:
        if settings.db is None:
            shutil.rmtree(root, ignore_errors=True)
    return gathered


def _run_once(run: int, steps: int, root: str, gathered: Gathered, listen: Listener) -> None:
    """Every engine does the first step, then every engine the second: what is compared was measured seconds apart."""
    names = list(gathered.versions)
    with ExitStack() as workers:
        team = {name: workers.enter_context(Worker(name, run, root, gathered, listen)) for name in names}
        for worker in team.values():
            worker.get_ready()
        for step in range(steps):
            for name in rotation(names, run + step):
                team[name].take_turn()
        for worker in team.values():
            worker.finish()


# In every folder that a run made, so that no other is ever removed: a user's own may have an engine's name.
MARK = "made-by-lsmkv-bench"


def _make_empty(folder: str) -> None:
    """A new folder in the place of what an earlier run left there."""
    if os.path.isdir(folder) and os.listdir(folder):
        if not os.path.isfile(os.path.join(folder, MARK)):
            raise ValueError(f"{folder} is in the way: no run of lsmkv-bench made it, so none removes it")
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, MARK), "w", encoding="utf-8"):
        pass


class Worker:
    """One engine's process. It stands still, its background threads too, while it is another's turn."""

    def __init__(self, engine: str, run: int, root: str, gathered: Gathered, listen: Listener) -> None:
        self.engine = engine
        self.run = run
        self.gathered = gathered
        self.listen = listen
        settings = gathered.settings
        self.folder = os.path.join(root, engine)
        if not settings.use_existing_db:
            _make_empty(self.folder)
        os.makedirs(self.folder, exist_ok=True)
        self.keep = settings.db is not None
        command = [sys.executable, "-m", "lsmkv_bench.worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def get_ready(self) -> None:
        """Imports, and what the timer costs: also a turn, in which nobody else runs."""
        orders = {"settings": self.gathered.settings.to_dict(), "engine": self.engine, "folder": self.folder}
        self.process.send_signal(signal.SIGCONT)
        self._say({**orders, "keep": self.keep})
        self._hear("ready")
        self.process.send_signal(signal.SIGSTOP)

    def take_turn(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._say({"go": True})
        self._hear("turn")
        self.process.send_signal(signal.SIGSTOP)

    def finish(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self._say({"go": False})
        self._hear("end")
        self._check(self.process.wait())

    def _say(self, words: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._check(self.process.wait())

    def _hear(self, last: str) -> None:
        """Takes what the worker says up to the event `last`."""
        assert self.process.stdout is not None
        message = ""
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == last:
                return
            message = event.get("message", message)
            self._take(event)
        self._check(self.process.wait(), message)

    def _check(self, code: int, message: str = "") -> None:
        if code == WRONG:
            raise RunFailed(f"{self.engine} gave a wrong answer: {message}")
        if code == REFUSED:
            raise RunFailed(f"{self.engine}: {message}")
        if code:
            raise RunFailed(f"{self.engine}: {message or f'its process ended with {code}'}")

    def _take(self, event: dict[str, Any]) -> None:
        event.update(engine=self.engine, run=self.run)
        gathered = self.gathered
        if event["event"] == "result":
            event["result"].update(engine=self.engine, run=self.run)
            gathered.results.append(event["result"])
        elif event["event"] == "mapping":
            gathered.mappings.setdefault(self.engine, event["mapping"])
        elif event["event"] == "skip" and self.run == 0:
            gathered.skipped.append({key: event[key] for key in ("engine", "workload", "message")})
        self.listen(event)

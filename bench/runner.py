"""Runs every engine in a fresh process, in rotating order, and gathers what the workers say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .engines import Missing, version_of
from .settings import Settings
from .steps import parse_steps
from .worker import WRONG
from .workloads import find

SCHEMA = 1


class RunFailed(Exception):
    """An engine gave a wrong answer or its process died."""


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
        return cls(Settings.from_dict(data["settings"]), **{name: data[name] for name in names})


Listener = Callable[[dict[str, Any]], None]


def rotation(engines: list[str], run: int) -> list[str]:
    """The engines' order in the given run: each one comes first in turn."""
    shift = run % len(engines) if engines else 0
    return engines[shift:] + engines[:shift]


def installed(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the engines that are there, and why the others are not."""
    versions: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in settings.engines:
        try:
            versions[name] = version_of(name)
        except Missing as error:
            left_out[name] = str(error)
    return versions, left_out


def run_all(settings: Settings, listen: Listener) -> Gathered:
    from .machine import machine

    settings.resolved()
    for step in parse_steps(settings.benchmarks):
        find(step.name)
        settings.but(step.flags)
    versions, left_out = installed(settings)
    gathered = Gathered(settings, versions=versions, left_out=left_out)
    root = settings.db or tempfile.mkdtemp(prefix="lsmkv-bench-")
    os.makedirs(root, exist_ok=True)
    gathered.machine = machine(root)
    try:
        for run in range(settings.runs):
            for engine in rotation(list(versions), run):
                listen({"event": "engine", "engine": engine, "run": run})
                _run_engine(engine, run, root, gathered, listen)
    finally:
        if settings.db is None:
            shutil.rmtree(root, ignore_errors=True)
    return gathered


def _run_engine(engine: str, run: int, root: str, gathered: Gathered, listen: Listener) -> None:
    settings = gathered.settings
    folder = os.path.join(root, engine)
    if not settings.use_existing_db and os.path.isdir(folder):
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    keep = settings.db is not None
    orders = {"settings": settings.to_dict(), "engine": engine, "folder": folder, "keep": keep}
    command = [sys.executable, "-m", "lsmkv_bench.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(orders))
            process.stdin.close()
            wrong = _listen(process.stdout, engine, run, gathered, listen)
        except BaseException:
            process.kill()
            raise
    if process.returncode == WRONG:
        raise RunFailed(f"{engine} gave a wrong answer: {wrong}")
    if process.returncode:
        raise RunFailed(f"{engine}: its process ended with {process.returncode}")
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


def _listen(lines: Any, engine: str, run: int, gathered: Gathered, listen: Listener) -> str:
    wrong = ""
    for line in lines:
        event = json.loads(line)
        event.update(engine=engine, run=run)
        if event["event"] == "result":
            event["result"].update(engine=engine, run=run)
            gathered.results.append(event["result"])
        elif event["event"] == "mapping":
            gathered.mappings.setdefault(engine, event["mapping"])
        elif event["event"] == "skip" and run == 0:
            gathered.skipped.append({key: event[key] for key in ("engine", "workload", "message")})
        elif event["event"] == "wrong":
            wrong = event["message"]
        listen(event)
    return wrong

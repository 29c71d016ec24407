"""The results of a run, and their JSON and CSV files."""

from __future__ import annotations

import csv
import errno
import json
import os
from dataclasses import dataclass, field
from typing import Any

from ..settings import Settings

SCHEMA = 1
COLUMNS = (
    "workload",
    "engine",
    "run",
    "repeat",
    "threads",
    "ops",
    "seconds",
    "micros_per_op",
    "cpu_micros_per_op",
    "ops_per_second",
    "mb_per_second",
    "found",
    "rss_peak",
    "rss_anon",
    "disk",
    "write_amplification",
    "cpu_seconds",
    "settle_seconds",
    "wall_seconds",
    "checked",
)
LATENCY_COLUMNS = ("p50", "p75", "p99", "p99.9", "p99.99", "max", "stalls", "stall_seconds")


@dataclass
class Results:
    """All results of one command. `mappings` has each engine's own settings."""

    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    mappings: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def engines(self) -> list[str]:
        """The engines that ran, in the given order. The others are compared with the first."""
        return [name for name in self.settings.engines if name in self.versions]

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
    def from_dict(cls, data: dict[str, Any]) -> Results:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"result file has schema {data.get('schema')!r}, expected {SCHEMA}")
        names = ("results", "versions", "left_out", "mappings", "skipped", "machine", "command")
        try:
            return cls(Settings.from_dict(data["settings"]), **{name: data[name] for name in names})
        except (KeyError, TypeError) as error:
            raise ValueError(f"result file is incomplete: {error}") from None


def _make_parent(path: str) -> None:
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)


def check_writable(path: str) -> None:
    """Raise OSError if `path` cannot be written."""
    _make_parent(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path if os.path.exists(path) else os.path.dirname(os.path.abspath(path)), os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def save_json(results: Results, path: str, *, slim: bool = False) -> None:
    """`slim` omits histograms and time series."""
    data = results.to_dict()
    if slim:
        data["results"] = [_slim(result) for result in data["results"]]
    save_text(json.dumps(data, indent=1 if slim else None) + "\n", path)


def _slim(result: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in result.items() if key not in ("series", "lines")}
    if "latency" in small:
        small["latency"] = {key: value for key, value in small["latency"].items() if key != "histogram"}
    return small


def save_text(text: str, path: str) -> None:
    _make_parent(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def load_json(path: str) -> Results:
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a result file of lsmkv-bench")
    return Results.from_dict(data)


def save_csv(results: Results, path: str) -> None:
    """One line per measurement; latencies in nanoseconds."""
    _make_parent(path)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *LATENCY_COLUMNS])
        for result in results.results:
            latency = result.get("latency", {})
            writer.writerow([*(result.get(c) for c in COLUMNS), *(latency.get(c) for c in LATENCY_COLUMNS)])

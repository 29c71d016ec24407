"""Result files."""

from __future__ import annotations

import csv
import errno
import json
import os
from typing import Any

from ..runner import Gathered

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


def _parent(path: str) -> None:
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)


def check_place(path: str) -> None:
    """A file that cannot be written is refused before the run, not after it."""
    _parent(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path if os.path.exists(path) else os.path.dirname(os.path.abspath(path)), os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def save_json(gathered: Gathered, path: str, *, slim: bool = False) -> None:
    """`slim` leaves out the raw histograms and time series: a file to commit."""
    data = gathered.to_dict()
    if slim:
        data["results"] = [_slim(result) for result in data["results"]]
    _parent(path)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1 if slim else None)
        file.write("\n")


def _slim(result: dict[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in result.items() if key not in ("series", "lines")}
    if "latency" in small:
        small["latency"] = {key: value for key, value in small["latency"].items() if key != "histogram"}
    return small


def save_text(text: str, path: str) -> None:
    _parent(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def load_json(path: str) -> Gathered:
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} is no result of lsmkv-bench")
    return Gathered.from_dict(data)


def save_csv(gathered: Gathered, path: str) -> None:
    """One line per measurement; latencies in nanoseconds."""
    _parent(path)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *LATENCY_COLUMNS])
        for result in gathered.results:
            latency = result.get("latency", {})
            writer.writerow([*(result.get(c) for c in COLUMNS), *(latency.get(c) for c in LATENCY_COLUMNS)])

"""What a workload reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..native.latency import Histogram


@dataclass
class Outcome:
    """What a workload did. The session measures memory, disk and write amplification around it."""

    ops: int = 0
    seconds: float = 0.0
    found: int | None = None  # reads that returned a value; None if it does not apply
    bytes: int = 0  # keys and values read or written
    written: int = 0  # keys and values written: the base of write amplification
    hist: Histogram | None = None
    cpu: float | None = None  # CPU seconds of the calling threads
    lines: list[str] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    timer_ns: float = 0.0  # cost of recording one latency, already subtracted from `seconds`

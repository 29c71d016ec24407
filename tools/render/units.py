"""Formatting and parsing of sizes, counts, ratios and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def size(n: float | None) -> str:
    if n is None:
        return "-"
    if abs(n) < 1024:
        return f"{n:.0f} B"
    power = min(4, (int(abs(n)).bit_length() - 1) // 10)
    n /= 1 << (10 * power)
    return f"{n:.{0 if abs(n) >= 100 else 1}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def count(n: float | None) -> str:
    return "-" if n is None else f"{n:,.0f}"


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def percent(x: float | None, digits: int = 2) -> str:
    if x is None:
        return "-"
    value = x * 100
    least = 10**-digits
    return f"<{least:.{digits}f} %" if 0 < value < 0.5 * least else f"{value:.{digits}f} %"


def ratio(x: float | None, digits: int = 2) -> str:
    return "-" if x is None else f"{x:.{digits}f}"


def duration(ns: float | None) -> str:
    if ns is None:
        return "-"
    for limit, unit, scale in ((1e3, "ns", 1), (1e6, "us", 1e3), (1e9, "ms", 1e6), (120e9, "s", 1e9)):
        if ns < limit:
            return f"{ns / scale:.0f} {unit}" if scale == 1 else f"{ns / scale:.1f} {unit}"
    minutes = ns / 60e9
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def moment(ms: float) -> str | None:
    """Return milliseconds since 1970 as a time in UTC; None for 0."""
    if not ms:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return "never"  # past the year 9999


def clock_text(moment_: str, *, seconds: bool = False) -> str:
    """Shorten a time of `moment` for people: without the T, and without the zone, which is UTC."""
    text = moment_.replace("T", " ").removesuffix("+00:00")
    return text[:19] if seconds else text


def bar(part: float, whole: float, width: int = 20) -> str:
    full = 0 if whole <= 0 else round(width * min(1.0, part / whole))
    if part > 0 and full == 0:
        full = 1
    return "#" * full + "." * (width - full)


def _whole(number: float) -> int:
    """Return a number as an integer. Raises ValueError if it is negative or cannot be one."""
    if not 0 <= number < math.inf:
        raise ValueError("expected a number from 0 on")
    return int(number)


_UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 1000,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 10**6,
    "g": 1 << 30,
    "gib": 1 << 30,
    "gb": 10**9,
    "t": 1 << 40,
    "tib": 1 << 40,
    "tb": 10**12,
}


def parse_size(text: str) -> int:
    """Parse `64M`, `1.5 GiB` or `4096` to bytes."""
    text = text.strip().replace("_", "").replace(",", "")
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    if unit not in _UNITS:
        raise ValueError(f"unknown unit {unit!r}")
    return _whole(float(digits) * _UNITS[unit])


_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def parse_count(text: str) -> int:
    """Parse `50M`, `2.5k` or `1_000_000`."""
    text = text.strip().replace("_", "").replace(",", "")
    unit = text[-1:].lower() if text[-1:].isalpha() else ""
    if unit not in _COUNTS:
        raise ValueError(f"unknown unit {unit!r}")
    return _whole(float(text[: len(text) - len(unit)]) * _COUNTS[unit])


_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def parse_duration(text: str) -> int:
    """Parse `100us`, `5ms` or `250 ns` to nanoseconds."""
    text = text.strip()
    for unit in ("ns", "us", "ms", "s"):
        if text.endswith(unit):
            return _whole(float(text[: -len(unit)]) * _TIMES[unit])
    raise ValueError("a time needs a unit: ns, us, ms or s")

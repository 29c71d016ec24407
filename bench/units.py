"""Sizes, counts and switches as text."""

from __future__ import annotations

_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """`4096`, `64k`, `64MB`, `1GiB` (powers of two)."""
    plain = text.strip().lower().removesuffix("b").removesuffix("i").replace("_", "")
    unit = plain[-1:] if plain[-1:] in _SIZE_UNITS else ""
    try:
        return int(float(plain.removesuffix(unit)) * _SIZE_UNITS[unit])
    except (ValueError, OverflowError):
        raise ValueError(f"not a size: {text!r}") from None


def parse_count(text: str) -> int:
    """`1000000`, `1e6`, `1_000_000`, `10k`, `1M` (powers of ten)."""
    plain = text.strip().lower().replace("_", "")
    factor = {"k": 1000, "m": 1_000_000}.get(plain[-1:], 1)
    try:
        return int(float(plain if factor == 1 else plain[:-1]) * factor)
    except (ValueError, OverflowError):
        raise ValueError(f"not a number: {text!r}") from None


def parse_bool(text: str) -> bool:
    low = text.strip().lower()
    if low in ("1", "true", "yes", "on"):
        return True
    if low in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"not a yes or no: {text!r}")


def format_size(size: float | None) -> str:
    """`1536` as `1.5 KiB`."""
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"

"""The parameters of the filters for Python, checked."""

from __future__ import annotations

from lsmkv_ext.filter.curve import bits_for_fpr

LARGEST_CAPACITY = (1 << 57) - 1


def checked_capacity(capacity: int) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int):
        raise TypeError(f"capacity must be an int, not {type(capacity).__name__}")
    if not 0 < capacity <= LARGEST_CAPACITY:
        raise ValueError(f"capacity must be positive and below 2**57, not {capacity}")
    return capacity


def checked_seed(seed: int) -> int:
    if not isinstance(seed, int):
        raise TypeError(f"seed must be an int, not {type(seed).__name__}")
    if not 0 <= seed < 1 << 64:
        raise ValueError("seed must be an unsigned 64-bit number")
    return seed


def checked_fpr(fpr: float | None) -> float:
    rate = 0.01 if fpr is None else fpr
    if not 0 < rate < 1:
        raise ValueError(f"fpr must be between 0 and 1, not {fpr}")
    return rate


def checked_bits(fpr: float | None, bits_per_key: float | None) -> float:
    """The bits per key that either of them asks for; for neither, those of 1 %."""
    if fpr is not None and bits_per_key is not None:
        raise TypeError("give fpr or bits_per_key, not both")
    return bits_for_fpr(checked_fpr(fpr)) if bits_per_key is None else bits_per_key

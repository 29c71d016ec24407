"""Puts with an expiry, of which no clock decides the outcome: one that is far away, and one that has passed.

An entry that is expired when it is written is a delete to every reader, whatever it covers. One that expires in the far
future has a value that says so, so that a lost expiry shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LONG = 1e11  # seconds
PAST = 1  # seconds since 1970
TAG = b"expires."  # starts the value of an entry with an expiry, and of no other


def keep(target: Any, key: bytes, value: bytes, **options: Any) -> None:
    target.put(key, value, ttl=LONG, **options)


def expire(target: Any, key: bytes, value: bytes, **options: Any) -> None:
    target.put(key, value, expire_at=PAST, **options)


def lost_expiry(db: Any, keys: Iterable[bytes]) -> str | None:
    """What is wrong with the expiries of these keys, in words."""
    for key in keys:
        value, ttl = db.get(key), db.ttl(key)
        if (ttl is not None) != value.startswith(TAG):
            return f"{key!r} is {value[:20]!r}, but its TTL is {ttl}"
    return None

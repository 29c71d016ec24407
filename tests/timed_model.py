"""A sorted dict whose entries may expire: the model of a database with a `ManualClock`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sortedcontainers import SortedDict


class TimedModel(SortedDict):
    """An entry that expires is gone for good, because the clock of a database never runs backward."""

    def __init__(self, other: Iterable[Any] = ()) -> None:
        super().__init__(other)
        self.expiries: dict[bytes, float] = dict(getattr(other, "expiries", {}))

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.expiries.pop(key, None)
        super().__setitem__(key, value)

    def put(self, key: bytes, value: bytes, expiry: float) -> None:
        self[key] = value
        self.expiries[key] = expiry

    def expire(self, now: float) -> None:
        for key in [key for key, expiry in self.expiries.items() if expiry <= now]:
            del self.expiries[key]
            self.pop(key, None)

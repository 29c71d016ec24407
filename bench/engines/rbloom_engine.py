"""rbloom, a Bloom filter package: the peer for bloomadd and bloomprobe. It stores no records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import Engine, Unsupported


class RbloomEngine(Engine):
    name = "rbloom"
    package = "rbloom"
    ordered = False

    def open(self) -> None:
        def unsupported(*_: object) -> None:
            raise Unsupported("rbloom stores no records")

        self.get = self.put = self.delete = unsupported

    def close(self) -> None:
        """Nothing to close."""

    def mapping(self) -> dict[str, Any]:
        return {"filter": "classic Bloom at the false positive rate of 10 bits/key (0.819 %)"}

    def bloom(self, keys: int) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        from rbloom import Bloom

        bloom = Bloom(keys, 0.00819)
        return bloom.add, bloom.__contains__

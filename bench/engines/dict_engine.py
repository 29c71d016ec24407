"""A dict: no disk, no order, no durability. The upper bound for an engine called from Python."""

from __future__ import annotations

import platform
from typing import Any

from .base import Engine, Pair


class DictEngine(Engine):
    name = "dict"
    package = ""
    ordered = False

    @classmethod
    def version(cls) -> str:
        return platform.python_version()

    def open(self) -> None:
        if not hasattr(self, "data"):
            self.data: dict[bytes, bytes] = {}
        self.get = self.data.get
        self.put = self.data.__setitem__
        self.delete = _popper(self.data)

    def close(self) -> None:
        """Keep the data for the next open, like a database on disk."""

    def mapping(self) -> dict[str, Any]:
        return {"durability": "none", "memory": "everything", "order": "none"}

    def write_batch(self, pairs: list[Pair]) -> None:
        self.data.update(pairs)


def _popper(data: dict[bytes, bytes]) -> Any:
    pop = data.pop

    def delete(key: bytes) -> None:
        pop(key, None)

    return delete

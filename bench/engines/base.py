"""What a workload may ask of an engine.

`get`, `put`, `delete` are attributes holding the engine's own callables wherever it has them, so the
driver's call is the only one made. Each answers with the newest data. `frozen()` gives the cheapest
reads an engine has when nobody writes meanwhile: one read transaction, one reused iterator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from ..settings import Settings

Pair = tuple[bytes, bytes]


class Missing(Exception):
    """The engine's library is not installed."""


class Unsupported(Exception):
    """The engine has no such operation."""


class Reads:
    """The reads of a phase without writes."""

    def __init__(self, get: Callable[[bytes], Any], scan: Callable[[bytes], Iterator[Any]]) -> None:
        self.get = get
        self.scan = scan

    def close(self) -> None:
        """Lets go of the transaction or iterator behind the reads."""


class OneIterator(Reads):
    """Of engines whose iterators can be sent elsewhere: all scans share one."""

    def __init__(self, db: Any) -> None:
        iterator = db.iterator()
        seek = iterator.seek

        def scan(key: bytes) -> Iterator[Pair]:
            seek(key)
            return iterator  # type: ignore[no-any-return]

        super().__init__(db.get, scan)
        self._iterator = iterator

    def close(self) -> None:
        self._iterator.close()


class Engine(ABC):
    name: str
    package: str
    ordered = True
    max_key: int | None = None  # bytes, None without a limit that matters

    get: Callable[[bytes], Any]
    put: Callable[[bytes, bytes], Any]
    delete: Callable[[bytes], Any]

    def __init__(self, path: str, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self.extra = dict(settings.engine_options.get(self.name, {}))

    @classmethod
    def version(cls) -> str:
        try:
            return metadata.version(cls.package)
        except metadata.PackageNotFoundError:
            raise Missing(
                f"{cls.name}: package {cls.package!r} is not installed (pip install lsmkv[bench])"
            ) from None

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def mapping(self) -> dict[str, Any]:
        """How the common settings were put into this engine's own terms, for the reader of the results."""

    def frozen(self) -> Reads:
        return Reads(self.get, self.scan)

    def multi_get(self, keys: list[bytes]) -> list[Any]:
        return list(map(self.get, keys))

    def write_many(self, pairs: list[Pair]) -> None:
        raise Unsupported(f"{self.name} has no write batch")

    def scan(self, key: bytes) -> Iterator[Pair]:
        """Pairs from `key` on, in order, seeing the newest data."""
        raise Unsupported(f"{self.name} keeps no order")

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        raise Unsupported(f"{self.name} keeps no order")

    def new_iterator(self, _: object = None) -> Any:
        raise Unsupported(f"{self.name} keeps no order")

    def flush(self) -> None:
        raise Unsupported(f"{self.name} has nothing to flush")

    def compact(self) -> None:
        raise Unsupported(f"{self.name} has nothing to compact")

    def text(self, what: str) -> str:
        """`stats`, `levelstats`, `sstables` or `filterstats` as the engine prints them."""
        raise Unsupported(f"{self.name} has no {what}")

    def bloom(self, keys: int) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        """(add, test) of a standalone filter for `keys` keys at 10 bits each."""
        raise Unsupported(f"{self.name} has no standalone filter")


def filter_words(settings: Settings, bits: float | str) -> str:
    hits = settings.optimize_filters_for_hits
    where = "" if not hits else ", none at the bottom" if hits is True else ", by the misses at the bottom"
    return f"Bloom {bits} bits/key{where}"


def log_words(settings: Settings) -> str:
    return "off" if settings.disable_wal else "on, synced per write" if settings.sync else "on, not synced"


def human(size: float | None) -> str:
    """Bytes for people, in powers of two."""
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"

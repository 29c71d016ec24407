"""The interface of an engine.

`get`, `put` and `delete` are the engine's own callables where it has them: the driver calls them directly.
They see the newest data. `reader()` returns the fastest reads of a database that nobody writes to, such as
one read transaction or one reused iterator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, Protocol

from ..settings import Settings

Pair = tuple[bytes, bytes]


class NotInstalled(Exception):
    """The engine's library is not installed."""


class Unsupported(Exception):
    """The engine does not have this operation."""


class Reader:
    """Reads of a database that nobody writes to."""

    def __init__(self, get: Callable[[bytes], Any], scan: Callable[[bytes], Iterator[Any]]) -> None:
        self.get = get
        self.scan = scan

    def close(self) -> None:
        """Release the transaction or iterator."""


class SharedIteratorReader(Reader):
    """All scans seek the same iterator."""

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


class CacheCalls(Protocol):
    """A cache with a size limit."""

    def get(self, key: bytes) -> Any: ...
    def set(self, key: bytes, value: bytes) -> Any: ...
    def incr(self, key: bytes) -> Any: ...
    def memoize(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
    def close(self) -> Any: ...


class Engine(ABC):
    name: str
    package: str
    ordered = True
    max_key: int | None = None  # in bytes; None without a practical limit

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
            raise NotInstalled(
                f"{cls.name}: package {cls.package!r} is not installed (pip install lsmkv[bench])"
            ) from None

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def mapping(self) -> dict[str, Any]:
        """The common settings in this engine's terms, for the report."""

    def reader(self) -> Reader:
        return Reader(self.get, self.scan)

    def multi_get(self, keys: list[bytes]) -> list[Any]:
        return list(map(self.get, keys))

    def write_batch(self, pairs: list[Pair]) -> None:
        raise Unsupported(f"{self.name} has no write batch")

    def scan(self, key: bytes) -> Iterator[Pair]:
        """Pairs from `key` on, in order. Sees the newest data."""
        raise Unsupported(f"{self.name} has no ordered keys")

    def items(self, reverse: bool = False) -> Iterator[Pair]:
        raise Unsupported(f"{self.name} has no ordered keys")

    def new_iterator(self, _: object = None) -> Any:
        raise Unsupported(f"{self.name} has no ordered keys")

    def flush(self) -> None:
        raise Unsupported(f"{self.name} has no flush")

    def sync(self) -> None:
        """Return once everything written so far survives a power cut."""
        raise Unsupported(f"{self.name} has no sync")

    def compact(self) -> None:
        raise Unsupported(f"{self.name} has no compaction")

    def open_cache(self, path: str, size_limit: int | None) -> CacheCalls:
        """Create a cache in a folder of its own. With a limit it evicts what was not read for long."""
        raise Unsupported(f"{self.name} has no cache")

    def stats_text(self, name: str) -> str:
        """`stats`, `levelstats`, `sstables` or `filterstats`."""
        raise Unsupported(f"{self.name} has no {name}")

    def bloom(self, keys: int) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        """(add, test) of a standalone filter for `keys` keys at 10 bits per key."""
        raise Unsupported(f"{self.name} has no standalone filter")


class PlyvelStyle(Engine):
    """An engine whose `db` has plyvel's iterators."""

    db: Any

    def scan(self, key: bytes) -> Iterator[Pair]:
        return self.db.iterator(start=key)  # type: ignore[no-any-return]

    def reader(self) -> Reader:
        return SharedIteratorReader(self.db)

    def new_iterator(self, _: object = None) -> Any:
        return self.db.iterator()

    def compact(self) -> None:
        self.db.compact_range()


def describe_filter(settings: Settings, bits: float | str) -> str:
    hits = settings.optimize_filters_for_hits
    bottom = "" if not hits else ", none at the bottom" if hits is True else ", by the misses at the bottom"
    return f"Bloom {bits} bits/key{bottom}"


def describe_log(settings: Settings) -> str:
    return "off" if settings.disable_wal else "on, synced per write" if settings.sync else "on, not synced"

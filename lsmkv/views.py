"""keys(), values() and items(): ordered views over a range. Iterating one again starts a new scan."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from lsmkv_ext.cursor import Cursor

T = TypeVar("T", covariant=True)
Key = bytes | bytearray | memoryview


class Scannable(Protocol):
    """What a view reads from: a database, a snapshot, or either below a prefix."""

    def get(self, key: Any, default: Any = None) -> Any: ...
    def __contains__(self, key: object) -> bool: ...
    def _scan(self, span: Span, *, keys: bool, values: bool) -> Cursor: ...


@dataclass(frozen=True)
class Span:
    """The keys from `start` up to, not including, `stop`, of those with `prefix`; in order, or from the back."""

    start: Key | None = None
    stop: Key | None = None
    prefix: Key | None = None
    reverse: bool = False

    def holds(self, key: bytes) -> bool:
        return (
            (self.start is None or key >= self.start)
            and (self.stop is None or key < self.stop)
            and (self.prefix is None or key.startswith(bytes(self.prefix)))
        )

    @property
    def whole(self) -> bool:
        return self.start is None and self.stop is None and self.prefix is None


class _View(Generic[T]):
    __slots__ = ("_source", "_span")
    _keys = True
    _values = True

    def __init__(self, source: Scannable, span: Span) -> None:
        self._source = source
        self._span = span

    def __iter__(self) -> Iterator[T]:
        return self._source._scan(self._span, keys=self._keys, values=self._values)

    def __reversed__(self) -> Iterator[T]:
        span = replace(self._span, reverse=not self._span.reverse)
        return self._source._scan(span, keys=self._keys, values=self._values)

    def __len__(self) -> int:
        """Exact, by a scan."""
        return sum(1 for _ in self._source._scan(self._span, keys=True, values=False))

    def __bool__(self) -> bool:
        return any(True for _ in self._source._scan(self._span, keys=True, values=False))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self._span!r})"


class KeysView(_View[bytes], Collection[bytes]):
    __slots__ = ()
    _values = False

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes | bytearray) and self._span.holds(bytes(key)) and key in self._source


class ValuesView(_View[bytes], Collection[bytes]):
    __slots__ = ()
    _keys = False

    def __contains__(self, value: object) -> bool:
        """By a scan."""
        return any(value == found for found in self)


class ItemsView(_View[tuple[bytes, bytes]], Collection[tuple[bytes, bytes]]):
    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], bytes | bytearray)):
            return False
        key, value = item
        return self._span.holds(bytes(key)) and self._source.get(key) == value

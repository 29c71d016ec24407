"""The mapping protocol over an ordered store: keys(), values() and items() as views of a range."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from lsmkv_ext.port.bytes_like import as_bytes

T = TypeVar("T", covariant=True)
Key = bytes | bytearray | memoryview


def optional_bytes(key: Key | None) -> bytes | None:
    return None if key is None else as_bytes(key)


class Scannable(Protocol):
    """The source of a view: a database, a snapshot, or either with a prefix."""

    def get(self, key: Any, default: Any = None) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Key | None = None,
        stop: Key | None = None,
        prefix: Key | None = None,
        include_key: bool = True,
        include_value: bool = True,
        copy: bool = True,
    ) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Span:
    """The keys with `prefix` from `start` up to, not including, `stop`, in ascending or `reverse` order."""

    start: Key | None = None
    stop: Key | None = None
    prefix: Key | None = None
    reverse: bool = False

    def holds(self, key: bytes) -> bool:
        return (
            (self.start is None or key >= as_bytes(self.start))
            and (self.stop is None or key < as_bytes(self.stop))
            and (self.prefix is None or key.startswith(as_bytes(self.prefix)))
        )


class _View(Generic[T]):
    _keys = True
    _values = True

    def __init__(self, source: Scannable, span: Span, **options: Any) -> None:
        self._source = source
        self._span = span
        self._options = options

    def _scan(self, span: Span, *, keys: bool, values: bool) -> Iterator[Any]:
        return self._source.iterator(
            start=span.start,
            stop=span.stop,
            prefix=span.prefix,
            reverse=span.reverse,
            include_key=keys,
            include_value=values,
            **self._options,
        )

    def __iter__(self) -> Iterator[T]:
        return self._scan(self._span, keys=self._keys, values=self._values)

    def __reversed__(self) -> Iterator[T]:
        span = replace(self._span, reverse=not self._span.reverse)
        return self._scan(span, keys=self._keys, values=self._values)

    def __len__(self) -> int:
        """Exact; takes a scan."""
        return count(self._scan(self._span, keys=True, values=False))

    def __bool__(self) -> bool:
        return next(self._scan(self._span, keys=True, values=False), None) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self._span!r})"


class KeysView(_View[bytes], collections.abc.KeysView[bytes]):
    _values = False

    def __contains__(self, key: object) -> bool:
        plain = as_bytes(key)
        return self._span.holds(plain) and plain in self._source


class ValuesView(_View[bytes], collections.abc.ValuesView[bytes]):
    _keys = False

    def __contains__(self, value: object) -> bool:
        """Scan all values."""
        return any(value == found for found in self)


class ItemsView(_View[tuple[bytes, bytes]], collections.abc.ItemsView[bytes, bytes]):
    def __contains__(self, item: object) -> bool:
        if not (isinstance(item, tuple) and len(item) == 2):
            return False
        key, value = as_bytes(item[0]), item[1]
        return self._span.holds(key) and self._source.get(key) == value


def count(scan: Iterator[Any]) -> int:
    """Count the remaining items of an iterator, by its `skip` if it has one, which creates no objects."""
    skip = getattr(scan, "skip", None)
    if skip is None:
        return sum(1 for _ in scan)
    total = 0
    while step := skip(1 << 30):
        total += step
    return total


class OrderedMapping:
    """The reads of a mapping in key order, built on `iterator`. A mixin of databases and snapshots."""

    def keys(
        self: Scannable,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
    ) -> KeysView:
        """Return a view of the keys from `start` up to, not including, `stop`, in key order.

        `prefix` limits it to keys that begin with it, `reverse` turns the order. Iterating it again starts a new scan.

        >>> db.put(b"ada", b"1815")
        >>> list(db.keys(b"a", b"b"))
        [b'ada']
        """
        return KeysView(self, Span(start, stop, prefix, reverse))

    def values(
        self: Scannable,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        copy: bool = True,
    ) -> ValuesView:
        """Return a view of the values from `start` up to, not including, `stop`, in key order.

        `prefix` limits it to keys that begin with it, `reverse` turns the order. Iterating it again starts a new scan.
        With `copy=False` values are memoryviews, as those of `get`.

        >>> db.put(b"ada", b"1815")
        >>> list(db.values(prefix=b"a"))
        [b'1815']
        """
        return ValuesView(self, Span(start, stop, prefix, reverse), copy=copy)

    def items(
        self: Scannable,
        start: Key | None = None,
        stop: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        copy: bool = True,
    ) -> ItemsView:
        """Return a view of the key-value pairs from `start` up to, not including, `stop`, in key order.

        `prefix` limits it to keys that begin with it, `reverse` turns the order. Iterating it again starts a new scan.
        With `copy=False` values are memoryviews, as those of `get`.

        >>> db.put(b"ada", b"1815")
        >>> list(db.items(reverse=True))
        [(b'ada', b'1815')]
        """
        return ItemsView(self, Span(start, stop, prefix, reverse), copy=copy)

    def __iter__(self: Scannable) -> Iterator[bytes]:
        return self.iterator(include_value=False)

    def __reversed__(self: Scannable) -> Iterator[bytes]:
        return self.iterator(include_value=False, reverse=True)

    def __len__(self: Scannable) -> int:
        """Exact; takes a scan over all keys."""
        return count(self.iterator(include_value=False))

    def __bool__(self: Scannable) -> bool:
        return next(self.iterator(include_value=False), None) is not None

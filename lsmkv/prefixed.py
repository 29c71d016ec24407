"""A mapping over the keys of a database (or snapshot) that begin with a prefix; the prefix itself stays out
of sight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from lsmkv.errors import ReadOnlyError
from lsmkv.mapping import Key, OrderedMapping
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.port.compare import prefix_end


class PrefixedIterator:
    """An iterator of the whole, its keys cut."""

    def __init__(self, inner: Any, prefix: bytes, include_key: bool, include_value: bool) -> None:
        self._inner = inner
        self._prefix = prefix
        self._cut = len(prefix)
        self._shape = (include_key, include_value)

    def _strip(self, item: Any) -> Any:
        if self._shape == (True, True):
            return item[0][self._cut :], item[1]
        return item[self._cut :] if self._shape[0] else item

    def __iter__(self) -> PrefixedIterator:
        return self

    def __next__(self) -> Any:
        return self._strip(next(self._inner))

    def next(self) -> Any:
        return self._strip(self._inner.next())

    def prev(self) -> Any:
        return self._strip(self._inner.prev())

    def seek(self, target: Key) -> None:
        self._inner.seek(self._prefix + as_bytes(target))

    def seek_to_start(self) -> None:
        self._inner.seek_to_start()

    def seek_to_stop(self) -> None:
        self._inner.seek_to_stop()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> PrefixedIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PrefixedBatch:
    """A write batch whose keys get the prefix."""

    def __init__(self, inner: Any, prefix: bytes) -> None:
        self._inner = inner
        self._prefix = prefix

    def put(self, key: Key, value: Key) -> None:
        self._inner.put(self._prefix + as_bytes(key), value)

    def delete(self, key: Key) -> None:
        self._inner.delete(self._prefix + as_bytes(key))

    def delete_range(self, start: Key | None, stop: Key | None) -> None:
        self._inner.delete_range(*_range(self._prefix, start, stop))

    def clear(self) -> None:
        self._inner.clear()

    def append(self, other: PrefixedBatch) -> None:
        """Adds another batch's operations behind these; its keys keep the prefix they have."""
        if not isinstance(other, PrefixedBatch):
            raise TypeError(f"only a batch below a prefix can be appended to one, not {type(other).__name__}")
        self._inner.append(other._inner)

    def write(self, *, sync: bool | None = None) -> None:
        self._inner.write(sync=sync)

    @property
    def size_bytes(self) -> int:
        size: int = self._inner.size_bytes
        return size

    def __setitem__(self, key: Key, value: Key) -> None:
        self.put(key, value)

    def __delitem__(self, key: Key) -> None:
        self.delete(key)

    def __len__(self) -> int:
        return len(self._inner)

    def __enter__(self) -> PrefixedBatch:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._inner.__exit__(*exc)


def delete_from(db: Any, start: bytes) -> None:
    """Deletes every key from `start` on. No key is above all others, so the last one is deleted by name."""
    last = next(iter(db.iterator(start=start, reverse=True, include_value=False)), None)
    if last is not None:
        with db.write_batch() as batch:
            batch.delete_range(start, last)
            batch.delete(last)


def _range(prefix: bytes, start: Key | None, stop: Key | None) -> tuple[bytes, bytes]:
    first = prefix if start is None else prefix + as_bytes(start)
    last = prefix_end(prefix) if stop is None else prefix + as_bytes(stop)
    if last is None:
        raise ValueError("this prefix has no end; name a stop")
    return first, last


class PrefixedDB(OrderedMapping, MutableMapping[bytes, bytes]):
    """`db.prefixed_db(prefix)`: reads and writes below the prefix. Nothing is copied; nesting is fine."""

    def __init__(self, db: Any, prefix: Key) -> None:
        self.db = db
        self.prefix = as_bytes(prefix)

    def __repr__(self) -> str:
        return f"<PrefixedDB {self.prefix!r} of {self.db!r}>"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        return PrefixedDB(self.db, self.prefix + as_bytes(prefix))

    def get(self, key: Key, default: Any = None, **options: Any) -> Any:
        return self.db.get(self.prefix + as_bytes(key), default, **options)

    def multi_get(self, keys: Iterable[Key], default: Any = None) -> list[Any]:
        found: list[Any] = self.db.multi_get([self.prefix + as_bytes(key) for key in keys], default)
        return found

    def __getitem__(self, key: Key) -> bytes:
        missing = object()
        found = self.get(key, missing)
        if found is missing:
            raise KeyError(key)
        value: bytes = found
        return value

    def __contains__(self, key: object) -> bool:
        return self.prefix + as_bytes(key) in self.db

    @property
    def _writable(self) -> Any:
        if not isinstance(self.db, MutableMapping):
            raise ReadOnlyError("a snapshot cannot be written to")
        return self.db

    def put(self, key: Key, value: Key, *, sync: bool | None = None) -> None:
        self._writable.put(self.prefix + as_bytes(key), value, sync=sync)

    def delete(self, key: Key, *, sync: bool | None = None) -> None:
        self._writable.delete(self.prefix + as_bytes(key), sync=sync)

    def delete_range(self, start: Key | None, stop: Key | None, *, sync: bool | None = None) -> None:
        first, last = _range(self.prefix, start, stop)
        self._writable.delete_range(first, last, sync=sync)

    def __setitem__(self, key: Key, value: Key) -> None:
        self._writable[self.prefix + as_bytes(key)] = value

    def __delitem__(self, key: Key) -> None:
        try:
            del self._writable[self.prefix + as_bytes(key)]
        except KeyError:
            raise KeyError(key) from None

    def clear(self) -> None:
        if prefix_end(self.prefix) is None:
            delete_from(self._writable, self.prefix)
        else:
            self.delete_range(None, None)

    def write_batch(self, **options: Any) -> PrefixedBatch:
        return PrefixedBatch(self._writable.write_batch(**options), self.prefix)

    def snapshot(self) -> PrefixedSnapshot:
        """The same prefix, as it is now; writing to it raises `ReadOnlyError`."""
        return PrefixedSnapshot(self.db.snapshot(), self.prefix)

    def iterator(
        self,
        *,
        reverse: bool = False,
        start: Key | None = None,
        stop: Key | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Key | None = None,
        include_key: bool = True,
        include_value: bool = True,
        fill_cache: bool = True,
    ) -> Iterator[Any]:
        inner = self.db.iterator(
            reverse=reverse,
            start=None if start is None else self.prefix + as_bytes(start),
            stop=None if stop is None else self.prefix + as_bytes(stop),
            include_start=include_start,
            include_stop=include_stop,
            prefix=self.prefix + (b"" if prefix is None else as_bytes(prefix)),
            include_key=include_key,
            include_value=include_value,
            fill_cache=fill_cache,
        )
        return PrefixedIterator(inner, self.prefix, include_key, include_value)


class PrefixedSnapshot(PrefixedDB):
    """A snapshot seen through a prefix. It holds files until it is closed or collected, as any snapshot."""

    def close(self) -> None:
        self.db.close()

    @property
    def closed(self) -> bool:
        closed: bool = self.db.closed
        return closed

    def __enter__(self) -> PrefixedSnapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

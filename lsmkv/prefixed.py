"""A mapping over the keys of a database or snapshot that begin with a prefix. Its users see keys without the prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from datetime import datetime, timedelta
from typing import Any, BinaryIO, TypeVar, overload

from lsmkv.errors import ReadOnlyError
from lsmkv.mapping import Key, OrderedMapping
from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.limits import MAX_KEY
from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.port.compare import prefix_end
from lsmkv_ext.reader import SnapshotBase

T = TypeVar("T")


class PrefixedIterator:
    """An iterator of the database that strips the prefix from its keys. `PrefixedDB.iterator` returns it.

    >>> db.put(b"user:ada", b"1815")
    >>> next(db.prefixed_db(b"user:").iterator())
    (b'ada', b'1815')
    """

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
        """Return the next item. Raises `StopIteration` at the end.

        >>> db.put(b"user:ada", b"1815")
        >>> db.prefixed_db(b"user:").iterator().next()
        (b'ada', b'1815')
        """
        return self._strip(self._inner.next())

    def prev(self) -> Any:
        """Return the previous item. Raises `StopIteration` at the beginning.

        >>> db.put(b"user:ada", b"1815")
        >>> it = db.prefixed_db(b"user:").iterator()
        >>> it.next() == it.prev()
        True
        """
        return self._strip(self._inner.prev())

    def seek(self, target: Key) -> None:
        """Move before the first key >= `target`.

        >>> it = db.prefixed_db(b"user:").iterator()
        >>> it.seek(b"ada")
        """
        self._inner.seek(self._prefix + as_bytes(target))

    def seek_to_start(self) -> None:
        """Move before the first item.

        >>> it = db.prefixed_db(b"user:").iterator()
        >>> it.seek_to_start()
        """
        self._inner.seek_to_start()

    def seek_to_stop(self) -> None:
        """Move after the last item.

        >>> it = db.prefixed_db(b"user:").iterator()
        >>> it.seek_to_stop()
        """
        self._inner.seek_to_stop()

    def close(self) -> None:
        """Release the files of the iterator.

        >>> db.prefixed_db(b"user:").iterator().close()
        """
        self._inner.close()

    def __enter__(self) -> PrefixedIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class PrefixedBatch:
    """A write batch that adds the prefix to its keys. `PrefixedDB.write_batch` returns it.

    >>> with db.prefixed_db(b"user:").write_batch() as batch:
    ...     batch.put(b"ada", b"1815")
    >>> db[b"user:ada"]
    b'1815'
    """

    def __init__(self, inner: Any, prefix: bytes) -> None:
        self._inner = inner
        self._prefix = prefix

    def put(
        self,
        key: Key,
        value: Key,
        *,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> None:
        """Add a put, as `WriteBatch.put` does.

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.put(b"ada", b"1815")
        """
        self._inner.put(self._prefix + as_bytes(key), value, ttl=ttl, expire_at=expire_at)

    def delete(self, key: Key) -> None:
        """Add a delete.

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.delete(b"ada")
        """
        self._inner.delete(self._prefix + as_bytes(key))

    def delete_range(self, start: Key | None, stop: Key | None) -> None:
        """Add a delete of [start, stop).

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.delete_range(b"a", b"b")
        """
        self._inner.delete_range(*_range(self._prefix, start, stop))

    def clear(self) -> None:
        """Drop all operations.

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.clear()
        """
        self._inner.clear()

    def append(self, other: PrefixedBatch) -> None:
        """Append the operations of another batch. Its keys keep their own prefix.

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.append(db.prefixed_db(b"group:").write_batch())
        """
        if not isinstance(other, PrefixedBatch):
            raise TypeError(f"only a prefixed batch can be appended to one, not {type(other).__name__}")
        self._inner.append(other._inner)

    def write(self, *, sync: bool | None = None) -> None:
        """Write the batch. It can be filled and written again.

        >>> batch = db.prefixed_db(b"user:").write_batch()
        >>> batch.write()
        """
        self._inner.write(sync=sync)

    @property
    def size_bytes(self) -> int:
        """The bytes of the operations.

        >>> db.prefixed_db(b"user:").write_batch().size_bytes
        0
        """
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
    """Delete every key from `start` on, at one moment."""
    db._require_writable()
    db._call(lambda: _delete_from(db, start))
    if db.options.sync:
        db.sync()


def _delete_from(db: Any, start: bytes) -> None:
    # A range needs a stop: the successor of the last key, which stays the last one until the write.
    with db._engine.exclusive():
        last = next(iter(db.iterator(start=start, reverse=True, include_value=False)), None)
        if last is None:
            return
        batch = WriteBatch(db)
        if len(last) < MAX_KEY:
            batch.delete_range(start, last + b"\0")
        else:
            batch.delete_range(start, last)
            batch.delete(last)
        db._engine.write_exclusive(batch)


def _range(prefix: bytes, start: Key | None, stop: Key | None) -> tuple[bytes, bytes]:
    first = prefix if start is None else prefix + as_bytes(start)
    last = prefix_end(prefix) if stop is None else prefix + as_bytes(stop)
    if last is None:
        raise ValueError("a prefix of 0xff bytes has no end: give a stop")
    return first, last


class PrefixedDB(OrderedMapping, MutableMapping[bytes, bytes]):
    """The keys of a database or snapshot that begin with a prefix, as a mapping of keys without it.

    `db.prefixed_db(prefix)` returns it. It copies nothing, and can be nested.

    >>> users = db.prefixed_db(b"user:")
    >>> users[b"ada"] = b"1815"
    """

    def __init__(self, db: Any, prefix: Key) -> None:
        self.db = db
        self.prefix = as_bytes(prefix)

    def __repr__(self) -> str:
        return f"<PrefixedDB {self.prefix!r} of {self.db!r}>"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def prefixed_db(self, prefix: Key) -> PrefixedDB:
        """Return a mapping of the keys that also begin with `prefix`.

        >>> db.prefixed_db(b"a").prefixed_db(b"b").put(b"c", b"1")
        >>> db[b"abc"]
        b'1'
        """
        return PrefixedDB(self.db, self.prefix + as_bytes(prefix))

    @overload
    def get(self, key: Key, default: None = None, **options: Any) -> bytes | None: ...
    @overload
    def get(self, key: Key, default: T, **options: Any) -> bytes | T: ...
    def get(self, key: Key, default: Any = None, **options: Any) -> Any:
        """Return the value of a key, or `default`. `options` are those of `DB.get`.

        >>> db.prefixed_db(b"user:").get(b"ada", b"?")
        b'?'
        """
        return self.db.get(self.prefix + as_bytes(key), default, **options)

    @overload
    def multi_get(self, keys: Iterable[Key], default: None = None) -> list[bytes | None]: ...
    @overload
    def multi_get(self, keys: Iterable[Key], default: T) -> list[bytes | T]: ...
    def multi_get(self, keys: Iterable[Key], default: Any = None) -> list[Any]:
        """Return the values of several keys, `default` for those that are missing.

        >>> db.prefixed_db(b"user:").multi_get([b"ada", b"bob"])
        [None, None]
        """
        found: list[Any] = self.db.multi_get([self.prefix + as_bytes(key) for key in keys], default)
        return found

    def __getitem__(self, key: Key) -> bytes:
        missing: Any = object()
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

    def put(
        self,
        key: Key,
        value: Key,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> None:
        """Set the value of a key, as `DB.put` does.

        >>> db.prefixed_db(b"user:").put(b"ada", b"1815")
        >>> db[b"user:ada"]
        b'1815'
        """
        self._writable.put(self.prefix + as_bytes(key), value, sync=sync, ttl=ttl, expire_at=expire_at)

    def ttl(self, key: Key) -> float | None:
        """Return the seconds until a key expires, as `DB.ttl` does.

        >>> users = db.prefixed_db(b"user:")
        >>> users.put(b"ada", b"token", ttl=60)
        >>> 59 < users.ttl(b"ada") <= 60
        True
        """
        try:
            left: float | None = self.db.ttl(self.prefix + as_bytes(key))
        except KeyError:
            raise KeyError(key) from None
        return left

    def touch(
        self,
        key: Key,
        ttl: float | timedelta | None = None,
        *,
        expire_at: float | datetime | None = None,
        sync: bool | None = None,
    ) -> bool:
        """Give a key another expiry, as `DB.touch` does.

        >>> db.prefixed_db(b"user:").touch(b"ada", 60)
        False
        """
        found: bool = self._writable.touch(self.prefix + as_bytes(key), ttl, expire_at=expire_at, sync=sync)
        return found

    def delete(self, key: Key, *, sync: bool | None = None) -> None:
        """Delete a key. A missing key is no error.

        >>> db.prefixed_db(b"user:").delete(b"ada")
        """
        self._writable.delete(self.prefix + as_bytes(key), sync=sync)

    def delete_range(self, start: Key | None, stop: Key | None, *, sync: bool | None = None) -> None:
        """Delete the keys in [start, stop); None is the first or last key with the prefix.

        Raises `ValueError` if `stop` is None and the prefix is all 0xff bytes; use `clear` there.

        >>> db.prefixed_db(b"user:").delete_range(b"a", b"b")
        """
        first, last = _range(self.prefix, start, stop)
        self._writable.delete_range(first, last, sync=sync)

    def __setitem__(self, key: Key, value: Key) -> None:
        self._writable[self.prefix + as_bytes(key)] = value

    def __delitem__(self, key: Key) -> None:
        try:
            del self._writable[self.prefix + as_bytes(key)]
        except KeyError:
            raise KeyError(key) from None

    # Atomic updates ----------------------------------------------------------------------------------------

    def add(self, key: Key, n: int = 1, default: int = 0, *, sync: bool | None = None) -> int:
        """Add to the number of a key, as `DB.add` does.

        >>> db.prefixed_db(b"user:").add(b"visits")
        1
        """
        total: int = self._writable.add(self.prefix + as_bytes(key), n, default, sync=sync)
        return total

    def max(self, key: Key, n: int, *, sync: bool | None = None) -> int:
        """Raise the number of a key, as `DB.max` does.

        >>> db.prefixed_db(b"user:").max(b"peak", 7)
        7
        """
        largest: int = self._writable.max(self.prefix + as_bytes(key), n, sync=sync)
        return largest

    def min(self, key: Key, n: int, *, sync: bool | None = None) -> int:
        """Lower the number of a key, as `DB.min` does.

        >>> db.prefixed_db(b"user:").min(b"low", 7)
        7
        """
        smallest: int = self._writable.min(self.prefix + as_bytes(key), n, sync=sync)
        return smallest

    def append(self, key: Key, suffix: Key, *, sync: bool | None = None) -> int:
        """Append to the value of a key, as `DB.append` does.

        >>> db.prefixed_db(b"user:").append(b"log", b"one")
        3
        """
        length: int = self._writable.append(self.prefix + as_bytes(key), suffix, sync=sync)
        return length

    def compare_and_set(
        self,
        key: Key,
        expected: Key | None,
        new: Key | None,
        *,
        sync: bool | None = None,
        ttl: float | timedelta | None = None,
        expire_at: float | datetime | None = None,
    ) -> bool:
        """Set a key if it has the expected value, as `DB.compare_and_set` does.

        >>> db.prefixed_db(b"user:").compare_and_set(b"lock", None, b"mine")
        True
        """
        full = self.prefix + as_bytes(key)
        done: bool = self._writable.compare_and_set(full, expected, new, sync=sync, ttl=ttl, expire_at=expire_at)
        return done

    def modify(
        self, key: Key, function: Callable[[bytes | None], Key | None], *, sync: bool | None = None
    ) -> bytes | None:
        """Replace the value of a key by `function(value)`, as `DB.modify` does.

        >>> db.prefixed_db(b"user:").modify(b"name", lambda value: b"ada")
        b'ada'
        """
        value: bytes | None = self._writable.modify(self.prefix + as_bytes(key), function, sync=sync)
        return value

    @overload
    def pop(self, key: Key) -> bytes: ...
    @overload
    def pop(self, key: Key, default: T, /) -> bytes | T: ...
    def pop(self, key: Key, *default: Any) -> Any:
        """Delete a key and return its value, as `DB.pop` does.

        >>> db.prefixed_db(b"user:").pop(b"ada", None)
        """
        try:
            return self._writable.pop(self.prefix + as_bytes(key), *default)
        except KeyError:
            raise KeyError(key) from None

    def setdefault(self, key: Key, default: Key = b"") -> bytes:
        """Return the value of a key, which is set if it is missing.

        >>> db.prefixed_db(b"user:").setdefault(b"ada", b"1815")
        b'1815'
        """
        value: bytes = self._writable.setdefault(self.prefix + as_bytes(key), default)
        return value

    def popitem(self) -> tuple[bytes, bytes]:
        """Delete the first key with the prefix and return it with its value.

        >>> db.put(b"user:ada", b"1815")
        >>> db.prefixed_db(b"user:").popitem()
        (b'ada', b'1815')
        """
        key, value = self._writable._pop_first(self.prefix)
        return key[len(self.prefix) :], value

    def clear(self) -> None:
        """Delete every key with the prefix, with one small write.

        >>> db.prefixed_db(b"user:").clear()
        """
        if prefix_end(self.prefix) is None:
            delete_from(self._writable, self.prefix)
        else:
            self.delete_range(None, None)

    def write_batch(self, **options: Any) -> PrefixedBatch:
        """Return a batch that adds the prefix to its keys. `options` are those of `DB.write_batch`.

        >>> with db.prefixed_db(b"user:").write_batch() as batch:
        ...     batch.put(b"ada", b"1815")
        """
        return PrefixedBatch(self._writable.write_batch(**options), self.prefix)

    def snapshot(self) -> PrefixedSnapshot:
        """Return the current state as a read-only mapping with the same prefix. Close it to release its files.

        >>> with db.prefixed_db(b"user:").snapshot() as before:
        ...     len(before)
        0
        """
        if isinstance(self.db, SnapshotBase):
            raise TypeError("this is a snapshot already")
        return PrefixedSnapshot(self.db.snapshot(), self.prefix)

    def open_value(self, key: Key) -> BinaryIO:
        """Return the value of `key` as a binary file object. It is that of `DB.open_value`.

        >>> db.put(b"user:ada", b"1815")
        >>> db.prefixed_db(b"user:").open_value(b"ada").read()
        b'1815'
        """
        file: BinaryIO = self.db.open_value(self.prefix + as_bytes(key))
        return file

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
        copy: bool = True,
    ) -> Iterator[Any]:
        """Return an iterator over the keys with the prefix. Parameters and steps are those of `DB.iterator`.

        >>> db.put(b"user:ada", b"1815")
        >>> list(db.prefixed_db(b"user:").iterator())
        [(b'ada', b'1815')]
        """
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
            copy=copy,
        )
        return PrefixedIterator(inner, self.prefix, include_key, include_value)


class PrefixedSnapshot(PrefixedDB):
    """A snapshot with a prefix. It keeps the files it reads on disk until it is closed or collected.

    >>> with db.prefixed_db(b"user:").snapshot() as before:
    ...     before.get(b"ada", b"?")
    b'?'
    """

    def close(self) -> None:
        """Release the files of the snapshot.

        >>> db.prefixed_db(b"user:").snapshot().close()
        """
        self.db.close()

    @property
    def closed(self) -> bool:
        """Whether the snapshot is closed.

        >>> db.prefixed_db(b"user:").snapshot().closed
        False
        """
        closed: bool = self.db.closed
        return closed

    def __enter__(self) -> PrefixedSnapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

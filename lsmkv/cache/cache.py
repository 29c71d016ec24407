"""Cache: the public calls. It encodes keys and values; `EntryStore` keeps them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from struct import Struct
from typing import TYPE_CHECKING, Any

from lsmkv.cache import check
from lsmkv.cache.codecs import Codec, codec_named, same_bytes
from lsmkv.cache.keys import decode_element, decode_key, encode_element, encode_key
from lsmkv.cache.memoize import memoized
from lsmkv.cache.stats import CacheItem, CacheStats
from lsmkv.cache.store import EntryStore
from lsmkv.errors import OptionError
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv_ext.entry import ttl_milliseconds
from lsmkv_ext.entry_log import decode_entry
from lsmkv_ext.port.wall_clock import ManualClock

if TYPE_CHECKING:
    from lsmkv.cache.store import Writer

MIB = 1 << 20
DEFAULT_SIZE = 1 << 30
SMALLEST_SIZE = 1 << 12
EVICTIONS = ("lru", "fifo", "none")

# The kinds of values.
ENCODED, INTEGER = range(2)
INT64 = Struct("<q")
INT64_LIMIT = 1 << 63

CODEC_NAME = b"codec"  # a key of the default keyspace

Ttl = float | timedelta | None


class Cache:
    """A cache in the directory `path`, for the threads and tasks of one process.

    Its entries take at most `size_limit` bytes. A write that needs room evicts the oldest ones: with "lru" those that
    were not read since they were written or last spared, with "fifo" in the order of their writes. "none" evicts
    nothing, and `size_limit` does not apply. Entries expire after `ttl` seconds, unless they have their own; None means
    never.

    `codec` turns values into bytes: "bytes", "str", "json", "msgpack" (`pip install lsmkv[msgpack]`), a `Codec`, or
    "pickle". Unpickling runs whatever code lies on the disk: use "pickle" only where nobody else can write to `path`.
    Integers are stored as such with every codec. Keys are bytes, str, int, float, bool, None, or tuples of them.

    `options` are those of `lsmkv.open`, and `clock` judges expiries, for tests. Raises `LockError` if the cache is open
    elsewhere, `OptionError` for a wrong argument or another codec than the cache was created with.

    >>> with lsmkv.Cache("pages.cache", size_limit=100_000_000, ttl=3600, codec="str") as cache:
    ...     cache["home"] = "<html>"
    ...     cache.get("home"), cache.get("away", "?")
    ('<html>', '?')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size_limit: int = DEFAULT_SIZE,
        ttl: Ttl = None,
        eviction: str = "lru",
        codec: str | Codec = "bytes",
        clock: ManualClock | None = None,
        **options: Any,
    ) -> None:
        if eviction not in EVICTIONS:
            raise OptionError(f"eviction must be one of {', '.join(map(repr, EVICTIONS))}, not {eviction!r}")
        if not isinstance(size_limit, int) or size_limit < SMALLEST_SIZE:
            raise OptionError(f"size_limit must be an integer from {SMALLEST_SIZE}, not {size_limit!r}")
        self._size_limit = size_limit
        self._codec = codec_named(codec)
        self._plain = self._codec.decode is same_bytes
        self._ttl = None if ttl is None or ttl == math.inf else ttl_milliseconds(ttl)
        self._db = open_database(os.fspath(path), "c", Options.of(_defaults(size_limit), options), clock)
        try:
            self._check_codec()
            self._store = EntryStore(self._db, size_limit, eviction)
        except BaseException:
            self._db.close()
            raise

    def _check_codec(self) -> None:
        """The codec is stored when the cache is created."""
        name = self._codec.name.encode()
        stored = self._db.setdefault(CODEC_NAME, name)
        if stored != name:
            raise OptionError(f"the cache was created with codec={stored.decode()!r}, not {self._codec.name!r}")

    # Encoding ----------------------------------------------------------------------------------------------

    def _encode(self, value: Any) -> tuple[int, bytes]:
        if type(value) is int:
            return INTEGER, _encode_int(value)
        return ENCODED, self._codec.encode(value)

    def _decode(self, kind: int, payload: bytes) -> Any:
        if kind == INTEGER:
            return _decode_int(payload)
        return self._codec.decode(payload)

    def _expiry(self, ttl: Ttl) -> int:
        """In milliseconds since 1970; 0 for never."""
        if ttl is None:
            return 0 if self._ttl is None else self._store.now() + self._ttl
        if ttl == math.inf:
            return 0
        return self._store.now() + ttl_milliseconds(ttl)

    # Reading -----------------------------------------------------------------------------------------------

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if it is missing or has expired.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.set(b"home", b"<html>")
        ...     cache.get(b"home"), cache.get(b"away")
        True
        (b'<html>', None)
        """
        return self._get(encode_key(key), default)

    def _get(self, raw: bytes, default: Any) -> Any:
        found = self._store.get(raw)
        if found is None:
            return default
        kind, payload = found
        return payload if self._plain and kind == ENCODED else self._decode(kind, payload)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, self)
        if value is self:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._store.read_inside(encode_key(key)) is not None

    def item(self, key: Any) -> CacheItem | None:
        """Return the value of `key` with its expiry and tag, or None. It does not count as a read.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.set(b"home", b"<html>", tag="site")
        ...     cache.item(b"home")
        True
        CacheItem(value=b'<html>', expire_at=None, tag='site')
        """
        found = self._store.read_inside(encode_key(key))
        return None if found is None else self._item(*found)

    def _item(self, entry: bytes, payload: bytes) -> CacheItem:
        _, expiry, _, kind, _, tag = decode_entry(entry)
        expire_at = expiry / 1000 if expiry else None
        return CacheItem(self._decode(kind, payload), expire_at, decode_element(tag, 0)[0] if tag else None)

    def __len__(self) -> int:
        """Expired entries count until they are removed; see `expire`."""
        self._db._check_open()
        self._store.settle()
        return self._store.count

    def __iter__(self) -> Iterator[Any]:
        """In the order of the encoded keys: by type, then by value."""
        return self._keys(reverse=False)

    def __reversed__(self) -> Iterator[Any]:
        return self._keys(reverse=True)

    def _keys(self, reverse: bool) -> Iterator[Any]:
        for raw, entry in self._store.index.iterator(reverse=reverse):
            if not self._store.is_expired(entry):
                yield decode_key(raw)

    # Writing -----------------------------------------------------------------------------------------------

    def set(self, key: Any, value: Any, *, ttl: Ttl = None, tag: Any = None) -> bool:
        """Set `key` to `value`, with a time to live and a tag. Return False if it is larger than the cache.

        `ttl` is in seconds or a timedelta. None means the `ttl` of the cache, `math.inf` never. A tag is of the types
        of keys.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.set(b"home", b"<html>", ttl=60, tag="site")
        True
        """
        return self._put(encode_key(key), value, ttl, tag)

    def _put(self, raw: bytes, value: Any, ttl: Ttl, tag: Any) -> bool:
        kind, payload = self._encode(value)
        store = self._store
        return store.change(store.set_entry, raw, payload, self._expiry(ttl), kind, _tag(tag))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def add(self, key: Any, value: Any, *, ttl: Ttl = None, tag: Any = None) -> bool:
        """Set `key` to `value` if it is missing, and return whether it was. Of several threads one succeeds.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.add(b"lock", b"", ttl=10), cache.add(b"lock", b"", ttl=10)
        (True, False)
        """
        kind, payload = self._encode(value)
        return self._store.change(self._add, encode_key(key), payload, self._expiry(ttl), kind, _tag(tag))

    def _add(self, writer: Writer, raw: bytes, payload: bytes, expiry: int, kind: int, tag: bytes) -> bool:
        old = self._store.find(raw)
        if old is not None and not self._store.is_expired(old):
            return False
        return self._store.write_entry(writer, raw, payload, expiry, kind, tag, old)

    def incr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Add `delta` to the integer of `key` and return the sum. A missing key counts as `default`.

        The entry keeps its expiry and tag; a new one has those of the cache. Raises `KeyError` for a missing key if
        `default` is None, and `TypeError` if the value is no integer.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.incr("visits"), cache.incr("visits", 10)
        (1, 11)
        """
        number = self._store.change(self._incr, encode_key(key), delta, default)
        if number is None:
            raise KeyError(key)
        return number

    def _incr(self, writer: Writer, raw: bytes, delta: int, default: int | None) -> int | None:
        store = self._store
        old: bytes | None
        found = store.read(raw) if store.transaction is None else store.read_inside(raw)
        if found is not None:
            old, payload = found
            _, expiry, _, kind, _, tag = decode_entry(found[0])
            if kind != INTEGER:
                raise TypeError("the value is no integer")
            number = delta + _decode_int(payload)
        elif default is not None:
            number = delta + default
            old, expiry, tag = store.find(raw), self._expiry(None), b""  # it may have expired
        else:
            return None
        store.write_entry(writer, raw, _encode_int(number), expiry, INTEGER, tag, old)
        return number

    def decr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Subtract `delta` from the integer of `key`. Parameters and errors are those of `incr`.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.decr("left", default=10)
        9
        """
        return self.incr(key, -delta, default)

    def touch(self, key: Any, ttl: Ttl = None) -> bool:
        """Give `key` another time to live, and return whether it is there. `ttl` is that of `set`.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"<html>"
        ...     cache.touch(b"home", 60), cache.touch(b"away", 60)
        (True, False)
        """
        return self._store.change(self._touch, encode_key(key), self._expiry(ttl))

    def _touch(self, writer: Writer, raw: bytes, expiry: int) -> bool:
        entry = self._store.find(raw)
        if entry is None or self._store.is_expired(entry):
            return False
        self._store.touch(writer, raw, entry, expiry)
        return True

    # Removing ----------------------------------------------------------------------------------------------

    def delete(self, key: Any) -> bool:
        """Remove `key`, and return whether it was there.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"<html>"
        ...     cache.delete(b"home"), cache.delete(b"home")
        (True, False)
        """
        return self._store.change(self._take, encode_key(key)) is not None

    def __delitem__(self, key: Any) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove `key` and return its value, or `default` if it is missing.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"<html>"
        ...     cache.pop(b"home"), cache.pop(b"home")
        (b'<html>', None)
        """
        item = self.pop_item(key)
        return default if item is None else item.value

    def pop_item(self, key: Any) -> CacheItem | None:
        """Remove `key` and return what `item` returns.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"<html>"
        ...     cache.pop_item(b"home").value
        b'<html>'
        """
        found = self._store.change(self._take, encode_key(key))
        return None if found is None else self._item(*found)

    def _take(self, writer: Writer, raw: bytes) -> tuple[bytes, bytes] | None:
        entry = self._store.find(raw)
        if entry is None:
            return None
        payload = self._store.load(entry)
        self._store.remove(writer, raw, entry)
        self._store.mark(writer)
        return None if payload is None or self._store.is_expired(entry) else (entry, payload)

    def expire(self) -> int:
        """Remove all expired entries, and return how many. Writes remove them bit by bit too.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.expire()
        0
        """
        return self._repeat(self._store.remove_expired)

    def evict(self, tag: Any) -> int:
        """Remove all entries with a tag, and return how many.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.set(b"home", b"<html>", tag="site")
        ...     cache.evict("site")
        True
        1
        """
        return 0 if tag is None else self._repeat(self._store.remove_tagged, _tag(tag))

    def _repeat(self, work: Callable[..., int], *arguments: Any) -> int:
        """In batches of bounded size. Other threads get the lock between them."""
        total = 0
        while removed := self._store.change(work, *arguments):
            total += removed
        return total

    def clear(self) -> int:
        """Remove all entries with one small write, and return how many there were.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"<html>"
        ...     cache.clear()
        1
        """
        return self._store.change(self._store.remove_all)

    # Several calls -----------------------------------------------------------------------------------------

    def transact(self) -> AbstractContextManager[None]:
        """Make the writes of a block one: other threads and a crash see all of them or none.

        Other threads wait with their writes, and read what was there before. If the block raises, nothing is written.

        >>> with lsmkv.Cache("pages.cache") as cache, cache.transact():
        ...     cache[b"from"] = b"90"
        ...     cache[b"to"] = b"10"
        """
        return self._store.transact()

    def memoize(
        self, name: str | None = None, *, ttl: Ttl = None, tag: Any = None, typed: bool = False, ignore: Any = ()
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that caches the results of a function or coroutine function.

        The key is `name`, by default that of the function with its module, and the arguments, which are of the types of
        keys; `ignore` has the positions and names of those that do not matter. With `typed`, `f(1)` and `f(1.0)` are
        different calls. The decorated function has `cache_key(...)`, the key of a call, and `__wrapped__`.

        >>> with lsmkv.Cache("pages.cache", codec="json") as cache:
        ...     @cache.memoize(ttl=3600)
        ...     def square(number):
        ...         return number * number
        ...     square(12), square(12), cache.stats().hits
        (144, 144, 1)
        """
        return memoized(self, name, ttl, tag, typed, frozenset(ignore))

    # The whole ---------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Compare the records of the cache with each other, and return what is wrong. It reads all keys, no values.

        Raises `Error` in a transaction.

        `lsmkv.verify` checks the files of a closed cache.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.check()
        []
        """
        return self._store.change(lambda writer: check.problems(self._store))

    def stats(self, *, reset: bool = False) -> CacheStats:
        """Return the statistics. With `reset` the counters start over.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.get(b"home")
        ...     cache.stats().misses
        1
        """
        self._db._check_open()
        store = self._store
        store.settle()
        found = CacheStats(
            hits=store.hits,
            misses=store.misses,
            evictions=store.evicted,
            expirations=store.expired,
            entries=store.count,
            live_bytes=store.live,
            log_bytes=store.log_bytes,
            size_limit=self._size_limit,
        )
        if reset:
            store.hits = store.misses = store.evicted = store.expired = 0
        return found

    @property
    def path(self) -> str:
        """The directory of the cache.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache.path.endswith("pages.cache")
        True
        """
        return self._db.path

    def close(self) -> None:
        """Close the cache. Later calls raise `ClosedError`; closing twice is no error.

        >>> cache = lsmkv.Cache("pages.cache")
        >>> cache.close()
        """
        self._db.close()

    def __enter__(self) -> Cache:
        self._db._check_open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lsmkv.Cache {self.path!r}{' (closed)' if self._db.closed else ''}>"


def _defaults(size_limit: int) -> Options:
    """A segment that was freed keeps its space until the next flush, so a small cache has small write buffers.
    Compactions never copy segments, so a cache needs no value logs, whose garbage would count too.
    """
    buffer = min(max(size_limit // 32, 2 * MIB), 64 * MIB)
    return Options(write_buffer_size=buffer, target_file_size=buffer, large_value_threshold=None)


def _encode_int(number: int) -> bytes:
    """Little-endian, in at least 8 bytes."""
    if -INT64_LIMIT <= number < INT64_LIMIT:
        return INT64.pack(number)
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _decode_int(payload: bytes) -> int:
    if len(payload) == INT64.size:
        return INT64.unpack(payload)[0]  # type: ignore[no-any-return]
    return int.from_bytes(payload, "little", signed=True)


def _tag(tag: Any) -> bytes:
    return b"" if tag is None else encode_element(tag)

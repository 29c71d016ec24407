"""diskcache's `Cache` on `lsmkv.Cache`, for diskcache's own tests.

diskcache's `Disk` translates keys and values, but keeps no files. `lsmkv.Cache` stores, counts, expires and evicts.
Handles of one directory share a cache, because diskcache's tests open a directory twice.

With `cull_limit` diskcache stores first and then removes some entries. For that the limit of `lsmkv.Cache` is off.
"""

from __future__ import annotations

import errno
import io
import math
import pickle
import tempfile
import time
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from typing import Any, ClassVar

import diskcache as dc

import lsmkv

DiskCache = dc.Cache

EVICTION = {
    "none": "none",
    "least-recently-stored": "fifo",
    "least-recently-used": "lru",
    "least-frequently-used": "lru",
}
LONGEST_KEY = 10_000
FIRST_PUSHED = 500_000_000_000_000
WHOLE_CACHE = 1 << 50


class Shared:
    """The cache of a directory, and how many handles use it."""

    by_directory: ClassVar[dict[str, Shared]] = {}

    def __init__(self, directory: str) -> None:
        self.clock = lsmkv.ManualClock(time.time())
        self.handles = 0
        self.directory = directory
        codec = lsmkv.Codec("pickle", pickle.dumps, pickle.loads)
        self.cache = lsmkv.Cache(directory, size_limit=WHOLE_CACHE, codec=codec, clock=self.clock, **SMALL)

    @classmethod
    def open(cls, directory: str) -> Shared:
        found = cls.by_directory.get(directory) or cls(directory)
        cls.by_directory[directory] = found
        found.handles += 1
        return found

    def release(self) -> None:
        self.handles -= 1
        if not self.handles:
            del self.by_directory[self.directory]
            self.cache.close()


SMALL = {"write_buffer_size": 4 << 20, "block_cache_size": 1 << 20}


class Cache:
    def __init__(self, directory: Any = None, disk: type = dc.Disk, **settings: Any) -> None:
        if not (isinstance(disk, type) and issubclass(disk, dc.Disk)):
            raise ValueError("disk must subclass diskcache.Disk")
        self.directory = str(tempfile.mkdtemp(prefix="diskcache-") if directory is None else directory)
        self._settings = {**dc.DEFAULT_SETTINGS, **settings}
        options = {name[5:]: value for name, value in self._settings.items() if name.startswith("disk_")}
        self._disk = disk(self.directory, **options)
        self._shared: Shared | None = Shared.open(self.directory)
        for name, value in self._settings.items():
            self.reset(name, value)
        self._counted = (0, 0)

    # Settings ----------------------------------------------------------------------------------------------

    def reset(self, name: str, value: Any) -> None:
        setattr(self, name, value)
        if name == "eviction_policy":
            self._store.slots = lsmkv.cache.store.read_slots(1 << 24) if EVICTION[value] == "lru" else None
        elif name == "cull_limit":
            self._store.sweep_limit = value
        elif name.startswith("disk_"):
            setattr(self._disk, name[5:], value)

    @property
    def _cache(self) -> lsmkv.Cache:
        if self._shared is None:
            self._shared = Shared.open(self.directory)
        self._shared.clock.set(time.time())
        return self._shared.cache

    @property
    def _store(self) -> Any:
        return self._cache._store

    def close(self) -> None:
        if self._shared is not None:
            self._shared.release()
        self._shared = None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> str:
        return self.directory

    def __setstate__(self, directory: str) -> None:
        self.__init__(directory)  # type: ignore[misc]

    # Translation -------------------------------------------------------------------------------------------

    def _key(self, key: Any) -> Any:
        """diskcache's form of the key; a digest of a long one."""
        stored, raw = self._disk.put(key)
        stored = bytes(stored) if isinstance(stored, memoryview) else stored
        if isinstance(stored, str | bytes) and len(stored) > LONGEST_KEY:
            stored = blake2b(stored if isinstance(stored, bytes) else stored.encode()).digest()
        return stored if raw else (stored, raw)

    def _original(self, key: Any) -> Any:
        return self._disk.get(*key) if isinstance(key, tuple) else self._disk.get(key, True)

    def _stored(self, value: Any, read: bool) -> Any:
        if type(value) is int and type(self._disk) is dc.Disk:
            return value
        before, self._disk.min_file_size = self._disk.min_file_size, math.inf  # no files
        _, mode, _, stored = self._disk.store(value.read() if read else value, False)
        self._disk.min_file_size = before
        return mode, bytes(stored) if isinstance(stored, memoryview) else stored

    def _fetched(self, stored: Any, read: bool = False) -> Any:
        mode, value = (dc.core.MODE_RAW, stored) if type(stored) is int else stored
        fetched = self._disk.fetch(mode, None, value, False)
        if read and isinstance(fetched, bytes) and len(fetched) >= self.disk_min_file_size:
            return self._file(fetched)
        return fetched

    def _file(self, data: bytes) -> Any:
        file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115
        file.write(data)
        file.seek(0)
        return file

    @staticmethod
    def _ttl(expire: float | None) -> float:
        # In diskcache an entry still lives at the moment of its expiry.
        return math.inf if expire is None else expire + 0.001

    def _answer(self, item: Any, default: Any, expire_time: bool, tag: bool, read: bool = False) -> Any:
        value = default
        if item is not None:
            try:
                value = self._fetched(item.value, read)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                item = None
        extras = [item and item.expire_at] * expire_time + [item and item.tag] * tag
        return (value, *extras) if extras else value

    # Calls -------------------------------------------------------------------------------------------------

    def set(
        self, key: Any, value: Any, expire: Any = None, read: bool = False, tag: Any = None, retry: bool = False
    ) -> bool:
        done = self._cache.set(self._key(key), self._stored(value, read), ttl=self._ttl(expire), tag=tag)
        self._cull_some()
        return done

    def _cull_some(self) -> None:
        if self.eviction_policy != "none" and self.volume() > self.size_limit:
            for _ in range(self.cull_limit):
                self._evict_down_to(self.volume() - 1)

    def _evict_down_to(self, limit: int) -> None:
        store = self._store
        room = 1 << 30  # also how much may move
        store.limit = limit + room
        store.change(lambda writer: (store._evict(writer, set(), room), store.mark(writer)))
        store.limit = WHOLE_CACHE

    def add(
        self, key: Any, value: Any, expire: Any = None, read: bool = False, tag: Any = None, retry: bool = False
    ) -> bool:
        return self._cache.add(self._key(key), self._stored(value, read), ttl=self._ttl(expire), tag=tag)

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        stored = self._key(key)
        found = self._cache.get(stored)  # counts
        item = self._cache.item(stored) if found is not None else None
        return self._answer(item, default, expire_time, tag, read)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, default=dc.core.ENOVAL)
        if value is dc.core.ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any) -> Any:
        return io.BytesIO(self[key])

    def pop(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        return self._answer(self._cache.pop_item(self._key(key)), default, expire_time, tag)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def delete(self, key: Any) -> bool:
        return self._cache.delete(self._key(key))

    def __delitem__(self, key: Any) -> None:
        del self._cache[self._key(key)]

    def __contains__(self, key: Any) -> bool:
        return self._key(key) in self._cache

    def __len__(self) -> int:
        return len(self._cache)

    def touch(self, key: Any, expire: Any = None) -> bool:
        if expire == 0:
            return self.delete(key)
        return self._cache.touch(self._key(key), self._ttl(expire))

    def incr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        return self._cache.incr(self._key(key), delta, default)

    def decr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        return self._cache.decr(self._key(key), delta, default)

    def expire(self) -> int:
        return self._cache.expire()

    def evict(self, tag: Any) -> int:
        return self._cache.evict(tag)

    def clear(self) -> int:
        return self._cache.clear()

    def check(self, fix: bool = False) -> list[str]:
        return self._cache.check()

    def volume(self) -> int:
        return self._cache.stats().live_bytes

    def cull(self) -> int:
        before = len(self)
        self.expire()
        if self.eviction_policy != "none":
            self._evict_down_to(self.size_limit)
        return before - len(self)

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        found = self._cache.stats(reset=reset or not self.statistics)
        counted = (found.hits, found.misses) if self.statistics else (0, 0)
        self.statistics = enable
        if not counted[0] + counted[1]:
            self._cache.stats(reset=True)
        return counted

    @contextmanager
    def transact(self, retry: bool = False) -> Any:
        with self._cache.transact():
            yield

    memoize = DiskCache.memoize  # it needs only get and set

    # In the order of the writes ----------------------------------------------------------------------------

    def _written(self, reverse: bool = False) -> list[Any]:
        store = self._store
        records = store.queue.iterator(reverse=reverse)
        found = [(position, lsmkv.cache.store.decode_record(record)[2]) for position, record in records]
        return [lsmkv.cache.keys.decode_key(raw) for position, raw in found if (store.find(raw) or b"")[:8] == position]

    def __iter__(self) -> Any:
        return map(self._original, self._written())

    def __reversed__(self) -> Any:
        return map(self._original, self._written(reverse=True))

    def iterkeys(self, reverse: bool = False) -> Any:
        return iter(sorted(self, reverse=reverse))

    def peekitem(self, last: bool = True, expire_time: bool = False, tag: bool = False) -> Any:
        return self._first(self._written(reverse=last), expire_time, tag)

    def _first(self, keys: list[Any], expire_time: bool, tag: bool, take: bool = False) -> Any:
        """The first of the keys that has a value, as `(key, value)` with extras."""
        for key in keys:
            item = self._cache.pop_item(key) if take else self._cache.item(key)
            value, *extras = self._answer(item, dc.core.ENOVAL, True, True)
            if value is dc.core.ENOVAL:
                if take or item is None:
                    continue
                value, *extras = self._answer(item, dc.core.ENOVAL, True, True)
            pair = self._original(key), value
            wanted = extras[:1] * expire_time + extras[1:] * tag
            return (pair, *wanted) if wanted else pair
        raise KeyError("there is no item")

    # A queue -----------------------------------------------------------------------------------------------

    def _pushed(self, prefix: Any, side: str) -> list[Any]:
        def is_pushed(key: Any) -> bool:
            return type(key) is int if prefix is None else isinstance(key, str) and key.startswith(f"{prefix}-")

        return sorted(filter(is_pushed, self._written()), reverse=side == "back")

    def push(self, value: Any, prefix: Any = None, side: str = "back", expire: Any = None, tag: Any = None) -> Any:
        taken = set(self._pushed(prefix, side))
        keys = (number if prefix is None else f"{prefix}-{number:015d}" for number in count(FIRST_PUSHED))
        key = next(key for key in keys if key not in taken)
        self._cache.set(key, self._stored(value, False), ttl=self._ttl(expire), tag=tag)
        return key

    def pull(self, prefix: Any = None, default: Any = (None, None), side: str = "front", **extras: bool) -> Any:
        return self._take(prefix, default, side, True, **extras)

    def peek(self, prefix: Any = None, default: Any = (None, None), side: str = "front", **extras: bool) -> Any:
        return self._take(prefix, default, side, False, **extras)

    def _take(
        self, prefix: Any, default: Any, side: str, take: bool, expire_time: bool = False, tag: bool = False
    ) -> Any:
        try:
            found = self._first(self._pushed(prefix, side), expire_time, tag, take)
        except KeyError:
            return default
        self.expire()
        return found

"""What a cache says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheStats:
    """Counters since the cache was opened or its statistics were reset, and current sizes. `Cache.stats` returns it.

    `live_bytes` counts keys, values and their bookkeeping; `log_bytes` is `live_bytes` with what waits to be reclaimed.

    >>> with lsmkv.Cache("pages.cache") as cache:
    ...     cache.stats().hit_ratio
    0.0
    """

    hits: int
    misses: int
    evictions: int
    expirations: int
    entries: int
    live_bytes: int
    log_bytes: int
    size_limit: int

    @property
    def hit_ratio(self) -> float:
        """The share of the gets that found their key.

        >>> with lsmkv.Cache("pages.cache") as cache:
        ...     cache[b"home"] = b"..."
        ...     cache.get(b"home"), cache.get(b"away")
        ...     cache.stats().hit_ratio
        (b'...', None)
        0.5
        """
        gets = self.hits + self.misses
        return self.hits / gets if gets else 0.0


@dataclass(frozen=True)
class CacheItem:
    """A value with its expiry, in seconds since 1970 or None, and its tag. `Cache.item` returns it.

    >>> with lsmkv.Cache("pages.cache") as cache:
    ...     cache.set(b"home", b"...", tag="site")
    ...     cache.item(b"home").tag
    True
    'site'
    """

    value: Any
    expire_at: float | None
    tag: Any

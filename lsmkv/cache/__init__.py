"""`lsmkv.Cache`: a cache on disk with a size limit, expiry, tags and memoization."""

from lsmkv.cache.cache import Cache
from lsmkv.cache.codecs import Codec
from lsmkv.cache.stats import CacheItem, CacheStats

__all__ = ["Cache", "CacheItem", "CacheStats", "Codec"]

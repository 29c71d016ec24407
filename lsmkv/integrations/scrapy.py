"""Scrapy: duplicate filters on disk, and crawlers that tell each other which pages they have fetched.

A cache of responses needs no class: set `HTTPCACHE_STORAGE = "scrapy.extensions.httpcache.DbmCacheStorage"` and
`HTTPCACHE_DBM_MODULE = "lsmkv.dbm"`.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
from typing import Any

from lsmkv.errors import Error, IOError
from lsmkv.open_database import open_database
from lsmkv.options import Options
from lsmkv.repository.store import Stored, open_store
from lsmkv_ext.filter.bloom import BlockedBloom

try:
    from scrapy import signals
    from scrapy.dupefilters import BaseDupeFilter
    from scrapy.exceptions import IgnoreRequest, NotConfigured
    from scrapy.utils.defer import maybe_deferred_to_future
    from scrapy.utils.job import job_dir
    from twisted.internet.threads import deferToThread
except ImportError as error:
    raise Error("this module needs Scrapy: pip install 'lsmkv[scrapy]'") from error

log = logging.getLogger(__name__)

PREFIX = "fetched/"


class _DupeFilter(BaseDupeFilter):  # type: ignore[misc]
    def __init__(self, path: str, fingerprinter: Any, settings: Any) -> None:
        self._path = path
        self._fingerprint = fingerprinter.fingerprint
        self._settings = settings

    @classmethod
    def from_crawler(cls, crawler: Any) -> _DupeFilter:
        path = crawler.settings.get("LSMKV_DUPEFILTER") or job_dir(crawler.settings)
        if not path:
            raise NotConfigured("set LSMKV_DUPEFILTER or JOBDIR to a directory")
        os.makedirs(path, exist_ok=True)
        return cls(path, crawler.request_fingerprinter, crawler.settings)

    def log(self, request: Any, spider: Any) -> None:
        log.debug("filtered duplicate request: %s", request)
        spider.crawler.stats.inc_value("dupefilter/filtered")


class DupeFilter(_DupeFilter):
    """`DUPEFILTER_CLASS` with a database: exact, in little memory, and what it has seen survives `kill -9`.

    It is in the directory `LSMKV_DUPEFILTER`, by default that of `JOBDIR`.
    """

    def open(self) -> None:
        self._db = open_database(os.path.join(self._path, "requests.lsmkv"), "c", Options())

    def request_seen(self, request: Any) -> bool:
        fingerprint = self._fingerprint(request)
        if fingerprint in self._db:
            return True
        self._db.put(fingerprint, b"")
        return False

    def close(self, reason: str) -> None:
        self._db.close()


class BloomDupeFilter(_DupeFilter):
    """`DUPEFILTER_CLASS` with a Bloom filter in a file: a new request counts as seen at the rate `LSMKV_BLOOM_FPR`
    (0.001) while at most `LSMKV_BLOOM_CAPACITY` (10,000,000) have been seen. 18 MB at these sizes.

    The file is in the directory `LSMKV_DUPEFILTER`, by default that of `JOBDIR`.
    """

    def open(self) -> None:
        path = os.path.join(self._path, "requests.bloom")
        # A filter that lacks some requests after a power cut repeats them, which does no harm.
        self._seen = BlockedBloom.open_shared(path, *_bloom_size(self._settings), recover=True)

    def request_seen(self, request: Any) -> bool:
        return self._seen.test_and_add(self._fingerprint(request))

    def close(self, reason: str) -> None:
        self._seen.close()


def _bloom_size(settings: Any) -> tuple[int, float]:
    return settings.getint("LSMKV_BLOOM_CAPACITY", 10_000_000), settings.getfloat("LSMKV_BLOOM_FPR", 0.001)


class FetchedExchange:
    """A downloader middleware that drops requests for pages that another crawler has fetched.

    After every `LSMKV_EXCHANGE_PAGES` (100) pages a crawler publishes a Bloom filter of what it has fetched in
    `LSMKV_EXCHANGE`, a directory that all crawlers share or the URL of an object store (with
    `LSMKV_EXCHANGE_OPTIONS`), and reads those of the others. `LSMKV_BLOOM_CAPACITY` (10,000,000) is the number of
    pages of all crawlers together, `LSMKV_BLOOM_FPR` (0.001) the share of pages that are dropped wrongly at that size;
    both are the same for all. Requests with `dont_filter` are never dropped.

    Put it before all others: `DOWNLOADER_MIDDLEWARES = {"lsmkv.integrations.scrapy.FetchedExchange": 50}`.
    """

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        url = settings.get("LSMKV_EXCHANGE")
        if not url:
            raise NotConfigured("LSMKV_EXCHANGE is not set")
        self._store = open_store(url, settings.getdict("LSMKV_EXCHANGE_OPTIONS"))
        self._every = settings.getint("LSMKV_EXCHANGE_PAGES", 100)
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self._stats = crawler.stats
        self._mine, self._theirs = (BlockedBloom(*_bloom_size(settings)) for _ in range(2))
        self._pages = 0
        self._published = ""
        self._merged: dict[str, Stored] = {}

    @classmethod
    def from_crawler(cls, crawler: Any) -> FetchedExchange:
        middleware = cls(crawler)
        crawler.signals.connect(middleware._opened, signal=signals.spider_opened)
        crawler.signals.connect(middleware._closed, signal=signals.spider_closed)
        return middleware

    def process_request(self, request: Any, spider: Any = None) -> None:
        if not request.dont_filter and self._fingerprint(request) in self._theirs:
            self._stats.inc_value("lsmkv/fetched_elsewhere")
            raise IgnoreRequest("another crawler has fetched this page")

    async def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        # Whether it is a redirect or worth a retry has been decided by those behind. A server's error is no page.
        if response.status < 500:
            self._mine.add(self._fingerprint(request))
            self._pages += 1
            if self._pages % self._every == 0:
                await self._in_thread(self._exchange)
        return response

    async def _opened(self, spider: Any) -> None:
        await self._in_thread(self._read_others)

    async def _closed(self, spider: Any) -> None:
        await self._in_thread(self._publish)

    async def _in_thread(self, work: Any) -> None:
        """The store may be far away. A failure costs no page: the crawlers only share less."""
        try:
            await maybe_deferred_to_future(deferToThread(work))
            self._stats.inc_value("lsmkv/exchanges")
        except Error as error:
            self._stats.inc_value("lsmkv/exchange_errors")
            log.warning("no exchange with other crawlers: %s", error)

    def _exchange(self) -> None:
        self._publish()
        self._read_others()

    def _publish(self) -> None:
        """Under a new name each time: whoever reads an older one reads it whole."""
        name = f"{PREFIX}{self._name}/{self._pages:012d}-{secrets.token_hex(4)}"
        self._store.write(name, self._mine.to_bytes(compress=True))
        before, self._published = self._published, name
        if before:
            self._store.delete(before)

    def _read_others(self) -> None:
        found = self._store.list(PREFIX)
        for name in found.keys() - self._merged.keys():
            if name.startswith(f"{PREFIX}{self._name}/"):
                continue
            try:
                self._theirs.merge(BlockedBloom.from_bytes(self._store.read(name)))
            except IOError as error:
                if error.errno != errno.ENOENT:  # replaced by a newer one
                    raise
        self._merged = found

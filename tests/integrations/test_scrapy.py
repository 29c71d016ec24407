"""Crawlers of Scrapy in processes of their own, on a site on loopback that counts what they fetch."""

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

import lsmkv

CRAWL = Path(__file__).with_name("scrapy_crawl.py")
PAGES = 240
MODULE = "lsmkv.integrations.scrapy"
EXCHANGE = {"DOWNLOADER_MIDDLEWARES": {f"{MODULE}.FetchedExchange": 50}, "LSMKV_EXCHANGE_PAGES": 5}


class Site:
    """Pages with links to the next one and to a few others, so that each leads to all."""

    def __init__(self):
        draw = random.Random(1)
        self.links = {page: [(page + 1) % PAGES, *(draw.randrange(PAGES) for _ in range(4))] for page in range(PAGES)}
        self.fetched = Counter()
        self.on_fetch = lambda count: None
        self.failing = set()
        site, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                page = int(self.path.strip("/"))
                with lock:
                    site.fetched[page] += 1
                    failed = page in site.failing
                    site.failing.discard(page)
                    site.on_fetch(site.fetched.total())
                links = "".join(f'<a href="/{link}">{link}</a>' for link in site.links[page])
                body = f"<html><body>{links}</body></html>".encode()
                self.send_response(500 if failed else 200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def start(self, first=0, **settings):
        command = [sys.executable, CRAWL, self.url, str(first), json.dumps(settings)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def crawl(self, first=0, **settings):
        return finished(self.start(first, **settings))

    def fleet(self, **settings):
        """Three crawlers at once, from different pages."""
        self.fetched.clear()
        crawlers = [self.start(first, **settings) for first in (0, PAGES // 3, 2 * PAGES // 3)]
        return [finished(crawler) for crawler in crawlers]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def finished(process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output)


@pytest.fixture
def site():
    site = Site()
    yield site
    site.close()


def all_pages():
    return set(range(PAGES))


def test_a_fleet_that_exchanges_filters_fetches_every_page_with_fewer_requests(site, tmp_path):
    site.fleet()  # the control
    assert site.fetched == Counter(dict.fromkeys(range(PAGES), 3))
    found = site.fleet(**EXCHANGE, LSMKV_EXCHANGE=str(tmp_path / "exchange"), LSMKV_BLOOM_FPR=1e-6)
    assert set(site.fetched) == all_pages()
    # Three started at different pages: they cannot all have fetched everything before they exchanged anything.
    assert site.fetched.total() < 3 * PAGES
    assert sum(stats.get("lsmkv/fetched_elsewhere", 0) for stats in found) > 0
    assert len(list((tmp_path / "exchange").rglob("*-*-*/*"))) == 3  # one filter each


def test_a_crawler_that_comes_later_fetches_its_first_page_alone(site, tmp_path):
    settings = EXCHANGE | {"LSMKV_EXCHANGE": str(tmp_path / "exchange"), "LSMKV_BLOOM_FPR": 1e-6}
    site.crawl(0, **settings)
    assert set(site.fetched) == all_pages()
    site.fetched.clear()
    stats = site.crawl(7, **settings)
    assert site.fetched.total() == 0 and stats["lsmkv/fetched_elsewhere"] == 1


def test_filters_are_exchanged_through_an_object_store(site, tmp_path):
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        import boto3

        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys).create_bucket(Bucket="crawl")
        options = {
            "endpoint": f"http://{host}:{port}",
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
            "client_options": {"allow_http": True},
        }
        settings = EXCHANGE | {"LSMKV_EXCHANGE": "s3://crawl/fleet", "LSMKV_EXCHANGE_OPTIONS": options}
        site.crawl(0, **settings, LSMKV_BLOOM_FPR=1e-6)
        site.fetched.clear()
        site.crawl(7, **settings, LSMKV_BLOOM_FPR=1e-6)
        assert site.fetched.total() == 0
    finally:
        server.stop()


def test_a_page_that_failed_is_fetched_by_others(site, tmp_path):
    """Retries belong to the crawler itself; only what it has got at last counts as fetched."""
    settings = EXCHANGE | {"LSMKV_EXCHANGE": str(tmp_path / "exchange"), "LSMKV_BLOOM_FPR": 1e-6}
    site.failing = {3, 4}
    site.crawl(0, **settings, RETRY_ENABLED=False)
    assert site.fetched[3] == site.fetched[4] == 1
    site.fetched.clear()
    site.crawl(3, **settings)
    assert site.fetched == {3: 1, 4: 1}


def test_a_store_that_fails_costs_no_page(site, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    stats = site.crawl(0, **EXCHANGE, LSMKV_EXCHANGE=str(tmp_path / "file" / "below"))
    assert set(site.fetched) == all_pages()
    assert stats["lsmkv/exchange_errors"] > 1


@pytest.mark.parametrize("name", ["DupeFilter", "BloomDupeFilter"])
def test_a_killed_crawler_does_not_forget_what_it_has_seen(site, tmp_path, name):
    settings = {"DUPEFILTER_CLASS": f"{MODULE}.{name}", "JOBDIR": str(tmp_path / "job"), "LSMKV_BLOOM_FPR": 1e-6}
    crawler = site.start(0, **settings)
    site.on_fetch = lambda count: os.kill(crawler.pid, 9) if count == 100 else None
    crawler.wait(60)
    crawler.stdout.close()
    seen = set(site.fetched)
    assert len(seen) >= 90
    site.on_fetch = lambda count: None
    site.fetched.clear()
    # Its queue is lost, but each page that was fetched is known.
    for page in (0, max(seen)):
        assert site.crawl(page, **settings)["dupefilter/filtered"] == 1
    assert not site.fetched


@pytest.mark.parametrize("name", ["DupeFilter", "BloomDupeFilter"])
def test_each_page_is_fetched_once(site, tmp_path, name):
    settings = {"DUPEFILTER_CLASS": f"{MODULE}.{name}", "LSMKV_DUPEFILTER": str(tmp_path), "LSMKV_BLOOM_FPR": 1e-6}
    site.crawl(0, **settings)
    assert site.fetched == Counter(dict.fromkeys(range(PAGES), 1))
    site.crawl(0, **settings)
    assert site.fetched.total() == PAGES


def test_responses_are_cached_through_dbm(site, tmp_path):
    settings = {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_STORAGE": "scrapy.extensions.httpcache.DbmCacheStorage",
        "HTTPCACHE_DBM_MODULE": "lsmkv.dbm",
        "HTTPCACHE_DIR": str(tmp_path / "cache"),
    }
    site.crawl(0, **settings)
    assert site.fetched == Counter(dict.fromkeys(range(PAGES), 1))
    site.fetched.clear()
    stats = site.crawl(0, **settings)
    assert site.fetched.total() == 0 and stats["httpcache/hit"] == PAGES
    with lsmkv.open(tmp_path / "cache" / "site.db", "r") as db:
        assert len(db) == 2 * PAGES

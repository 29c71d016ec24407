"""Crawls the site at a URL: python scrapy_crawl.py URL FIRST SETTINGS. Prints the statistics as JSON."""

import json
import sys

import scrapy
from scrapy.crawler import CrawlerProcess

url, first, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


class Site(scrapy.Spider):
    name = "site"

    async def start(self):
        yield scrapy.Request(f"{url}/{first}")

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


defaults = {
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
    "DOWNLOAD_DELAY": 0,
    "LSMKV_BLOOM_CAPACITY": 10_000,
}
process = CrawlerProcess(defaults | given)
crawler = process.create_crawler(Site)
process.crawl(crawler)
process.start()
print(json.dumps({k: v for k, v in crawler.stats.get_stats().items() if isinstance(v, int | float | str)}))

"""What a cache knows after a close, a kill and a failed write."""

import os
import signal
import subprocess
import sys

import pytest

import lsmkv
from lsmkv.cache.store import EntryStore

LIMIT = 1 << 18

# Writes for ever, and names each change once it is made.
WRITER = """
import sys, lsmkv
cache = lsmkv.Cache(sys.argv[1], size_limit=int(sys.argv[2]), write_buffer_size=1 << 16)
number = 0
while True:
    cache.set(number, b"%d" % number * 20, ttl=None if number % 5 else 3600, tag=number % 7)
    cache.get(number // 2)
    if number % 3 == 0:
        cache.delete(number - 2)
    if number % 11 == 0:
        with cache.transact():
            cache.incr("transactions")
            cache.incr("and again")
    print(number, flush=True)
    number += 1
"""


def kill_a_writer(path, changes):
    """Starts a writer and kills it after so many changes. Returns the last one that it named."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(LIMIT)], stdout=subprocess.PIPE, text=True
    ) as child:
        for _ in range(changes):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            last = int(line) if line.endswith("\n") else last
    return last


@pytest.mark.parametrize("changes", [1, 50, 1000, 4000])
def test_a_kill_leaves_the_totals_right(path, changes):
    last = kill_a_writer(path, changes)
    with lsmkv.Cache(path, size_limit=LIMIT) as cache:
        assert cache.check() == []
        assert cache.stats().live_bytes <= LIMIT
        assert cache.get("transactions") == cache.get("and again")
        assert cache[last] == b"%d" % last * 20
        for number in range(2000):
            cache[("after", number)] = b"x" * 500
        assert cache.check() == []
        assert cache.stats().live_bytes <= LIMIT


def test_an_open_reads_no_entries(path, monkeypatch):
    kill_a_writer(path, 500)
    read = []
    scan = EntryStore.scan

    def counted(self, keyspace, **bounds):
        for item in scan(self, keyspace, **bounds):
            read.append(item)
            yield item

    monkeypatch.setattr(EntryStore, "scan", counted)
    monkeypatch.setattr(EntryStore, "find", lambda self, raw: read.append(raw))
    with lsmkv.Cache(path, size_limit=LIMIT) as cache:
        assert cache.stats().entries > 100
        assert len(read) == 1  # the last record of the queue


def test_everything_is_there_after_a_reopen(path):
    clock = lsmkv.ManualClock(1000.0)
    with lsmkv.Cache(path, clock=clock, codec="str") as cache:
        for number in range(100):
            cache.set(number, str(number), ttl=10 + number, tag=number % 2)
        before = cache.stats()
    clock.advance(50)
    with lsmkv.Cache(path, clock=clock, codec="str") as cache:
        assert (cache.stats().entries, cache.stats().live_bytes) == (before.entries, before.live_bytes)
        assert list(cache) == list(range(41, 100))
        assert (cache.expire(), len(cache), cache.evict(0), len(cache)) == (41, 59, 29, 30)
        assert cache.check() == []


def test_the_segments_in_use_are_known_after_a_reopen(path):
    with lsmkv.Cache(path, size_limit=LIMIT, write_buffer_size=1 << 16) as cache:
        for number in range(200):
            cache[number] = bytes(500)
        used = list(cache._store._used)
        assert len(used) > 3
    with lsmkv.Cache(path, size_limit=LIMIT, write_buffer_size=1 << 16) as cache:
        assert cache._store._used == used


@pytest.mark.parametrize("smaller", [LIMIT // 4, LIMIT * 4])
def test_another_limit_applies_from_the_next_write_on(path, smaller):
    with lsmkv.Cache(path, size_limit=LIMIT) as cache:
        for number in range(1000):
            cache[number] = b"x" * 300
    with lsmkv.Cache(path, size_limit=smaller) as cache:
        for number in range(5000):
            cache[number] = b"x" * 300
        assert cache.stats().live_bytes <= smaller
        assert cache.check() == []


def test_a_failed_write_changes_nothing(path, monkeypatch):
    with lsmkv.Cache(path) as cache:
        cache["k"] = b"1"
        with pytest.raises(ValueError, match="at most"):
            cache["x" * 70_000] = b"too long"
        assert (len(cache), cache.check()) == (1, [])
        with pytest.raises(ValueError):
            cache.set("k" * 40_000, b"", tag="t" * 40_000)
        assert (list(cache), cache.check()) == (["k"], [])


def test_check_names_what_is_wrong(path):
    with lsmkv.Cache(path) as cache:
        for number in range(5):
            cache.set(number, b"v", ttl=60, tag="t")
        store = cache._store
        entries = dict(store.index.items())
        first, second, third, *_ = entries
        store.index.delete(first)
        store.segments[0].delete(entries[second][:8])
        store.queue.delete(entries[third][:8])
        found = "\n".join(cache.check())
    assert "4 entries" in found
    assert f"{second!r} has no value" in found
    assert f"{third!r} is not in the queue" in found
    assert "expiries has a stale" in found
    assert "tags has a stale" in found


def test_a_forked_child_is_refused(path):
    with lsmkv.Cache(path) as cache:
        cache["k"] = b"1"
        child = os.fork()
        if not child:
            try:
                cache.get("k")
            except lsmkv.ForkError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

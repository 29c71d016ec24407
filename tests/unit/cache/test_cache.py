"""`lsmkv.Cache`: its calls, its limit, expiry, tags, transactions, codecs and memoization."""

import asyncio
import math
import os
from datetime import timedelta

import pytest

import lsmkv
from lsmkv.cache import store as store_module
from lsmkv_ext.entry_log import entry_size

START = 1_000_000.0
LIMIT = 1 << 16


@pytest.fixture
def clock():
    return lsmkv.ManualClock(START)


@pytest.fixture
def open_cache(path, clock):
    """Opens the cache with the clock, also again; closes it at the end."""
    opened = []

    def open_one(**arguments):
        opened.append(lsmkv.Cache(path, clock=clock, **arguments))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def cache(open_cache):
    cache = open_cache()
    yield cache
    if not cache._db.closed:
        assert cache.check() == []


# Calls -----------------------------------------------------------------------------------------------------


def test_values_come_back_until_they_are_deleted(cache):
    assert cache.set(b"a", b"1") and cache.set("a", b"2")
    assert (cache.get(b"a"), cache["a"], cache.get("b"), cache.get("b", 3)) == (b"1", b"2", None, 3)
    assert (b"a" in cache, "b" in cache, len(cache)) == (True, False, 2)
    assert (cache.delete(b"a"), cache.delete(b"a"), len(cache)) == (True, False, 1)
    with pytest.raises(KeyError):
        cache[b"a"]
    with pytest.raises(KeyError):
        del cache[b"a"]


def test_add_sets_only_what_is_missing(cache, clock):
    assert cache.add("k", b"1", ttl=10)
    assert not cache.add("k", b"2")
    assert cache["k"] == b"1"
    clock.advance(10)
    assert cache.add("k", b"3")
    assert cache["k"] == b"3"


def test_pop_returns_the_value_once(cache, clock):
    cache.set("k", b"1", ttl=5, tag="t")
    assert cache.pop_item("k") == lsmkv.CacheItem(b"1", START + 5, "t")
    assert (cache.pop("k"), cache.pop("k", b"?")) == (None, b"?")
    cache.set("k", b"1", ttl=5)
    clock.advance(5)
    assert cache.pop("k", b"?") == b"?"
    assert len(cache) == 0


def test_incr_and_decr_count_and_keep_expiry_and_tag(cache, clock):
    assert [cache.incr("n"), cache.incr("n", 10), cache.decr("n", 12), cache.decr("new", default=5)] == [1, 11, -1, 4]
    cache.set("n", 2**70, ttl=10, tag="t")
    assert cache.incr("n") == 2**70 + 1
    assert cache.item("n") == lsmkv.CacheItem(2**70 + 1, START + 10, "t")
    clock.advance(10)
    with pytest.raises(KeyError):
        cache.incr("n", default=None)
    assert cache.incr("n") == 1
    assert cache.item("n").expire_at is None


def test_incr_refuses_what_is_no_integer(cache):
    cache["k"] = b"text"
    with pytest.raises(TypeError):
        cache.incr("k")
    assert cache["k"] == b"text"


def test_iteration_is_in_key_order_and_skips_the_expired(cache, clock):
    for key in (b"b", b"a", "s", 10, 9, -300, 1.5, -2.5, None, True, ("t", 1), ("t",)):
        cache.set(key, b"")
    cache.set(b"c", b"", ttl=1)
    clock.advance(1)
    order = [b"a", b"b", -2.5, 1.5, -300, 9, 10, None, True, "s", ("t",), ("t", 1)]
    assert list(cache) == order
    assert list(reversed(cache)) == order[::-1]


def test_clear_removes_everything(cache):
    for number in range(100):
        cache.set(number, b"x" * 100, ttl=60, tag="t")
    assert cache.clear() == 100
    assert (len(cache), list(cache), cache.stats().live_bytes, cache.evict("t")) == (0, [], 0, 0)
    cache["again"] = b"1"
    assert cache["again"] == b"1"


def test_a_closed_cache_refuses_calls(cache):
    cache.close()
    cache.close()
    for call in (lambda: cache.get("k"), lambda: cache.set("k", b""), lambda: len(cache), lambda: cache.stats()):
        with pytest.raises(lsmkv.ClosedError):
            call()


def test_stats_count_since_their_reset(cache):
    cache["k"] = b"1"
    assert [cache.get("k"), cache.get("k"), cache.get("?")] == [b"1", b"1", None]
    found = cache.stats(reset=True)
    assert (found.hits, found.misses, found.entries, found.live_bytes) == (2, 1, 1, entry_size(b"sk", b"1"))
    assert round(found.hit_ratio, 3) == 0.667
    assert (cache.stats().hits, cache.stats().entries) == (0, 1)


@pytest.mark.parametrize(
    "arguments", [{"eviction": "lfu"}, {"size_limit": 10}, {"size_limit": "1 GB"}, {"nonsense": 1}]
)
def test_wrong_arguments_are_refused(path, arguments):
    with pytest.raises(lsmkv.OptionError):
        lsmkv.Cache(path, **arguments)


def test_a_second_handle_is_refused(cache, path):
    with pytest.raises(lsmkv.LockError):
        lsmkv.Cache(path)


# Expiry ----------------------------------------------------------------------------------------------------


def test_entries_expire(cache, clock):
    cache.set("short", b"1", ttl=10)
    cache.set("long", b"2", ttl=timedelta(minutes=1))
    cache.set("always", b"3")
    assert cache.item("short").expire_at == START + 10
    clock.advance(9.999)
    assert cache["short"] == b"1"
    clock.advance(0.001)
    assert ("short" in cache, cache.get("short"), cache.item("short"), cache["long"]) == (False, None, None, b"2")
    assert len(cache) == 3
    assert cache.expire() == 1
    assert (len(cache), cache.stats().expirations) == (2, 1)
    clock.advance(60)
    assert (cache.expire(), list(cache)) == (1, ["always"])


def test_the_ttl_of_the_cache_applies_unless_an_entry_has_its_own(open_cache, clock):
    cache = open_cache(ttl=10)
    cache["default"] = b"1"
    cache.set("never", b"2", ttl=math.inf)
    cache.incr("counter")
    clock.advance(10)
    assert list(cache) == ["never"]


def test_touch_moves_the_expiry(cache, clock):
    cache.set("k", b"1", ttl=10)
    assert cache.touch("k", 20)
    clock.advance(10)
    assert cache["k"] == b"1"
    assert cache.touch("k")
    clock.advance(1000)
    assert cache["k"] == b"1"
    assert cache.touch("k", 1)
    clock.advance(1)
    assert (cache.touch("k", 5), cache.expire(), len(cache)) == (False, 1, 0)


def test_writes_remove_expired_entries_bit_by_bit(cache, clock):
    for number in range(200):
        cache.set(number, b"", ttl=1)
    clock.advance(1)
    sizes = []
    for _ in range(4):
        cache.set("k", b"")
        sizes.append(len(cache))
    assert sizes == [201 - 64, 201 - 128, 201 - 192, 1]


def test_expired_entries_go_before_live_ones(open_cache, clock):
    cache = open_cache(size_limit=LIMIT, eviction="fifo")
    cache["first"] = b"x" * 1000
    while cache.stats().live_bytes < LIMIT - 3000:
        cache.set(("expires", len(cache)), b"x" * 1000, ttl=1)
    clock.advance(1)
    for number in range(20):
        cache[number] = b"x" * 1000
    assert "first" in cache
    assert cache.stats().evictions == 0


# The limit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eviction", ["lru", "fifo"])
@pytest.mark.parametrize("size", [0, 100, 5000])
def test_live_bytes_stay_within_the_limit(open_cache, eviction, size):
    cache = open_cache(size_limit=LIMIT, eviction=eviction)
    for number in range(2000):
        cache[number % 700] = os.urandom(size)
        assert cache.stats().live_bytes <= LIMIT
    assert cache.stats().live_bytes > LIMIT * 0.9 or len(cache) == 700
    assert cache.check() == []


def test_none_evicts_nothing(open_cache):
    cache = open_cache(size_limit=LIMIT, eviction="none")
    for number in range(100):
        cache[number] = b"x" * 1000
    assert len(cache) == 100
    assert cache.stats().live_bytes > LIMIT


def test_fifo_evicts_the_oldest(open_cache):
    cache = open_cache(size_limit=LIMIT, eviction="fifo")
    for number in range(200):
        cache[number] = b"x" * 1000
        cache.get(0)
    assert list(cache) == list(range(200 - len(cache), 200))


def test_lru_keeps_what_is_read(open_cache):
    cache = open_cache(size_limit=LIMIT)
    for number in range(500):
        cache[number] = b"x" * 1000
        assert cache.get(0) and (cache.get(1) or number == 0)
    # A few others may share the hash of a key that is read.
    assert {0, 1, *range(460, 500)} <= set(cache)
    assert len(cache) < 70


def test_a_value_larger_than_the_cache_is_refused_and_replaces_nothing_stale(open_cache):
    cache = open_cache(size_limit=LIMIT)
    cache["k"] = b"old"
    cache["other"] = b"1"
    assert not cache.set("k", b"x" * LIMIT)
    assert ("k" in cache, cache["other"], cache.check()) == (False, b"1", [])


def test_the_log_is_cleaned_when_live_entries_are_few(open_cache):
    """Overwrites of one key leave garbage between entries that stay."""
    cache = open_cache(size_limit=LIMIT)
    kept = {("kept", number): os.urandom(100) for number in range(100)}
    for key, value in kept.items():
        cache[key] = value
    for number in range(5000):
        cache["hot"] = b"%d" % number
        assert cache.stats().log_bytes <= cache.stats().live_bytes + LIMIT // 10 + cache._store._smallest_segment
    assert {key: cache.get(key) for key in kept} == kept
    assert cache.stats().evictions == 0


def test_segments_are_freed_and_used_again(open_cache):
    cache = open_cache(size_limit=1 << 20, write_buffer_size=1 << 16)
    seen = set()
    for number in range(20_000):
        cache[number] = b"x" * 1000
        seen.add(cache._store.segment)
        assert len(cache._store._used) < store_module.SEGMENTS
    assert len(seen) > 10
    assert cache.check() == []
    values = sum(sum(1 for _ in segment.iterator(include_value=False)) for segment in cache._store.segments)
    assert values <= len(cache) * 1.3


def test_the_folder_stays_small(open_cache, path):
    """Also while segments are used again: their dead tables go with no compaction."""
    limit = 4 << 20
    buffer = 1 << 18
    cache = open_cache(size_limit=limit, write_buffer_size=buffer, target_file_size=buffer)
    worst = 0
    for number in range(20_000):
        cache[number * 7919 % 8000] = os.urandom(1000)
        if number % 1000 == 999:
            cache._db._scheduler.wait_idle()
            worst = max(worst, sum(entry.stat().st_size for entry in os.scandir(path) if entry.name.endswith(".sst")))
    assert worst <= 1.3 * limit


def test_eviction_reads_no_values(open_cache, monkeypatch):
    cache = open_cache(size_limit=LIMIT, eviction="fifo")
    loaded = []
    monkeypatch.setattr(store_module.EntryStore, "load", lambda self, entry: loaded.append(entry))
    for number in range(1000):
        cache[number] = b"x" * 1000
    assert cache.stats().evictions > 900
    assert loaded == []


# Tags, transactions ----------------------------------------------------------------------------------------


def test_a_cache_with_an_endless_ttl_stores_no_expiries(open_cache):
    cache = open_cache(ttl=math.inf)
    cache["k"] = b""
    assert cache.item("k").expire_at is None


def test_evict_removes_the_entries_of_a_tag(cache, monkeypatch):
    monkeypatch.setattr(store_module, "REMOVALS", 7)
    for number in range(90):
        cache.set(number, b"", tag=("red", "blue", 3)[number % 3])
    cache.set(0, b"", tag="blue")  # it was red
    assert (cache.evict("red"), cache.evict("red"), cache.evict("re"), len(cache)) == (29, 0, 0, 61)
    assert cache.evict(3) == 30
    assert cache.item(0).tag == "blue"
    cache.set(0, b"")
    assert cache.item(0).tag is None
    assert cache.evict("blue") == 30


def test_evict_leaves_an_entry_whose_tag_has_changed(cache):
    cache.set(1, b"", tag="red")
    stale = next(iter(cache._store.tags))
    cache.set(1, b"", tag="blue")
    cache._store.tags.put(stale, b"")
    assert cache.evict("red") == 0
    assert cache.item(1).tag == "blue"
    cache._store.tags.delete(stale)


def test_no_entry_has_the_tag_none(cache):
    cache.set(1, b"", tag="red")
    cache.set(2, b"")
    assert cache.evict(None) == 0
    assert len(cache) == 2


def test_a_stale_tag_removes_no_other_entry(cache):
    cache.set(1, b"", tag="red")
    stale = next(iter(cache._store.tags))[:-1] + b"\x02"  # of a key that is not there
    cache._store.tags.put(stale, b"")
    assert cache.evict("red") == 1
    cache._store.tags.delete(stale)


def test_a_transaction_is_all_or_nothing(cache):
    cache["a"] = b"1"
    with pytest.raises(ZeroDivisionError), cache.transact():
        cache["b"] = b"2"
        assert (cache.incr("n"), cache["b"], cache.pop("a"), len(cache)) == (1, b"2", b"1", 2)
        raise ZeroDivisionError
    assert (list(cache), len(cache), cache["a"]) == (["a"], 1, b"1")
    assert cache.check() == []
    with cache.transact(), cache.transact():
        cache["b"] = b"2"
        cache.set("c", b"3", ttl=5, tag="t")
        assert cache.evict("t") == 1
    assert list(cache) == ["a", "b"]


def test_other_threads_see_a_transaction_only_as_a_whole(cache, in_thread):
    with cache.transact():
        cache["a"] = b"1"
        assert in_thread(lambda: cache.get("a")) is None
        cache["b"] = b"2"
    assert in_thread(lambda: (cache["a"], cache["b"])) == (b"1", b"2")


def test_a_transaction_evicts_too(open_cache):
    cache = open_cache(size_limit=LIMIT)
    with cache.transact():
        for number in range(200):
            cache[number] = b"x" * 1000
            assert cache.stats().live_bytes <= LIMIT
    assert cache.check() == []
    assert 199 in cache and 0 not in cache


@pytest.mark.parametrize("size", range(650, 900, 50))
def test_a_transaction_that_moves_an_entry_does_not_free_its_segment(open_cache, size):
    """The head passed the record of the entry that it had just moved."""
    cache = open_cache(size_limit=8192, write_buffer_size=8192)
    cache["moved"] = b""
    with cache.transact():
        cache["large"] = bytes(size)
        cache["large"] = b""
        cache["other"] = b""
    cache["last"] = b""
    assert cache.check() == []
    assert cache.get("moved") == b""


def test_large_values_are_in_the_segments(open_cache, path):
    cache = open_cache()
    cache["k"] = bytes(100_000)
    assert cache["k"] == bytes(100_000)
    assert list(path.glob("*.vlog")) == []


def test_all_segments_are_used_in_turn(open_cache):
    cache = open_cache(size_limit=8192, write_buffer_size=8192)
    used = set()
    for number in range(500):
        cache[number] = bytes(500)
        used.add(cache._store.segment)
    assert len(used) == store_module.SEGMENTS


def test_a_change_that_failed_halfway_is_not_written_with_the_rest_of_a_transaction(cache, monkeypatch):
    monkeypatch.setattr(store_module.EntryStore, "mark", lambda self, writer: 1 / 0)
    cache["k"] = b"1"
    with pytest.raises(lsmkv.Error), cache.transact():
        with pytest.raises(ZeroDivisionError):
            cache.delete("k")
        cache["other"] = b"2"
    monkeypatch.undo()
    assert list(cache) == ["k"]


def test_a_change_inside_a_change_is_refused(cache):
    def work(writer):
        for _ in range(2):  # the first refusal leaves the outer change alone
            with pytest.raises(lsmkv.Error, match="another change"):
                cache.set("k", b"")

    cache._store.change(work)
    cache["k"] = b"1"
    assert cache["k"] == b"1"


# Codecs ----------------------------------------------------------------------------------------------------

JSON = [None, True, 1.5, "text", [1, [2]], {"a": {"b": 1}}]


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        ("bytes", [b"", b"\0\xff"]),
        ("str", ["", "ä\0"]),
        ("json", JSON),
        ("msgpack", [*JSON, b"bytes"]),
        ("pickle", [*JSON, b"bytes", (1, 2), {3}]),
        (lsmkv.Codec("reversed", lambda text: text.encode()[::-1], lambda data: data[::-1].decode()), ["", "abc"]),
    ],
)
def test_codecs_return_what_they_took(open_cache, codec, values):
    if codec == "msgpack":
        pytest.importorskip("msgpack")
    cache = open_cache(codec=codec)
    for number, value in enumerate([*values, 0, 5, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, -(2**80)]):
        cache[number] = value
        assert cache[number] == value and type(cache[number]) is type(value)


def test_bytes_and_str_refuse_other_values(open_cache):
    cache = open_cache()
    for value in ("text", None, 1.5, [1]):
        with pytest.raises(TypeError):
            cache["k"] = value
    cache.close()


def test_str_refuses_bytes(open_cache):
    cache = open_cache(codec="str")
    with pytest.raises(TypeError):
        cache["k"] = b"bytes"


def test_a_cache_opens_only_with_its_codec(open_cache):
    open_cache(codec="json").close()
    with pytest.raises(lsmkv.OptionError, match="'json'"):
        open_cache(codec="pickle")
    with pytest.raises(ValueError, match="codec"):
        open_cache(codec="yaml")
    open_cache(codec="json").close()


# Memoization -----------------------------------------------------------------------------------------------


def test_a_function_runs_once_for_each_call(open_cache, clock):
    cache = open_cache(codec="json")
    calls = []

    @cache.memoize(ttl=10, tag="sums")
    def total(*args, **kwargs):
        """Adds."""
        calls.append((args, kwargs))
        return sum(args) + sum(kwargs.values())

    assert [total(1, 2), total(1, 2), total(1, b=2), total(b=2, a=1), total(a=1, b=2)] == [3] * 5
    assert calls == [((1, 2), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1})]
    assert (total.__doc__, total.__wrapped__(5)) == ("Adds.", 5)
    assert cache[total.cache_key(1, 2)] == 3
    clock.advance(10)
    assert total(1, 2) == 3
    assert len(calls) == 5
    assert cache.evict("sums") == 1


def test_equal_numbers_are_one_call_unless_typed(open_cache):
    cache = open_cache(codec="str")

    @cache.memoize(name="loose")
    def loose(number):
        return repr(number)

    @cache.memoize(name="typed", typed=True)
    def typed(number):
        return repr(number)

    assert [loose(1), loose(1.0), loose(True), loose(1.5), loose(math.inf)] == ["1", "1", "1", "1.5", "inf"]
    assert [typed(1), typed(1.0), typed(True), typed(1.5), typed("1")] == ["1", "1.0", "True", "1.5", "'1'"]


def test_ignored_arguments_and_long_ones(open_cache):
    cache = open_cache(codec="str")

    @cache.memoize(ignore={1, "session"})
    def answer(question, connection, *, session=None):
        return question[:5]

    text = "a long question " * 10_000
    assert [answer(text, 1), answer(text, 2, session=b"3"), answer(text + ".", 1)] == ["a lon"] * 3
    assert len(cache) == 2
    assert cache[answer.cache_key(text, None)] == "a lon"


def test_a_coroutine_function_runs_once(open_cache):
    cache = open_cache(codec="str")
    calls = []

    @cache.memoize()
    async def fetch(url):
        calls.append(url)
        return f"<{url}>"

    async def both():
        return [await fetch("a"), await fetch("a"), await fetch("b")]

    assert asyncio.run(both()) == ["<a>", "<a>", "<b>"]
    assert calls == ["a", "b"]


def test_memoize_needs_parentheses(cache):
    with pytest.raises(TypeError, match="parentheses"):

        @cache.memoize
        def function():
            pass

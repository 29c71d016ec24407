"""The calls of a `Cache`, for the trials of calls in the middle of calls (`reentrancy.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lsmkv

# A call on a cache within a trial, and the kinds of arguments by which an action can get into it.
CacheCall = tuple[Callable[[Any, Any], object], str]
LONG = 1e9  # a TTL in seconds


def _open(trial: Any) -> lsmkv.Cache:
    return lsmkv.Cache(trial.path("cache"), size_limit=1 << 16, clock=trial.clock, wal="write")


def open_cache(trial: Any) -> lsmkv.Cache:
    cache = _open(trial)
    cache.set(b"a", b"1", tag="letters")
    cache.set("n", 5, ttl=LONG)
    return cache


def checked(call: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    """Makes the call, then compares the records of the cache with each other."""

    def run(cache: Any, trial: Any) -> None:
        try:
            call(cache, trial)
        finally:
            cache.close()
        with _open(trial) as again:
            assert again.check() == []

    return run


def fill(cache: Any, trial: Any) -> None:
    """Writes until entries are evicted."""
    for number in range(20):
        cache.set(number, b"v" * 8000, ttl=trial.seconds(LONG), tag="filled")


def memoize(cache: Any, trial: Any) -> None:
    @cache.memoize(ttl=60)  # type: ignore[untyped-decorator]
    def length(text: str) -> bytes:
        trial.progress(0, 0)
        return b"%d" % len(text)

    assert [length("word") for _ in range(3)] == [b"4"] * 3


def transact(cache: Any, trial: Any) -> None:
    with cache.transact():
        cache.set(b"b", b"1")
        trial.progress(0, 0)
        cache.incr("n")


_CALLS: dict[str, CacheCall] = {
    "get": (lambda c, t: [c.get(key) for key in (b"a", "n", "missing")], ""),
    "__getitem__": (lambda c, t: c[b"a"], ""),
    "__contains__": (lambda c, t: b"a" in c, ""),
    "item": (lambda c, t: c.item("n"), ""),
    "set": (fill, "float"),
    "__setitem__": (lambda c, t: c.__setitem__(b"b", b"1"), ""),
    "add": (lambda c, t: [c.add(key, b"1", ttl=t.seconds(LONG)) for key in (b"a", b"b")], "float"),
    "incr": (lambda c, t: [c.incr("n") for _ in range(20)], ""),
    "decr": (lambda c, t: [c.decr("m", default=7) for _ in range(20)], ""),
    "touch": (lambda c, t: c.touch(b"a", t.seconds(LONG)), "float"),
    "delete": (lambda c, t: c.delete(b"a"), ""),
    "__delitem__": (lambda c, t: c.__delitem__(b"a"), ""),
    "pop": (lambda c, t: c.pop(b"a"), ""),
    "pop_item": (lambda c, t: c.pop_item(b"a"), ""),
    "expire": (lambda c, t: [t.clock.advance(2 * LONG), c.expire()], ""),
    "evict": (lambda c, t: c.evict("letters"), ""),
    "clear": (lambda c, t: c.clear(), ""),
    "transact": (transact, "callback"),
    "memoize": (memoize, "callback"),
    "check": (lambda c, t: c.check(), ""),
    "stats": (lambda c, t: c.stats(reset=t.flag(True)), "bool"),
    "path": (lambda c, t: c.path, ""),
    "__len__": (lambda c, t: len(c), ""),
    "__iter__": (lambda c, t: list(c), ""),
    "__reversed__": (lambda c, t: list(reversed(c)), ""),
    "__repr__": (lambda c, t: repr(c), ""),
    "close": (lambda c, t: c.close(), ""),
    "__enter__": (lambda c, t: c.__enter__(), ""),
    "__exit__": (lambda c, t: c.__exit__(None, None, None), ""),
}
CALLS: dict[str, CacheCall] = {name: (checked(call), arguments) for name, (call, arguments) in _CALLS.items()}

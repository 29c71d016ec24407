"""`lsmkv.Cache` against a dict with expiries and tags, through evictions, transactions, kills and reopens."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from soak import size

import lsmkv

OPTIONS = {"write_buffer_size": 8192, "target_file_size": 4096, "block_size": 512, "l0_compaction_trigger": 2}

keys = st.integers(0, 40) | st.sampled_from(["a", b"a", ("a", 1)])
values = st.binary(max_size=20) | st.binary(min_size=500, max_size=900) | st.integers(-5, 5)
ttls = st.none() | st.integers(1, 20)
tags = st.sampled_from([None, "red", "re", 1])


def copy_if_there(source, target):
    """A table that nobody needs any more may go away meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


class Held(NamedTuple):
    value: Any
    expire_at: float | None
    tag: Any


class CacheMachine(RuleBasedStateMachine):
    """With `limit` the cache may have lost any entry, but has no wrong one."""

    limit: int
    eviction: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lsmkv-"))
        self.clock = lsmkv.ManualClock(1000.0)
        self.model: dict[Any, Held] = {}
        self.path = self.folder / "cache"
        self.cache = self.open()

    def open(self) -> lsmkv.Cache:
        return lsmkv.Cache(self.path, size_limit=self.limit, eviction=self.eviction, clock=self.clock, **OPTIONS)

    def teardown(self) -> None:
        self.cache.close()
        shutil.rmtree(self.folder)

    def held(self, key: Any) -> Held | None:
        """What the model has, if the cache still has it too. What it has lost is gone from the model from then on."""
        held = self.model.get(key)
        if held is not None and held.expire_at is not None and held.expire_at <= self.clock.now:
            held = None
        if held is not None and self.eviction != "none" and key not in self.cache:
            held = None
        if held is None:
            self.model.pop(key, None)
        return held

    def expiry(self, ttl: int | None) -> float | None:
        return None if ttl is None else self.clock.now + ttl

    @rule(key=keys, value=values, ttl=ttls, tag=tags)
    def set(self, key, value, ttl, tag):
        assert self.cache.set(key, value, ttl=ttl, tag=tag)
        self.model[key] = Held(value, self.expiry(ttl), tag)
        assert key in self.cache

    @rule(key=keys, value=values, ttl=ttls, tag=tags)
    def add(self, key, value, ttl, tag):
        held = self.held(key)
        assert self.cache.add(key, value, ttl=ttl, tag=tag) == (held is None)
        if held is None:
            self.model[key] = Held(value, self.expiry(ttl), tag)

    @rule(key=keys)
    def get(self, key):
        held = self.held(key)
        assert self.cache.get(key, "none") == ("none" if held is None else held.value)

    @rule(key=keys, delta=st.integers(-3, 3))
    def incr(self, key, delta):
        held = self.held(key)
        if held is not None and not isinstance(held.value, int):
            with pytest.raises(TypeError):
                self.cache.incr(key, delta)
            return
        before = Held(0, None, None) if held is None else held
        assert self.cache.incr(key, delta) == before.value + delta
        self.model[key] = before._replace(value=before.value + delta)

    @rule(key=keys, ttl=ttls)
    def touch(self, key, ttl):
        held = self.held(key)
        assert self.cache.touch(key, ttl) == (held is not None)
        if held is not None:
            self.model[key] = held._replace(expire_at=self.expiry(ttl))

    @rule(key=keys)
    def pop(self, key):
        held = self.held(key)
        assert self.cache.pop(key, "none") == ("none" if held is None else held.value)
        self.model.pop(key, None)

    @rule(tag=tags.filter(lambda tag: tag is not None))
    def evict(self, tag):
        live = [key for key in list(self.model) if (held := self.held(key)) is not None and held.tag == tag]
        assert self.cache.evict(tag) >= len(live)  # expired ones count too
        for key in live:
            del self.model[key]
            assert key not in self.cache

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def expire(self):
        self.cache.expire()
        assert len(self.cache) == len(list(self.cache))

    @rule()
    def clear(self):
        self.cache.clear()
        self.model.clear()
        assert len(self.cache) == 0

    @rule(changes=st.lists(st.tuples(keys, values), max_size=5), commit=st.booleans())
    def transact(self, changes, commit):
        before = dict(self.model)
        try:
            with self.cache.transact():
                for key, value in changes:
                    self.cache[key] = value
                    self.model[key] = Held(value, None, None)
                    assert self.cache[key] == value
                if not commit:
                    raise KeyError("undo")
        except KeyError:
            self.model = before

    @rule(filler=st.integers(1, 30))
    def fill(self, filler):
        """Makes garbage of one key: the log is cleaned, segments change."""
        for number in range(filler):
            self.cache["filler"] = b"x" * 700
            self.cache.get(number)
        self.model["filler"] = Held(b"x" * 700, None, None)

    @rule()
    def reopen(self):
        self.cache.close()
        self.cache = self.open()

    @rule()
    def kill(self):
        """What a kill leaves is what is in the files now. Waits for the background, which changes them."""
        self.cache._db._scheduler.wait_idle()
        copy = shutil.copytree(self.path, self.folder / "copy", copy_function=copy_if_there)
        self.cache.close()
        shutil.rmtree(self.path)
        copy.rename(self.path)
        self.cache = self.open()

    @invariant()
    def the_totals_are_right(self):
        assert self.cache.check() == []
        if self.eviction != "none":
            assert self.cache.stats().live_bytes <= self.limit

    @invariant()
    @precondition(lambda self: self.eviction == "none")
    def nothing_is_lost(self):
        live = {key for key in list(self.model) if self.held(key) is not None}
        assert set(self.cache) == live


def machine(limit: int, eviction: str) -> Any:
    made = type(f"Cache_{eviction}", (CacheMachine,), {"limit": limit, "eviction": eviction})
    made.TestCase.settings = settings(
        max_examples=size(8, 2000),
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return made.TestCase


TestWithoutEviction = machine(1 << 14, "none")
TestLru = machine(1 << 13, "lru")
TestFifo = machine(1 << 13, "fifo")

"""A cache with several threads: the limit holds, and every answer is one that was written."""

import contextlib
import os
import random
import threading

import pytest

import lsmkv
from lsmkv.cache.store import EntryStore

LIMIT = 1 << 20
THREADS = 4


def run(*calls):
    """Runs the calls in threads at once, and raises what one of them raised."""
    errors = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("eviction", ["lru", "fifo"])
def test_the_limit_holds_under_concurrent_writers(path, eviction):
    """The totals that every change stores, and those of the index at the end."""
    over = []

    def write(seed):
        rng = random.Random(seed)
        for _ in range(3000):
            key = rng.randrange(4000)
            value = b"%d:" % key * rng.randrange(1, 200)
            cache.set(key, value, tag=key % 3, ttl=rng.choice([None, 60]))
            found = cache.get(rng.randrange(4000))
            over.extend([cache.stats().live_bytes] if cache.stats().live_bytes > LIMIT else [])
            assert found is None or len(set(found.split(b":")[:-1])) == 1

    with lsmkv.Cache(path, size_limit=LIMIT, eviction=eviction, write_buffer_size=1 << 18) as cache:
        run(*(lambda seed=seed: write(seed) for seed in range(THREADS)))
        assert over == []
        assert LIMIT * 0.95 < cache.stats().live_bytes <= LIMIT
        assert cache.check() == []


def stored_bytes(path):
    """Of the tables and the reserve. The logs of the write buffers come on top."""
    stored = 0
    for entry in os.scandir(path):
        if entry.name.endswith((".sst", ".vlog")) or entry.name == "RESERVE":
            with contextlib.suppress(FileNotFoundError):
                stored += entry.stat().st_size
    return stored


def test_the_folder_is_at_most_half_larger_than_the_limit(path):
    """With the default options of a small cache, and writers that outrun the flushes."""
    limit = 20_000_000
    values = os.urandom(1 << 20)
    most = []

    def write(seed):
        rng = random.Random(seed)
        for number in range(4000):
            start = rng.randrange(1 << 19)
            cache.set(rng.randrange(16_000), values[start : start + rng.randrange(10_000)])
            if number % 50 == 0:
                most.append(stored_bytes(path))

    with lsmkv.Cache(path, size_limit=limit) as cache:
        run(*(lambda seed=seed: write(seed) for seed in range(THREADS)))
    assert limit < max(most) <= 1.5 * limit


def test_values_that_move_are_always_found(path):
    """Gets take no lock. Entries move and segments are freed beside them, but a live key never misses."""
    hot = {("hot", number): b"%d" % number * 50 for number in range(50)}
    done = threading.Event()

    def read():
        while not done.is_set():
            for key, value in hot.items():
                assert cache.get(key) == value

    def write():
        try:
            for number in range(2_000):
                cache.set(number % 3, b"x" * 500)
        finally:
            done.set()

    with lsmkv.Cache(path, size_limit=1 << 17, eviction="fifo", write_buffer_size=1 << 16) as cache:
        for key, value in hot.items():
            cache[key] = value
        run(read, read, write)
        assert cache.stats().evictions == 0
        assert cache.check() == []


def test_a_value_that_moves_during_a_get_is_found(path, monkeypatch):
    """Its segment is freed between the lookup of its position and that of its value."""
    moved = []

    def move(store, entry):
        if not moved:
            moved.append(entry)
            store.change(leave_segment, store, entry)
        return False

    def leave_segment(writer, store, entry):
        (raw,) = store.index
        store._move(writer, raw, entry)
        writer.delete(entry[:8], keyspace=store.segments[0])

    with lsmkv.Cache(path) as cache:
        cache["k"] = b"1"
        monkeypatch.setattr(EntryStore, "is_expired", move)
        assert cache.get("k") == b"1"
        assert moved


def test_incr_loses_nothing_and_add_has_one_winner(path):
    won = []

    def count():
        for number in range(500):
            cache.incr("n")
            if cache.add(("lock", number), b""):
                won.append(number)

    with lsmkv.Cache(path) as cache:
        run(*[count] * THREADS)
        assert cache["n"] == 500 * THREADS
        assert sorted(won) == list(range(500))


def test_transactions_exclude_other_writers(path):
    def move():
        for _ in range(100):
            with cache.transact():
                cache["a"] = cache["a"] - 1
                cache["b"] = cache["b"] + 1

    def add():
        for _ in range(100):
            cache.incr("a")

    with lsmkv.Cache(path) as cache:
        cache["a"], cache["b"] = 1000, 0
        run(move, move, add)
        assert (cache["a"], cache["b"]) == (900, 200)

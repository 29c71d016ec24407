"""The absent keys of one table: what is remembered, for how long, and in how much memory."""

import random
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.table.absent_keys import AbsentKeySet

KEYS, LONGEST = 64, 256


def test_a_key_with_the_hash_of_another_is_not_held():
    keys = AbsentKeySet()
    keys.add(b"ada", 7)
    assert keys.holds(b"ada", 7)
    assert not keys.holds(b"bob", 7)
    assert not keys.holds(b"ada", 15)
    assert not keys.holds(b"ad", 7) and not keys.holds(b"adam", 7)
    keys.add(b"bob", 7)
    assert keys.holds(b"ada", 7) and keys.holds(b"bob", 7)


def test_an_empty_set_holds_nothing():
    keys = AbsentKeySet()
    assert not keys.holds(b"", 0) and not keys.holds(b"", 1) and keys.bytes == 0
    assert keys.add(b"", 0) == 0 and not keys.holds(b"", 0)
    keys.add(b"", 1)
    assert keys.holds(b"", 1)


def test_long_keys_are_not_remembered():
    keys = AbsentKeySet()
    keys.add(b"x" * (LONGEST + 1), 3)
    keys.add(b"x" * LONGEST, 3)
    assert keys.holds(b"x" * LONGEST, 3) and not keys.holds(b"x" * (LONGEST + 1), 3)


@given(st.lists(st.tuples(st.binary(max_size=5), st.integers(1, 40)), max_size=300))
def test_only_what_was_added_is_held(pairs):
    keys, grown = AbsentKeySet(), 0
    for key, hash in pairs:
        grown += keys.add(key, hash)
        assert keys.holds(key, hash)
        assert grown == keys.bytes
    held = {(key, hash) for key in {key for key, _ in pairs} for hash in range(41) if keys.holds(key, hash)}
    assert held <= set(pairs)
    assert len(held) <= KEYS


def test_memory_is_bounded():
    keys = AbsentKeySet()
    empty = keys.add(b"", 1)
    for i in range(10_000):
        keys.add(bytes(LONGEST), i)
    assert empty + (KEYS - 8) * LONGEST < keys.bytes <= empty + KEYS * LONGEST


def test_a_key_that_is_asked_for_stays_among_many_that_are_not():
    keys, rng = AbsentKeySet(), random.Random(1)
    keys.add(b"hot", 123)
    for i in range(10_000):
        if i % 20 == 0:
            assert keys.holds(b"hot", 123)
        keys.add(b"cold%d" % i, rng.randrange(1, 1 << 64))


def test_a_key_that_nobody_asks_for_any_more_goes():
    keys = AbsentKeySet()
    keys.add(b"old", 8)
    assert keys.holds(b"old", 8)
    for i in range(20):
        keys.add(b"new%d" % i, 8 * (i + 2))
    assert not keys.holds(b"old", 8)


def test_threads_share_a_set():
    keys, wrong = AbsentKeySet(), []

    def ask(seed):
        rng = random.Random(seed)
        for _ in range(3000):
            hash = rng.randrange(1, 200)
            keys.add(b"key%d" % hash, hash)
            if keys.holds(b"other%d" % hash, hash) or keys.holds(b"key%d" % hash, hash + 200):
                wrong.append(hash)

    threads = [Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

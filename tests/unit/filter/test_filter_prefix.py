"""Hashes of prefixes."""

from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.filter.prefix import prefix_hash, prefix_hashes
from lsmkv_ext.port import codecs

keys = st.binary(max_size=40)
seeds = st.integers(0, 2**64 - 1)


@given(keys, keys, st.integers(1, 20), seeds)
def test_keys_that_share_the_first_n_bytes_share_the_prefix_hash(a, b, n, seed):
    first, second = (prefix_hash(1, n, key, seed) for key in (a, b))
    assert (first is None) == (len(a) < n)
    if len(a) >= n and len(b) >= n:
        assert (first == second) == (a[:n] == b[:n])


@given(keys, keys, seeds)
def test_keys_that_share_everything_up_to_the_separator_share_the_prefix_hash(a, b, seed):
    first, second = (prefix_hash(2, ord("/"), key, seed) for key in (a, b))
    assert (first is None) == (b"/" not in a)
    if first is not None and second is not None:
        assert (first == second) == (a[: a.index(b"/")] == b[: b.index(b"/")])


def test_a_prefix_is_not_the_key_of_the_same_bytes():
    assert prefix_hash(1, 4, b"user", 5) != codecs.hash64(b"user", 5)
    assert prefix_hash(0, 4, b"user", 5) is None


lengths = st.sets(st.integers(1, 40), min_size=1, max_size=4).map(sorted)


@given(keys, lengths, seeds)
def test_several_lengths_give_the_hashes_of_each(key, lengths, seed):
    argument = int.from_bytes(bytes(lengths), "little")
    expected = [prefix_hash(1, n, key, seed) for n in lengths if len(key) >= n]
    assert prefix_hashes(3, argument, key, seed) == expected
    assert prefix_hash(3, argument, key, seed) == (expected[-1] if expected else None)


def test_one_prefix_is_a_list_of_one():
    assert prefix_hashes(1, 2, b"user") == [prefix_hash(1, 2, b"user")]
    assert prefix_hashes(2, ord("/"), b"a/b") == [prefix_hash(2, ord("/"), b"a/b")]
    assert prefix_hashes(1, 9, b"user") == prefix_hashes(0, 0, b"user") == []

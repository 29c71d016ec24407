"""Hashes of prefixes."""

from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.filter.prefix import prefix_hash
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

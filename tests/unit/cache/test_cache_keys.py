"""The encoding of keys: one for each key, in their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv.cache.keys import decode_element, decode_key, encode_element, encode_key

numbers = st.integers(-(2**1000), 2**1000)
floats = st.floats(allow_nan=False)
simple = st.none() | st.booleans() | numbers | floats | st.text() | st.binary()
keys = st.recursive(simple, lambda inner: st.lists(inner, max_size=4).map(tuple))


def same(one, other):
    """Equal, and of the same types throughout."""
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)  # 0.0 and -0.0 are two keys


@given(keys)
def test_keys_come_back(key):
    assert same(decode_key(encode_key(key)), key)


@given(keys, keys)
def test_two_keys_have_two_encodings(one, other):
    assert (encode_key(one) == encode_key(other)) == same(one, other)


@given(st.lists(keys, max_size=5), st.binary())
def test_elements_end_where_they_say(elements, rest):
    raw = b"".join(map(encode_element, elements)) + rest
    at = 0
    for element in elements:
        found, at = decode_element(raw, at)
        assert same(found, element)
    assert raw[at:] == rest


@pytest.mark.parametrize("kind", [numbers, floats, st.text(), st.binary(), st.lists(st.text()).map(tuple)])
def test_keys_of_a_type_sort_as_their_encodings(kind):
    @given(kind, kind)
    def check(one, other):
        if one != other:
            assert (one < other) == (encode_key(one) < encode_key(other))

    check()


@pytest.mark.parametrize("key", [[1], {1}, object(), bytearray(b"k"), (1, [2]), 1j])
def test_other_types_are_refused(key):
    with pytest.raises(TypeError, match="a key is"):
        encode_key(key)


def test_a_huge_integer_is_refused():
    with pytest.raises(ValueError, match="127 bytes"):
        encode_key(1 << 1016)

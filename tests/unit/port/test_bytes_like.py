"""Bytes-like keys and values, and the end of a prefix."""

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_ext.port.bytes_like import as_bytes
from lsmkv_ext.port.compare import prefix_end

keys = st.binary(max_size=6)


def test_bytes_stay_the_same_object():
    key = b"key" * 5
    assert as_bytes(key) is key


@pytest.mark.parametrize(
    "data", [bytearray(b"key"), memoryview(b"key"), memoryview(b"k-e-y")[::2], array.array("B", b"key")]
)
def test_other_bytes_like_objects_are_copied(data):
    copied = as_bytes(data)
    assert type(copied) is bytes and copied == b"key"


def test_a_subclass_of_bytes_becomes_bytes():
    class Key(bytes):
        pass

    assert type(as_bytes(Key(b"key"))) is bytes


@pytest.mark.parametrize("data", ["key", "", 5, None, ["k"]])
def test_everything_else_is_refused(data):
    with pytest.raises(TypeError, match="bytes"):
        as_bytes(data)


@given(keys, keys)
def test_the_end_of_a_prefix_is_the_smallest_key_above_all_keys_with_it(prefix, key):
    end = prefix_end(prefix)
    if end is None:
        assert prefix.strip(b"\xff") == b""
    else:
        assert prefix < end
        # Above every key with the prefix, and no smaller key is.
        assert key.startswith(prefix) == (prefix <= key < end)


def test_all_bytes_of_a_prefix_count():
    assert prefix_end(b"a\xff\xff") == b"b"
    assert prefix_end(b"\0") == b"\1"
    assert prefix_end(b"") is None and prefix_end(b"\xff\xff") is None

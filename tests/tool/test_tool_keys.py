"""Notations and formats of keys."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsmkv_tool import keys, params


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("plain", b"plain"),
        ("", b""),
        ("user:1", b"user:1"),
        ("hex:00ff", b"\x00\xff"),
        ("hex:", b""),
        ("base64:AP8=", b"\x00\xff"),
        ("quoted:a\\x00b\\\\", b"a\x00b\\"),
        ("text:hex:00", b"hex:00"),
        ("naïve", "naïve".encode()),
    ],
)
def test_a_key_in_each_notation(text, data):
    assert keys.parse(text) == data


@pytest.mark.parametrize("text", ["hex:0", "hex:zz", "base64:A", "base64:!!", "quoted:\\", "quoted:\\x1"])
def test_a_malformed_key_is_a_usage_error(text):
    with pytest.raises(click.BadParameter):
        params.KEY.convert(text, None, None)


@given(st.binary())
def test_unquote_inverts_quote(data):
    shown = keys.quote(data)
    assert shown.isascii() and shown.isprintable()
    assert keys.parse("quoted:" + shown) == data


@pytest.mark.parametrize(
    ("name", "shown"),
    [("quoted", "a\\xff"), ("hex", "61ff"), ("utf8", "a�"), ("size", 2), ("none", None)],
)
def test_formats(name, shown):
    assert keys.formatter(name)(b"a\xff") == shown
    assert keys.formatter(name)(None) is None

"""The keys of a cache as bytes: one encoding for each key, and no two keys with the same one.

A key is bytes, str, int, float, bool, None, or a tuple of them. Its first byte is its type, so `1`, `1.0`, `True` and
`"1"` are four keys. Within a type the encodings sort as the keys do. Nothing is pickled, and decoding runs no code.

    b"..."  "b", the bytes               None    "n"
    "..."   "s", UTF-8                   False   "o"      True  "p"
    int     "i", a length byte above or below 0x80 by sign, big-endian bytes
    float   "f", 8 bytes, big-endian, with the bits turned so that they sort
    tuple   "t", the elements, 0x00

In a tuple bytes and str end with 0x00, and a zero byte in them is 0x00 0xff.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MAX_INT_BYTES = 0x7F
SIGN = 1 << 63
_FLOAT = struct.Struct(">d")
_BITS = struct.Struct(">Q")


def encode_key(key: Any) -> bytes:
    """Return the bytes of a key. Raises `TypeError` for a key of another type."""
    kind = type(key)
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    if kind is str:
        return b"s" + key.encode()  # type: ignore[no-any-return]
    return encode_element(key)


def decode_key(raw: bytes) -> Any:
    """Return the key of the bytes that `encode_key` made."""
    if raw[:1] == b"b":
        return raw[1:]
    if raw[:1] == b"s":
        return raw[1:].decode()
    return decode_element(raw, 0)[0]


def encode_element(key: Any) -> bytes:
    """The bytes of a key inside a tuple, where they say themselves where they end."""
    encode = _ENCODERS.get(type(key))
    if encode is None:
        raise TypeError(f"a key is bytes, str, int, float, bool, None or a tuple of them, not {type(key).__name__}")
    return encode(key)


def decode_element(raw: bytes, at: int) -> tuple[Any, int]:
    """The element at `at`, and where the next one starts."""
    return _DECODERS[raw[at]](raw, at + 1)


def _escaped(data: bytes) -> bytes:
    return (data.replace(b"\0", b"\0\xff") if b"\0" in data else data) + b"\0"


def _encode_int(number: int) -> bytes:
    length = (number.bit_length() + 7) // 8
    if length > MAX_INT_BYTES:
        raise ValueError(f"an integer key has at most {MAX_INT_BYTES} bytes, not {length}")
    if number < 0:
        return b"i" + bytes((0x80 - length,)) + (number + (1 << 8 * length) - 1).to_bytes(length, "big")
    return b"i" + bytes((0x80 + length,)) + number.to_bytes(length, "big")


def _encode_float(number: float) -> bytes:
    (bits,) = _BITS.unpack(_FLOAT.pack(number))
    return b"f" + _BITS.pack(bits ^ (2 * SIGN - 1) if bits & SIGN else bits | SIGN)


def _encode_tuple(elements: tuple[Any, ...]) -> bytes:
    return b"t" + b"".join(map(encode_element, elements)) + b"\0"


def _decode_escaped(raw: bytes, at: int) -> tuple[bytes, int]:
    end = raw.index(b"\0", at)
    while raw[end + 1 : end + 2] == b"\xff":
        end = raw.index(b"\0", end + 2)
    return raw[at:end].replace(b"\0\xff", b"\0"), end + 1


def _decode_str(raw: bytes, at: int) -> tuple[str, int]:
    data, end = _decode_escaped(raw, at)
    return data.decode(), end


def _decode_int(raw: bytes, at: int) -> tuple[int, int]:
    length = abs(raw[at] - 0x80)
    end = at + 1 + length
    number = int.from_bytes(raw[at + 1 : end], "big")
    return (number - (1 << 8 * length) + 1 if raw[at] < 0x80 else number), end


def _decode_float(raw: bytes, at: int) -> tuple[float, int]:
    (bits,) = _BITS.unpack_from(raw, at)
    return _FLOAT.unpack(_BITS.pack(bits ^ SIGN if bits & SIGN else bits ^ (2 * SIGN - 1)))[0], at + 8


def _decode_tuple(raw: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    elements = []
    while raw[at]:
        element, at = decode_element(raw, at)
        elements.append(element)
    return tuple(elements), at + 1


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    bytes: lambda key: b"b" + _escaped(key),
    str: lambda key: b"s" + _escaped(key.encode()),
    int: _encode_int,
    float: _encode_float,
    bool: lambda key: b"p" if key else b"o",
    type(None): lambda key: b"n",
    tuple: _encode_tuple,
}
_DECODERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    ord("b"): _decode_escaped,
    ord("s"): _decode_str,
    ord("i"): _decode_int,
    ord("f"): _decode_float,
    ord("p"): lambda raw, at: (True, at),
    ord("o"): lambda raw, at: (False, at),
    ord("n"): lambda raw, at: (None, at),
    ord("t"): _decode_tuple,
}

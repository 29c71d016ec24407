"""Conversion of keys and values between bytes and text.

Notations: text, `hex:00ff`, `base64:AP8=`, `quoted:a\\x00b` (the default output format), `text:hex:literal`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable

FORMATS = ("quoted", "hex", "utf8", "size", "none")

_PRINTABLE = {i: chr(i) for i in range(32, 127)} | {ord("\\"): "\\\\"}
_QUOTED = [_PRINTABLE.get(i, f"\\x{i:02x}") for i in range(256)]
_PLAIN = re.compile(rb"[ -\[\]-~]*\Z")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(\\))|(\\)")


def quote(data: bytes) -> str:
    """Keep printable ASCII, double backslashes and write other bytes as \\xNN. Inverse of `unquote`."""
    if _PLAIN.match(data):
        return data.decode("ascii")
    return "".join([_QUOTED[b] for b in data])


def unquote(text: str) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        if match[3]:
            raise ValueError("write a backslash as \\\\")
        return bytes.fromhex(match[1].decode()) if match[1] else b"\\"

    return _ESCAPE.sub(one, os.fsencode(text))


def parse(text: str) -> bytes:
    """Convert a key in any notation to bytes. Raises ValueError if it is malformed."""
    kind, colon, rest = text.partition(":")
    if colon:
        if kind == "hex":
            return bytes.fromhex(rest)
        if kind == "base64":
            try:
                return base64.b64decode(rest, validate=True)
            except binascii.Error as error:
                raise ValueError(str(error)) from error
        if kind == "quoted":
            return unquote(rest)
        if kind == "text":
            return os.fsencode(rest)
    return os.fsencode(text)


def formatter(name: str) -> Callable[[bytes | None], str | int | None]:
    """Return the function that formats bytes: to text, to a number for `size`, to None for `none`."""
    table: dict[str, Callable[[bytes], str | int | None]] = {
        "quoted": quote,
        "hex": bytes.hex,
        "utf8": lambda data: data.decode("utf-8", "replace"),
        "size": len,
        "none": lambda data: None,
    }
    convert = table[name]
    return lambda data: None if data is None else convert(data)

"""Keys and values between the command line and bytes.

A key is given as text, `hex:00ff`, `base64:AP8=`, `quoted:a\\x00b` (what the tool prints),
or `text:hex:literal`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable

import click

FORMATS = ("quoted", "hex", "utf8", "size", "none")

_PRINTABLE = {i: chr(i) for i in range(32, 127)} | {ord("\\"): "\\\\"}
_QUOTED = [_PRINTABLE.get(i, f"\\x{i:02x}") for i in range(256)]
_PLAIN = re.compile(rb"[ -\[\]-~]*\Z")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(\\))|(\\)")


def quote(data: bytes) -> str:
    """Printable ASCII as it is, a backslash doubled, every other byte as \\xNN; `unquote` undoes it."""
    if _PLAIN.match(data):
        return data.decode("ascii")
    return "".join([_QUOTED[b] for b in data])


def unquote(text: str) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        if match[3]:
            raise ValueError("a backslash stands for itself only when doubled")
        return bytes.fromhex(match[1].decode()) if match[1] else b"\\"

    return _ESCAPE.sub(one, os.fsencode(text))


def parse(text: str) -> bytes:
    """The bytes a command-line key stands for; ValueError if its notation is broken."""
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


class Key(click.ParamType):
    name = "key"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


KEY = Key()


def formatter(name: str) -> Callable[[bytes | None], str | int | None]:
    """bytes -> what is shown: text, a number for `size`, None for `none`."""
    table: dict[str, Callable[[bytes], str | int | None]] = {
        "quoted": quote,
        "hex": bytes.hex,
        "utf8": lambda data: data.decode("utf-8", "replace"),
        "size": len,
        "none": lambda data: None,
    }
    convert = table[name]
    return lambda data: None if data is None else convert(data)

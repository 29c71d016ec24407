"""Codecs: how the values of a cache become bytes. None of them runs code that lies on the disk, except pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lsmkv_ext.port.bytes_like import as_bytes


@dataclass(frozen=True)
class Codec:
    """How values become bytes and back. `name` is stored with the cache, and a cache opens only with its codec.

    >>> import zlib
    >>> zipped = lsmkv.Codec("zlib", zlib.compress, zlib.decompress)
    >>> with lsmkv.Cache("pages.cache", codec=zipped) as cache:
    ...     cache[b"page"] = b"a" * 1000
    """

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def same_bytes(data: bytes) -> bytes:
    """The decoder of the bytes codec, which a get does not call."""
    return data


def _encode_str(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f'codec="str" takes str, not {type(text).__name__}')
    return text.encode()


def _json() -> Codec:
    dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return Codec("json", lambda value: dumps(value).encode(), json.loads)


def _msgpack() -> Codec:
    try:
        msgpack = import_module("msgpack")
    except ImportError:
        raise ImportError('codec="msgpack" needs the package msgpack: pip install lsmkv[msgpack]') from None
    return Codec("msgpack", msgpack.packb, msgpack.unpackb)


def _pickle() -> Codec:
    """Whoever can write to the directory of the cache can run code in this process."""
    pickle = import_module("pickle")
    return Codec("pickle", lambda value: pickle.dumps(value, pickle.HIGHEST_PROTOCOL), pickle.loads)


_CODECS: dict[str, Callable[[], Codec]] = {
    "bytes": lambda: Codec("bytes", as_bytes, same_bytes),
    "str": lambda: Codec("str", _encode_str, bytes.decode),
    "json": _json,
    "msgpack": _msgpack,
    "pickle": _pickle,
}


def codec_named(codec: str | Codec) -> Codec:
    """Return the codec of a name, or `codec` itself if it is one. Raises `ValueError` for an unknown name."""
    if isinstance(codec, Codec):
        return codec
    if codec not in _CODECS:
        raise ValueError(f"codec must be a Codec or one of {', '.join(map(repr, _CODECS))}, not {codec!r}")
    return _CODECS[codec]()

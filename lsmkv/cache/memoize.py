"""`Cache.memoize`: results of functions and coroutine functions, by their arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from inspect import iscoroutinefunction
from itertools import chain
from typing import TYPE_CHECKING, Any

from lsmkv.cache.keys import decode_key, encode_element

if TYPE_CHECKING:
    from lsmkv.cache.cache import Cache

MISSING: Any = object()
LONGEST_KEY = 1024  # in bytes; a digest replaces longer ones


def memoized(
    cache: Cache, name: str | None, ttl: Any, tag: Any, typed: bool, ignore: frozenset[int | str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if callable(name):
        raise TypeError("memoize is called with parentheses: @cache.memoize()")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        key_of = call_keys(f"{function.__module__}.{function.__qualname__}" if name is None else name, typed, ignore)
        wrap = _coroutine if iscoroutinefunction(function) else _function
        wrapper = wraps(function)(wrap(cache, function, key_of, ttl, tag))
        wrapper.cache_key = lambda *args, **kwargs: decode_key(key_of(args, kwargs))  # type: ignore[attr-defined]
        return wrapper

    return decorate


KeyOf = Callable[[tuple[Any, ...], dict[str, Any]], bytes]


def _function(cache: Cache, function: Callable[..., Any], key_of: KeyOf, ttl: Any, tag: Any) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        raw = key_of(args, kwargs)
        result = cache._get(raw, MISSING)
        if result is MISSING:
            result = function(*args, **kwargs)
            cache._put(raw, result, ttl, tag)
        return result

    return wrapper


def _coroutine(cache: Cache, function: Callable[..., Any], key_of: KeyOf, ttl: Any, tag: Any) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        raw = key_of(args, kwargs)
        result = cache._get(raw, MISSING)
        if result is MISSING:
            result = await function(*args, **kwargs)
            cache._put(raw, result, ttl, tag)
        return result

    return wrapper


def call_keys(name: str, typed: bool, ignore: frozenset[int | str]) -> KeyOf:
    """Return the function from the arguments of a call to its encoded key.

    The key is the tuple (name, positional arguments), with a third element (name, value, ...) of the keywords.
    """
    start = b"t" + encode_element(name)

    def key_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if ignore:
            args = tuple(value for at, value in enumerate(args) if at not in ignore)
            kwargs = {word: value for word, value in kwargs.items() if word not in ignore}
        if not typed:
            args = _by_value(args)
        raw = start + encode_element(args)
        if kwargs:
            words = tuple(chain.from_iterable(sorted(kwargs.items())))
            raw += encode_element(words if typed else _by_value(words))
        if len(raw) > LONGEST_KEY:
            raw = start + encode_element(blake2b(raw, digest_size=32).digest())
        return raw + b"\0"

    return key_of


def _by_value(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Equal numbers are one key: `True` and `1.0` become `1`, as in `functools.lru_cache`."""
    return tuple(map(_as_int, args)) if any(type(value) in (bool, float) for value in args) else args


def _as_int(value: Any) -> Any:
    return int(value) if type(value) is bool or (type(value) is float and value.is_integer()) else value

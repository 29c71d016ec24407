"""Every public name of lsmkv: functions and classes, and the public methods and properties of the classes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import lsmkv
import lsmkv.aio
import lsmkv.dbm
from lsmkv.prefixed import PrefixedBatch, PrefixedDB, PrefixedIterator, PrefixedSnapshot

PUBLIC: dict[str, Any] = {f"lsmkv.{name}": getattr(lsmkv, name) for name in lsmkv.__all__}
PUBLIC |= {f"lsmkv.prefixed.{c.__name__}": c for c in (PrefixedBatch, PrefixedDB, PrefixedIterator, PrefixedSnapshot)}
PUBLIC |= {f"lsmkv.dbm.{name}": getattr(lsmkv.dbm, name) for name in ("open", "whichdb")}

# Documented by the calls that they make awaitable.
ASYNC: dict[str, Any] = {f"lsmkv.aio.{name}": getattr(lsmkv.aio, name) for name in lsmkv.aio.__all__}


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties, also inherited ones, except those of collections.abc and builtins."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or owner.__module__.split(".")[0] not in ("lsmkv", "lsmkv_ext"):
            continue
        if name not in fields:  # fields are parameters of the class
            found = vars(owner)[name]
            yield name, found.__func__ if isinstance(found, staticmethod | classmethod) else found


def everything() -> Iterator[tuple[str, Any]]:
    for name, thing in PUBLIC.items():
        yield name, thing
        if inspect.isclass(thing):
            for member, found in members(thing):
                yield f"{name}.{member}", found

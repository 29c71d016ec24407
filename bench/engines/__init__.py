"""The engines by name. Their libraries are imported only when one is opened."""

from __future__ import annotations

from importlib import import_module

from .base import Engine, Missing, Unsupported

_WHERE = {
    "lsmkv": ("lsmkv_engine", "LsmkvEngine"),
    "rocksdb": ("rocksdb_engine", "RocksEngine"),
    "leveldb": ("leveldb_engine", "LevelEngine"),
    "lmdb": ("lmdb_engine", "LmdbEngine"),
    "dict": ("dict_engine", "DictEngine"),
    "rbloom": ("rbloom_engine", "RbloomEngine"),
}
NAMES = tuple(_WHERE)


def engine_class(name: str) -> type[Engine]:
    if name not in _WHERE:
        raise ValueError(f"no engine {name!r}; there are {', '.join(NAMES)}")
    module, cls = _WHERE[name]
    found: type[Engine] = getattr(import_module(f".{module}", __name__), cls)
    return found


def version_of(name: str) -> str:
    """The library's version; raises Missing, saying what to install, where it is not there."""
    return engine_class(name).version()


__all__ = ["NAMES", "Engine", "Missing", "Unsupported", "engine_class", "version_of"]

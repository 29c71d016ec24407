"""The engines by name. An engine imports its library when it opens."""

from __future__ import annotations

from importlib import import_module

from .base import Engine, NotInstalled, Unsupported

BEFORE = "before"  # another build of lsmkv
_ENGINES = {
    "lsmkv": ("lsmkv_engine", "LsmkvEngine"),
    BEFORE: ("lsmkv_engine", "BeforeEngine"),
    "rocksdb": ("rocksdb_engine", "RocksEngine"),
    "rocksdb-blob": ("rocksdb_engine", "RocksBlobEngine"),
    "leveldb": ("leveldb_engine", "LevelEngine"),
    "lmdb": ("lmdb_engine", "LmdbEngine"),
    "dict": ("dict_engine", "DictEngine"),
    "diskcache": ("diskcache_engine", "DiskcacheEngine"),
    "rbloom": ("rbloom_engine", "RbloomEngine"),
}
NAMES = tuple(_ENGINES)


def engine_class(name: str) -> type[Engine]:
    if name not in _ENGINES:
        raise ValueError(f"unknown engine {name!r}; known: {', '.join(NAMES)}")
    module, cls = _ENGINES[name]
    loaded: type[Engine] = getattr(import_module(f".{module}", __name__), cls)
    return loaded


def version_of(name: str) -> str:
    """The version of the engine's library. Raises NotInstalled."""
    return engine_class(name).version()


__all__ = ["BEFORE", "NAMES", "Engine", "NotInstalled", "Unsupported", "engine_class", "version_of"]

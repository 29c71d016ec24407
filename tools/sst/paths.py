"""The `sst` group, and how its commands find tables."""

from __future__ import annotations

import os

from lsmkv_tool.command import group
from lsmkv_tool.directory import Folder, is_folder, kind_of, regular
from lsmkv_tool.manifest.tree import steady

sst = group("sst", "Single tables, inside a database or lying anywhere.")


def gone(path: str, paths: tuple[str, ...]) -> bool:
    """Whether a table that a folder listed has vanished since: its owner dropped it, and no one misses it."""
    return path not in paths and not os.path.lexists(path)


def in_the_making(path: str) -> bool:
    """Whether the owner of a running database may still be writing this table, or was until a moment ago."""
    from lsmkv.lockfile import is_locked

    return bool(kind_of(os.path.basename(path))[1]) and is_locked(os.path.dirname(path) or ".")


def unnamed(path: str) -> bool:
    """Whether no manifest names the table: what is wrong with it concerns nobody."""
    number = kind_of(os.path.basename(path))[1]
    return steady(os.path.dirname(path) or ".", lambda tree: tree.state.version.level_of(number)) is None


def tables(paths: tuple[str, ...]) -> list[str]:
    """The files named, and the tables of every folder named, by number."""
    found = []
    for path in paths:
        if is_folder(path):
            folder = Folder(path)
            found += [str(folder.path / entry.name) for entry in folder.of_kind("table")]
        else:
            regular(path)
            found.append(path)
    return found

"""The `sst` group, and how its commands find tables."""

from __future__ import annotations

import os

from lsmkv_tool.command import group
from lsmkv_tool.folder import Folder, is_folder, kind_of, regular
from lsmkv_tool.tree import steady

sst = group("sst", "Single tables, inside a database or lying anywhere.")


def gone(path: str, paths: tuple[str, ...]) -> bool:
    """Whether a table that a folder listed has vanished since: its owner dropped it, and no one misses it."""
    return path not in paths and not os.path.lexists(path)


def unfinished(path: str) -> bool:
    """Whether a damaged table is one that the owner of a running database is still writing."""
    from lsmkv.lockfile import is_locked

    folder, number = os.path.dirname(path) or ".", kind_of(os.path.basename(path))[1]
    if not number or not is_locked(folder):
        return False
    return steady(folder, lambda tree: tree.state.version.level_of(number)) is None


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

"""The `sst` group, and how its commands find tables."""

from __future__ import annotations

from lsmkv_tool.command import group
from lsmkv_tool.folder import Folder, is_folder, regular

sst = group("sst", "Single tables, inside a database or lying anywhere.")


def tables(paths: tuple[str, ...]) -> list[str]:
    """The files named, and the tables of every folder named, by number."""
    found = []
    for path in paths:
        if is_folder(path):
            folder = Folder(path)
            found += [folder.file(entry.name) for entry in folder.of_kind("table")]
        else:
            regular(path)
            found.append(path)
    return found

"""The tables that a command's arguments name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from lsmkv_tool.directory import Directory, is_directory, parse_name, skip_dropped, stat_file
from lsmkv_tool.manifest.tree import load_tree
from lsmkv_tool.render.progress import Progress

T = TypeVar("T")


def table_paths(paths: Sequence[str]) -> list[str]:
    """Return the named files, and the tables of the named directories by number."""
    found = []
    for path in paths:
        if is_directory(path):
            found += Directory(path).paths("table")
        else:
            stat_file(path)
            found.append(path)
    return found


def read_tables(paths: Sequence[str], label: str, read: Callable[[str], T], damaged: Callable[[T], object]) -> list[T]:
    """Return `read(path)` for every table that `paths` name.

    In a running database, skip tables that the writer dropped or has not finished.
    """
    files = table_paths(paths)
    results = []
    with Progress(label, len(files)) as progress:
        for file in progress.over(files):
            with skip_dropped(file, paths):
                found = read(file)
                if damaged(found) and file not in paths and in_running_database(file):
                    if not in_manifest(file):
                        continue
                    found = read(file)  # the writer may have finished it since the first read
                results.append(found)
    return results


def in_running_database(path: str) -> bool:
    from lsmkv.lockfile import is_locked

    return bool(parse_name(os.path.basename(path))[1]) and is_locked(os.path.dirname(path) or ".")


def in_manifest(path: str) -> bool:
    number = parse_name(os.path.basename(path))[1]
    return load_tree(os.path.dirname(path) or ".").has(number)

"""Summaries of value logs: what is in them, and how much of it tables point to."""

from __future__ import annotations

import os
from typing import Any

from lsmkv_tool.directory import Directory, is_directory, parse_name, skip_dropped, stat_file
from lsmkv_tool.exits import open_errors
from lsmkv_tool.problems import split_place
from lsmkv_tool.render.columns import Row


def value_log_paths(path: str) -> list[str]:
    """Return the value logs of the database `path`, oldest first, or the value log file `path`."""
    if is_directory(path):
        return Directory(path).paths("value log")
    stat_file(path)
    return [path]


def used_by_tables(path: str) -> dict[int, tuple[int, int, int]]:
    """By value log of the database `path`: how many tables point into it, to how many values, and to how many bytes."""
    from lsmkv.recovery.stored_state import read_state

    used: dict[int, tuple[int, int, int]] = {}
    with open_errors(path):
        for use in (use for f in read_state(path).files() for use in f.value_logs):
            tables, values, size = used.get(use.number, (0, 0, 0))
            used[use.number] = (tables + 1, values + use.values, size + use.bytes)
    return used


def head(path: str) -> Row:
    """Read the head of a value log. Damage is reported in the row."""
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.values.reader import ValueLog

    row: dict[str, Any] = {"file": path, "number": parse_name(os.path.basename(path))[1] or None, "identity": None}
    row |= {"size": stat_file(path).st_size, "problem": None}
    try:
        with open_errors(path):
            return row | {"identity": f"{ValueLog(path, row['number'] or 0).identity:016x}"}
    except CorruptionError as error:
        return row | {"problem": split_place(str(error), path)[0]}


def summarize(path: str) -> list[Row]:
    """One row per value log. A file outside a database has no tables."""
    used = used_by_tables(path) if is_directory(path) else None
    rows = []
    for file in value_log_paths(path):
        with skip_dropped(file, [path]):
            row = head(file)
            counts: dict[str, Any] = dict.fromkeys(("tables", "values", "live", "garbage"))
            if used is not None:
                tables, values, live = used.get(row["number"], (0, 0, 0))
                counts = {"tables": tables, "values": values, "live": live, "garbage": max(row["size"] - live, 0)}
            rows.append({**row, **counts})
    return rows

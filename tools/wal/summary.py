"""Summaries of logs: records, sequence numbers, synced bytes, damage."""

from __future__ import annotations

from typing import Any

from lsmkv_tool.directory import Directory, is_directory, skip_dropped, stat_file
from lsmkv_tool.exits import open_errors
from lsmkv_tool.problems import split_place
from lsmkv_tool.render.columns import Row


def log_paths(path: str) -> list[str]:
    """Return the logs of the database `path`, oldest first, or the log file `path`."""
    if is_directory(path):
        return Directory(path).paths("log")
    stat_file(path)
    return [path]


def log_number(path: str) -> int:
    """Return the number in the log's header. A standalone file may have any name."""
    from lsmkv_ext.wal.dump import LogDump

    return int(next(LogDump(path))["number"])


def summarize(path: str) -> Row:
    """Read a log to its end. Damage is reported in the row."""
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.wal.reader import check_log

    row: dict[str, Any] = {
        "file": path,
        "number": None,
        "size": stat_file(path).st_size,
        "records": None,
        "entries": None,
        "first_seq": None,
        "last_seq": None,
        "used": None,
        "synced": None,
        "verdict": "ok",
        "problem": None,
        "offset": None,
    }
    try:
        with open_errors(path):
            row["number"] = log_number(path)
            found = check_log(path, row["number"], salvage=True)
    except CorruptionError as error:
        return row | {"verdict": "corrupt", "problem": split_place(str(error), path)[0], "offset": error.offset}
    row |= {name: found[name] for name in ("records", "entries", "first_seq", "last_seq")}
    row |= {"used": found["bytes"], "synced": found["known_synced"]}
    if found["torn_reason"] is not None:
        damaged = found["torn_offset"] < found["known_synced"]
        row |= {"verdict": "corrupt" if damaged else "torn", "problem": found["torn_reason"]}
        row["offset"] = found["torn_offset"]
    elif found["bytes"] < found["known_synced"]:
        row |= {"verdict": "corrupt", "problem": "synced records are missing", "offset": found["bytes"]}
    return row


def summarize_stable(path: str) -> Row:
    """Like `summarize`, but read again until damage stays in place: a writer may be appending there."""
    row = summarize(path)
    while row["verdict"] != "ok":
        again = summarize(path)
        if (again["verdict"], again["offset"]) == (row["verdict"], row["offset"]):
            break
        row = again
    return row


def summarize_all(path: str) -> list[Row]:
    rows = []
    for file in log_paths(path):
        with skip_dropped(file, [path]):
            rows.append(summarize_stable(file))
    return rows

"""`wal`: logs inside a database, or one lying anywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from lsmkv_tool import units
from lsmkv_tool.command import declare, group, path_argument
from lsmkv_tool.exits import FINDING, CannotOpen, Finding, opening
from lsmkv_tool.folder import Folder, is_folder, regular
from lsmkv_tool.output import Column, Output, Row, num, rare
from lsmkv_tool.progress import Progress

wal = group("wal", "Write-ahead logs.")


def logs(path: str) -> list[str]:
    """The log `path` names, or the logs of the database `path`, oldest first."""
    if not is_folder(path):
        regular(path)
        return [path]
    folder = Folder(path)
    return [str(folder.path / entry.name) for entry in folder.of_kind("log")]


def number_of(path: str) -> int:
    """A log knows its number; reading its first record tells us without trusting the name."""
    from lsmkv_ext.wal.dump import LogDump

    return int(next(LogDump(path))["number"])


def summary(path: str) -> Row:
    """One log read to its end; damage is a field, not an exception."""
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.wal.reader import check_log

    size = regular(path).st_size
    row: dict[str, Any] = {
        "file": path, "number": None, "size": size, "records": None, "entries": None, "first_seq": None,
        "last_seq": None, "used": None, "synced": None, "verdict": "ok", "problem": None, "offset": None,
    }  # fmt: skip
    try:
        with opening(path):
            row["number"] = number_of(path)
            found = check_log(path, row["number"], salvage=True)
    except CorruptionError as error:
        return row | {"verdict": "corrupt", "problem": str(error), "offset": error.offset}
    row |= {name: found[name] for name in ("records", "entries", "first_seq", "last_seq")}
    row |= {"used": found["bytes"], "synced": found["known_synced"]}
    if found["torn_reason"] is not None:
        damaged = found["torn_offset"] < found["known_synced"]
        row |= {"verdict": "corrupt" if damaged else "torn", "problem": found["torn_reason"]}
        row["offset"] = found["torn_offset"]
    elif found["bytes"] < found["known_synced"]:
        row |= {"verdict": "corrupt", "problem": "synced records are missing", "offset": found["bytes"]}
    return row


def settled(path: str) -> Row:
    """Like `summary`, but a record that the owner is just writing does not count as torn."""
    row = summary(path)
    while row["verdict"] != "ok":
        again = summary(path)
        if (again["verdict"], again["offset"]) == (row["verdict"], row["offset"]):
            break
        row = again
    return row


def summaries(path: str) -> list[Row]:
    """One row per log; a log that its owner dropped since it was listed is left out."""
    rows = []
    for file in logs(path):
        try:
            rows.append(settled(file))
        except CannotOpen:
            if file == path or os.path.lexists(file):
                raise
    return rows


LISTING = [
    Column("file", "file"),
    num("size", "size", units.size),
    num("records", "records", units.count),
    num("entries", "entries", units.count),
    num("first seq", "first_seq"),
    num("last seq", "last_seq"),
    num("used", "used", units.size),
    num("known synced", "synced", units.size),
    Column("state", "verdict"),
]


@declare(wal, "ls", example="lsmkv-tool wal ls mydb")
@path_argument("path", "DB|FILE")
def ls(out: Output, path: str) -> None:
    """List logs: records, sequence numbers, how much is known to be synced."""
    with Progress("reading"):
        rows = summaries(path)
    out.rows(rows, LISTING, empty="no logs")


def operations(out: Output, path: str, limit: int | None) -> Iterator[Row]:
    """One row per operation; a last one with `problem` where the log breaks off."""
    from lsmkv_ext.wal.dump import LogDump

    with opening(path):
        dump = LogDump(path)
        next(dump)  # its head
    n = 0
    for record in dump:
        if "operations" not in record:
            yield {"file": path, "offset": record["offset"], "problem": record["problem"]}
            return
        for op, key, value, seq in record["operations"]:
            if limit is not None and n >= limit:
                return
            n += 1
            yield {
                "file": path,
                "offset": record["offset"],
                "seq": seq,
                "op": op,
                "key": out.key(key),
                # The second half of a range tombstone is a key, not a value.
                "value": (out.key if op == "delete_range" else out.value)(value),
            }


def op_line(row: Row) -> str:
    if "problem" in row:
        return f"{row['offset']:>10}  -- {row['problem']}"
    parts = [f"{row['offset']:>10}", f"{row['seq']:>10}", f"{row['op']:<12}"]
    return "  ".join(parts + [str(row[name]) for name in ("key", "value") if row[name] is not None])


@declare(wal, example="lsmkv-tool wal dump mydb --limit 5", keys=True, values=True)
@path_argument("path", "DB|FILE")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many operations per log.")
def dump(out: Output, path: str, limit: int | None) -> None:
    """Print every operation: offset, sequence number, what, key, value. Reads up to the first damage."""
    broken = False

    def rows() -> Iterator[Row]:
        nonlocal broken
        for file in logs(path):
            try:
                for row in operations(out, file, limit):
                    if "problem" in row:
                        if settled(file)["offset"] != row["offset"]:
                            break  # the owner of a running database was just writing there
                        broken = True
                        out.exit = FINDING
                    yield row
            except CannotOpen:
                if file == path or os.path.lexists(file):
                    raise

    out.stream(rows(), op_line)
    if broken:
        out.note("lsmkv-tool: the log ends in bytes that are no record (see `wal verify`)")


@declare(wal, example="lsmkv-tool wal verify mydb")
@path_argument("path", "DB|FILE")
def verify(out: Output, path: str) -> None:
    """Check every record of the logs; exits 1 on damage and on a torn tail, naming file and offset.

    `torn` is an append that a crash cut off: opening the database drops it. `corrupt` is damage to what was
    known to be synced.
    """
    with Progress("verifying"):
        rows = summaries(path)
    if not rows and not is_folder(path):
        raise Finding(f"{path}: no log")
    columns = [
        Column("file", "file"),
        Column("state", "verdict"),
        num("records", "records", units.count),
        num("offset", "offset"),
        rare("problem", "problem"),
    ]
    out.rows(rows, columns, finding=any(row["verdict"] != "ok" for row in rows), empty="no logs")

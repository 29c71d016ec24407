"""A verification that reads a bounded number of bytes, and says what it read."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lsmkv_tool import exits
from lsmkv_tool.directory import Directory
from lsmkv_tool.manifest.check import settled_comparison
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import Row
from lsmkv_tool.sst.table import Table, filter_state, verify_file
from lsmkv_tool.tables import read_tables
from lsmkv_tool.verify import find_damage
from lsmkv_tool.wal.summary import summarize_all

LIMIT = 1 << 30


@dataclass
class Checked:
    """What was read, and what is wrong. A finding has `file`, `offset` and `problem`."""

    text: str
    bytes: int
    total: int
    findings: Sequence[Row] = field(default_factory=list)


def quick_verify(db: str, limit: int = LIMIT) -> Checked:
    """Read every file of a database of at most `limit` bytes, and of a larger one as many tables as the limit allows.

    The manifest, the logs and the footer, index and filter of every table are always checked.
    """
    total = sum(entry.size for entry in Directory(db).database_files())
    if total > limit:
        return _verify_part(db, limit, total)
    findings, report = find_damage(db, deep=False)
    text = f"all {report.files} files ({units.size(total)}) were read, and their checksums were checked"
    return Checked(text, total, total, findings)


def _verify_part(db: str, limit: int, total: int) -> Checked:
    directory = Directory(db)
    sizes = {path: os.path.getsize(path) for path in directory.paths("table")}
    chosen = choose(sizes, limit)
    _, differences = settled_comparison(db)
    findings: list[Row] = [row for row in differences if row["severity"] == "error"]
    findings += [row for row in summarize_all(db) if row["verdict"] != "ok"]

    def check(path: str) -> Sequence[Row]:
        return verify_file(path, deep=False, values=False) if path in chosen else head_problems(path)

    for rows in read_tables([db], "verifying", check, lambda rows: any(row["problem"] for row in rows)):
        findings += [row for row in rows if row["problem"]]
    read = sum(sizes[path] for path in chosen)
    text = (
        f"{units.size(read)} of {units.size(total)} were read: {len(chosen)} of {len(sizes)} tables whole, of the "
        "others footer, index and filter, the manifest, and the logs"
    )
    named = [{**row, "file": os.path.basename(row["file"])} for row in findings]
    return Checked(text, read, total, named)


def choose(sizes: dict[str, int], limit: int) -> set[str]:
    """Return as many tables, at random, as have `limit` bytes together."""
    chosen: set[str] = set()
    for path in random.sample(sorted(sizes), len(sizes)):
        if sizes[path] <= limit:
            limit -= sizes[path]
            chosen.add(path)
    return chosen


def head_problems(path: str) -> list[Row]:
    """Return what is wrong with everything but the data blocks of a table."""
    try:
        with Table(path) as table:
            found: Iterable[str] = [table.filter["problem"]] if filter_state(table.filter) == "damaged" else []
            return [{"file": path, "offset": None, "problem": f"filter unusable: {problem}"} for problem in found]
    except Exception as error:
        failure = exits.classify(error)
        if failure is None or failure.code != exits.FINDING:
            raise
        return [{"file": path, "offset": failure.offset, "problem": failure.message}]

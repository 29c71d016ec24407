"""`verify`: check every file of a database."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Directory, parse_name
from lsmkv_tool.exits import CannotOpen, open_errors
from lsmkv_tool.manifest.reader import ManifestFile
from lsmkv_tool.manifest.tree import load_tree
from lsmkv_tool.problems import split_place
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, Row, num, prose
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.wal.summary import summarize_stable

if TYPE_CHECKING:
    from lsmkv.recovery.verify import Finding, Report

COLUMNS = [FILE, num("offset", "offset"), prose("problem", "problem")]


def finding_row(finding: Finding) -> Row:
    problem, offset = split_place(finding.what, finding.file)
    return {"file": finding.file, "offset": finding.offset if offset is None else offset, "problem": problem}


def is_outdated(db: str, row: Row) -> bool:
    """Return whether a running database has since dropped the file of a finding, or finished an append to it."""
    tree = load_tree(db)
    kind, number = parse_name(row["file"])
    path = os.path.join(db, row["file"])
    if kind == "table":
        return not tree.has(number)
    if kind == "log":
        try:
            return number < tree.state.log_number or summarize_stable(path)["verdict"] == "ok"
        except CannotOpen:
            return not os.path.lexists(path)
    if kind in ("manifest", "current"):
        return ManifestFile(db).problem() is None
    return False


def find_damage(db: str, deep: bool) -> tuple[list[Row], Report]:
    """Verify a database. Return the findings that last, and the report with the totals and notes."""
    import lsmkv
    from lsmkv.lockfile import is_locked

    with Progress("verifying", sized=True) as bar, open_errors(db):

        def progress(file: str, done: int, total: int) -> None:
            bar.advance_to(done, total, file)

        report = lsmkv.verify(db, deep=deep, progress=progress)
    rows = [finding_row(f) for f in report.findings]
    if rows and is_locked(db):
        outdated = [row for row in rows if is_outdated(db, row)]
        rows = [row for row in rows if row not in outdated]
        report.notes += [f"{row['file']} was changed by the running database" for row in outdated]
    return rows, report


@declare("verify", example="lsmkv-tool verify mydb --deep", table=True)
@path_argument()
@click.option("--deep", is_flag=True, help="Also check every key: order, index, hash tags, filter.")
def verify(out: Output, db: str, deep: bool) -> None:
    """Read and check every file of DB. Exits 1 with file and offset of any damage.

    Changes nothing. A torn log tail is a finding too, although opening the database would just drop it.
    """
    Directory(db).database_files()
    began = time.perf_counter()
    rows, report = find_damage(db, deep)
    seconds = time.perf_counter() - began

    def after(printer: Printer) -> None:
        if rows:
            printer.line(f"\n{len(rows)} finding(s) in {report.files} files")
        for note in report.notes:
            printer.sentence(note, "note: ")

    checked = f"{report.files} files, {units.size(report.bytes)}, {units.count(report.entries)} entries"
    out.rows(
        rows,
        COLUMNS,
        finding=bool(rows),
        empty=f"{db}: {checked}, no damage",
        after=after,
        files=report.files,
        bytes=report.bytes,
        entries=report.entries,
        notes=report.notes,
        seconds=seconds,
    )

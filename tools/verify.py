"""`verify`: every checksum, every order, every filter against its keys, the manifest against the files."""

from __future__ import annotations

import os
import time

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Folder, kind_of
from lsmkv_tool.exits import CannotOpen, opening
from lsmkv_tool.manifest.reader import Reading
from lsmkv_tool.manifest.tree import steady
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Column, Human, Output, Row, num
from lsmkv_tool.render.progress import Progress
from lsmkv_tool.wal.summary import settled


def outdated(db: str, row: Row) -> bool:
    """Whether a finding on a running database is only its owner at work: a file dropped, or appended to."""
    state = steady(db, lambda tree: tree.state)
    kind, number = kind_of(row["file"])
    path = os.path.join(db, row["file"])
    if kind == "table":
        return state.version.level_of(number) is None
    if kind == "log":
        try:
            return number < state.log_number or settled(path)["verdict"] == "ok"
        except CannotOpen:
            return not os.path.lexists(path)
    if kind in ("manifest", "current"):
        return Reading(db).problem() is None
    return False


@declare(example="lsmkv-tool verify mydb --deep")
@path_argument()
@click.option("--deep", is_flag=True, help="Also every key: order, index, hash tags, and against its filter.")
def verify(out: Output, db: str, deep: bool) -> None:
    """Read every file of DB and check all that can be checked; exits 1 naming file and offset of any damage.

    Changes nothing. A torn tail of a log, which opening the database would drop, is a finding too.
    """
    import lsmkv
    from lsmkv.lockfile import is_locked

    folder = Folder(db)
    if all(entry.kind == "other" for entry in folder.entries()):
        raise CannotOpen(f"{db} holds no database", file=db)
    began = time.perf_counter()
    with Progress("verifying") as bar, opening(db):

        def progress(file: str, done: int, total: int) -> None:
            bar.total = total
            bar.step(done - bar.done, file)

        report = lsmkv.verify(db, deep=deep, progress=progress)
    seconds = time.perf_counter() - began
    rows = [{"file": f.file, "offset": f.offset, "problem": f.what} for f in report.findings]
    if rows and is_locked(db):
        passed = [row for row in rows if outdated(db, row)]
        rows = [row for row in rows if row not in passed]
        report.notes += [f"{row['file']} was changed by the database's owner meanwhile" for row in passed]

    def after(human: Human) -> None:
        if rows:
            human.line(f"\n{len(rows)} finding(s) in {report.files} files")
        for note in report.notes:
            human.line(f"note: {note}")

    looked = f"{report.files} files, {units.size(report.bytes)}, {units.count(report.entries)} entries"
    out.rows(
        rows,
        [Column("file", "file"), num("offset", "offset"), Column("problem", "problem")],
        finding=bool(rows),
        empty=f"{db}: {looked}, no damage",
        after=after,
        files=report.files,
        bytes=report.bytes,
        entries=report.entries,
        notes=report.notes,
        seconds=seconds,
    )

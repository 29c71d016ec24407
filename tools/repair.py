"""`repair`: rebuild a database from its readable files."""

from __future__ import annotations

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Directory
from lsmkv_tool.exits import open_errors
from lsmkv_tool.problems import split_place
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.render.progress import Progress


def loss_text(loss: str) -> str:
    """Return `name: problem` without the path of the file, which has that name."""
    problem, offset = split_place(loss, loss.partition(":")[0])
    return problem if offset is None else f"{problem}, at offset {offset}"


@declare("repair", example=("lsmkv-tool repair mydb", "lsmkv-tool repair mydb --apply --yes"), writes=True)
@path_argument()
@click.option("--apply", is_flag=True, help="Repair the database. Without it, only print what would be done.")
def repair(out: Output, db: str, apply: bool) -> None:
    """Rebuild the manifest of DB from its tables and logs. A dry run unless --apply is given.

    Keeps what it can read of damaged files, and moves these files to the directory `lost`. Exits 1 if data is
    lost, and in a dry run if there is anything to repair.
    """
    import lsmkv

    Directory(db).database_files()
    if apply:
        out.confirm(f"Repair {db}?")
    with Progress("repairing"), open_errors(db):
        report = lsmkv.repair(db, apply=apply)

    def show(printer: Printer) -> None:
        for action in report.actions:
            printer.sentence(action, indent="  ")
        for loss in report.losses:
            printer.sentence(loss_text(loss), "lost: ", "  ")
        if not report.actions and not report.losses:
            printer.line(f"{db} needs no repair")
        elif not apply:
            printer.line("\nNothing was changed. Run again with --apply to repair.")

    out.result(report.to_dict(), show, finding=bool(report.losses) or (report.needed and not apply))

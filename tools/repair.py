"""`repair`: a database that does not open becomes one that does, from what can be read."""

from __future__ import annotations

import click

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import Folder
from lsmkv_tool.exits import CannotOpen, opening
from lsmkv_tool.render.output import Human, Output
from lsmkv_tool.render.progress import Progress


@declare(example=("lsmkv-tool repair mydb", "lsmkv-tool repair mydb --apply --yes"), changes=True)
@path_argument()
@click.option("--apply", is_flag=True, help="Do it. Without, only say what would be done.")
def repair(out: Output, db: str, apply: bool) -> None:
    """Rebuild the manifest of DB from its tables and logs; a dry run unless --apply is given.

    Damaged files are set aside in the folder `lost`, never deleted; what can still be read of them is kept.
    Exits 1 if something is lost for good, and as a dry run if there is anything to repair.
    """
    import lsmkv

    if all(entry.kind == "other" for entry in Folder(db).entries()):
        raise CannotOpen(f"{db} holds no database", file=db)
    if apply:
        out.confirm(f"Repair {db}?")
    with Progress("repairing"), opening(db):
        report = lsmkv.repair(db, apply=apply)
    data = report.to_dict()

    def show(human: Human) -> None:
        for action in report.actions:
            human.line(action)
        for loss in report.losses:
            human.line(f"lost: {loss}")
        if not report.actions and not report.losses:
            human.line(f"{db} needs no repair")
        elif not apply:
            human.line("\nNothing was changed; --apply does it.")

    out.result(data, show, finding=bool(report.losses) or (report.needed and not apply))

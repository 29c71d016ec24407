"""The command `report`."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import refuse_existing
from lsmkv_tool.exits import open_errors
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.report.page import build_page
from lsmkv_tool.report.quick_verify import LIMIT


@declare("report", example="lsmkv-tool report mydb -o report.html")
@path_argument()
@click.option("-o", "--output", "target", type=click.Path(), required=True, help="HTML file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--verify",
    "limit",
    type=params.SIZE,
    default=units.size(LIMIT),
    show_default=True,
    help="Bytes to read and check. Of a larger database, a random part of the tables is read whole.",
)
@params.KEYSPACE
def report(out: Output, db: str, target: str, force: bool, limit: int, keyspace: str) -> None:
    """Write a self-contained HTML page about DB: whether it is healthy, and what it holds, costs and saves.

    The page begins with a verdict: damage that a quick verify finds, then warnings. It shows the tree and the
    filters of one keyspace; by default that is the default keyspace, or the largest one if that is empty. Exits 1
    if there is damage.
    """
    if not force:
        refuse_existing(target, "overwrite it with --force")
    text, verdict = build_page(db, keyspace, limit)
    with open_errors(target), open(target, "w", encoding="utf-8") as file:
        file.write(text)
    data: dict[str, Any] = {
        "file": target,
        "bytes": len(text.encode()),
        "verdict": verdict.name,
        "problems": [problem.as_json() for problem in verdict.problems],
        "checked_bytes": verdict.checked.bytes,
    }

    def show(printer: Printer) -> None:
        printer.line(f"{target}: {units.size(data['bytes'])}")
        printer.sentence(f"{verdict.title}: {verdict.checked.text}")
        for problem in verdict.problems:
            printer.sentence(problem.text, "- ")

    out.result(data, show, finding=verdict.name == "damaged")

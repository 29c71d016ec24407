"""`db properties`: print named properties."""

from __future__ import annotations

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_reader
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer


@declare("db properties", example=("lsmkv-tool db properties mydb", "lsmkv-tool db properties mydb lsmkv.levels"))
@path_argument()
@click.argument("names", nargs=-1)
@params.KEYSPACE
def properties(out: Output, db: str, names: tuple[str, ...], keyspace: str) -> None:
    """Print the named properties, or all of them. Exits 1 if a name is unknown."""
    from lsmkv.stats.introspect import PROPERTIES

    with open_reader(db) as handle:
        tree = in_keyspace(handle, keyspace)
        found = {name: tree.property(name) for name in names or PROPERTIES}

    def show(printer: Printer) -> None:
        for name, value in found.items():
            text = "unknown property" if value is None else value
            printer.line(f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}")

    unknown = any(value is None for value in found.values())
    if out.mode == "text":
        out.result({}, show, finding=unknown)
    else:
        out.rows([{"name": name, "value": value} for name, value in found.items()], [], finding=unknown)

"""`filter rebuild`: replace the filters of tables."""

from __future__ import annotations

import time
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.db.handle import in_keyspace, open_writer
from lsmkv_tool.exits import Usage
from lsmkv_tool.manifest.tree import load_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.render.progress import Progress


@declare("filter rebuild", example="lsmkv-tool filter rebuild mydb --bits 14,12,9 --yes", writes=True)
@path_argument()
@click.option(
    "--bits",
    type=params.BITS,
    help="Bits per key: a number, a list from L0 on, or auto; by default the stored option.",
)
@click.option(
    "--kind",
    type=click.Choice(["bloom", "fuse", "auto"]),
    help="Kind of filter, as the option `filter`; by default the stored option.",
)
@click.option("--level", type=click.IntRange(0, 6), help="Rebuild only this level.")
@params.KEYSPACE
def rebuild(out: Output, db: str, bits: Any, kind: str | None, level: int | None, keyspace: str) -> None:
    """Rebuild the filters that differ from the wanted kind or bits per key. Data blocks are copied unchanged."""
    before = load_tree(db, keyspace)
    options: dict[str, Any] = {} if bits is None else {"bits_per_key": list(bits) if isinstance(bits, tuple) else bits}
    if kind is not None:
        options["filter"] = kind
    if level is not None and not before.levels[level]:
        raise Usage(f"L{level} has no tables")
    out.confirm(f"Rewrite the filters of {db}?")
    began = time.perf_counter()
    with Progress("rebuilding filters"), open_writer(db, **({} if keyspace else options)) as handle:
        tree = in_keyspace(handle, keyspace)
        if keyspace and options:
            tree.set_options(**options)
        tree.rebuild_filters(level)
    after = load_tree(db, keyspace)
    old, new = ({meta.number for meta in tree.metas} for tree in (before, after))
    data: dict[str, Any] = {
        "path": db,
        "rebuilt": len(new - old),
        "memory_before": before.filter_bytes,
        "memory_after": after.filter_bytes,
        "seconds": time.perf_counter() - began,
    }

    def show(printer: Printer) -> None:
        printer.line(
            f"{data['rebuilt']} filters rebuilt in {units.duration(data['seconds'] * 1e9)}; "
            f"memory {units.size(before.filter_bytes)} before, {units.size(after.filter_bytes)} after"
        )

    out.result(data, show)

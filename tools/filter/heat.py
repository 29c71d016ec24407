"""`filter heat`: draw the fill of a filter's blocks."""

from __future__ import annotations

import math
from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.directory import refuse_existing
from lsmkv_tool.exits import Finding, Usage, open_errors
from lsmkv_tool.filter.tables import TableRef, with_tables
from lsmkv_tool.manifest.tree import Tree
from lsmkv_tool.render import heat_map, units
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer

MAX_BLOCKS = 1 << 16
PICTURE = 1200  # pixels: its width


def select_table(tables: list[TableRef], number: int | None) -> TableRef:
    """Return the table `number`, or the one with the largest filter."""
    if number is None:
        if not tables:
            raise Finding("no tables, hence no filters")
        return max(tables, key=lambda ref: ref.meta.filter_bytes if ref.meta else 0)
    for ref in tables:
        if ref.number == number:
            return ref
    raise Usage(f"the database has no table {number}")


@declare("filter heat", example=("lsmkv-tool filter heat mydb", "lsmkv-tool filter heat table.sst --png heat.png"))
@path_argument("path", "DB|FILE")
@click.option("--table", "number", type=int, help="Table number in DB; by default the table with the largest filter.")
@click.option("--width", type=click.IntRange(8, 400), default=64, show_default=True, help="Columns of the map.")
@click.option("--height", type=click.IntRange(1, 200), default=12, show_default=True, help="Rows of the map.")
@click.option(
    "--png", "picture", type=click.Path(), help="Also write the map to this PNG file, about 1200 pixels wide."
)
@params.KEYSPACE
def heat(
    out: Output, path: str, number: int | None, width: int, height: int, picture: str | None, keyspace: str
) -> None:
    """Draw how full each 512-bit block of a filter is.

    A healthy filter is even. A bright spot is a block shared by many keys, which causes false positives. A fuse filter
    is drawn by the same blocks, and has a little less than half of its bits set.
    """

    def read(tables: list[TableRef], _: Tree | None) -> tuple[TableRef, list[float], dict[str, Any]]:
        ref = select_table(tables, number)
        with ref.open() as table:
            return ref, table.fills(MAX_BLOCKS), table.filter

    ref, fills, found = with_tables(path, keyspace, read)
    if not fills:
        raise Finding(f"{ref.path} has no usable filter: {found['problem']}", ref.path)
    if picture:
        refuse_existing(picture, "filter heat does not overwrite files")
        with open_errors(picture), open(picture, "xb") as file:
            file.write(heat_map.png(fills, PICTURE))
    mean = sum(fills) / len(fills)
    deviation = math.sqrt(sum((fill - mean) ** 2 for fill in fills) / len(fills))
    data = {
        "file": ref.path,
        "kind": found["kind"],
        "blocks": found["bytes"] // 64,
        "mean": mean,
        "deviation": deviation,
        "lowest": min(fills),
        "highest": max(fills),
        "over_60_percent": sum(fill > 0.6 for fill in fills) / len(fills),
        "cells": heat_map.cells(fills, width * height),
        "png": picture,
    }

    def show(printer: Printer) -> None:
        draw = heat_map.coloured if printer.colour else heat_map.plain
        for line in draw(fills, width, height):
            printer.line(line)
        printer.line()
        printer.fields(
            [
                ("file", ref.path),
                ("filter", found["kind"]),
                ("blocks", units.count(data["blocks"])),
                ("fill", f"{units.percent(mean, 1)} mean, {units.percent(deviation, 1)} standard deviation"),
                ("range", f"{units.percent(min(fills), 1)} to {units.percent(max(fills), 1)}"),
                ("over 60 %", units.percent(data["over_60_percent"], 2)),
            ]
        )
        if not printer.colour:
            ends = f"{units.percent(heat_map.LOW, 0)} to {units.percent(heat_map.HIGH, 0)}"
            printer.line(f"scale      {heat_map.SHADES!r} from {ends}")

    out.result(data, show)

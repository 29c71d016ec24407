"""`db levels`: draw the tree."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import params
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.manifest.levels import level_rows
from lsmkv_tool.manifest.tree import load_tree
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import LEVEL, fixed, num
from lsmkv_tool.render.key_axis import draw_spans
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer

MIN_PICTURE, MAX_PICTURE = 8, 64
COLUMNS = [
    LEVEL,
    num("files", "files", rank=2),
    num("size", "bytes", units.size),
    num("entries", "entries", units.count),
    num("deletes", "deletes", units.count, rank=1),
    fixed("bits/key", "bits_per_key", 1, rank=1),
    num("filters", "filter_bytes", units.size),
    fixed("wasted reads", "expected_wasted_reads", 4),
]


def draw_level(row: dict[str, Any], width: int) -> str:
    bar = draw_spans([(span["start"], span["stop"]) for span in row["spans"]], width)
    return f"L{row['level']} |{bar}|{size_text(row)}"


def size_text(row: dict[str, Any]) -> str:
    return f" {units.counted(row['files'], 'file'):>10}  {units.size(row['bytes']):>9}"


def picture_width(rows: list[dict[str, Any]], limit: int | None) -> int:
    """Return how wide a picture fits beside the sizes."""
    beside = len("L0 ||") + max(len(size_text(row)) for row in rows)
    return MAX_PICTURE if limit is None else max(MIN_PICTURE, min(MAX_PICTURE, limit - beside))


@declare("db levels", example="lsmkv-tool db levels mydb", key_format=True, table=True)
@path_argument()
@click.option(
    "--width", type=click.IntRange(8, 400), help="Width of the picture; by default as the terminal, at most 64."
)
@params.KEYSPACE
def levels(out: Output, db: str, width: int | None, keyspace: str) -> None:
    """Draw the files of each level as bars over the key range, with sizes and filters.

    `wasted reads` is the expected number of table reads per lookup of an absent key.
    """
    rows = level_rows(load_tree(db, keyspace))

    def draw(printer: Printer) -> None:
        if rows:
            for row in rows:
                printer.line(draw_level(row, width or picture_width(rows, printer.width)))
            printer.line()

    out.rows(rows, COLUMNS, before=draw, empty="no tables yet")

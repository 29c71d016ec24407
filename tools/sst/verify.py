"""`sst verify`: check tables."""

from __future__ import annotations

import itertools

import click

from lsmkv_tool.command import declare
from lsmkv_tool.render.columns import FILE, PROBLEM, Column, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import verify_file
from lsmkv_tool.tables import read_tables

COLUMNS = [
    FILE,
    Column("state", "verdict"),
    num("offset", "offset"),
    PROBLEM,
]


@declare("sst verify", example="lsmkv-tool sst verify table.sst --deep", table=True)
@click.argument("paths", metavar="DB|FILE...", type=click.Path(), nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also check key order, counts, and every key against the filter.")
def verify(out: Output, paths: tuple[str, ...], deep: bool) -> None:
    """Check the checksums of tables, and with --deep their contents. Exits 1 with file and offset of any damage."""
    found = read_tables(paths, "verifying", lambda file: verify_file(file, deep), lambda rows: rows[0]["problem"])
    rows = list(itertools.chain.from_iterable(found))
    out.rows(rows, COLUMNS, empty="no tables", finding=any(row["verdict"] != "ok" for row in rows))

"""`sst ls`: list tables."""

from __future__ import annotations

from typing import Any

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare
from lsmkv_tool.directory import stat_file
from lsmkv_tool.problems import split_place
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import FILE, PROBLEM, Column, fixed, key, num, optional
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Table
from lsmkv_tool.tables import read_tables

PROPERTIES = (
    "entries",
    "deletes",
    "range_tombstones",
    "blocks",
    "smallest",
    "largest",
    "min_seq",
    "max_seq",
    "bits_per_key",
    "compression",
    "ratio",
    "keyspace",
)


def table_row(out: Output, path: str) -> dict[str, Any]:
    """Return one table as a row. If damage keeps it from opening, the row has a `problem`."""
    row: dict[str, Any] = {"file": path, "size": stat_file(path).st_size, "problem": None}
    try:
        table = Table(path)
    except Exception as error:
        failure = exits.classify(error)
        if failure is None or failure.code != exits.FINDING:
            raise
        return row | dict.fromkeys(PROPERTIES) | {"problem": split_place(failure.message, path)[0]}
    with table:
        return row | {
            "entries": table.entries,
            "deletes": table.deletes,
            "range_tombstones": len(table.range_tombstones),
            "blocks": table.blocks,
            "smallest": out.key(table.smallest),
            "largest": out.key(table.largest),
            "min_seq": table.min_seq,
            "max_seq": table.max_seq,
            "bits_per_key": table.filter["bits_per_key"],
            "compression": table.properties["compression"] or "none",
            "ratio": table.ratio,
            "keyspace": table.raw.keyspace or None,
        }


COLUMNS = [
    FILE,
    num("size", "size", units.size),
    num("entries", "entries", units.count),
    num("deletes", "deletes", units.count, rank=5),
    num("blocks", "blocks", units.count, rank=6),
    Column("codec", "compression", rank=4),
    num("ratio", "ratio", units.ratio, rank=5),
    fixed("bits/key", "bits_per_key", 1, rank=3),
    num("seq", "max_seq", rank=7),
    key("first key", "smallest", rank=2),
    key("last key", "largest", rank=2),
    optional("keyspace", "keyspace", rank=1),
    PROBLEM,
]


@declare("sst ls", example=("lsmkv-tool sst ls mydb", "lsmkv-tool sst ls table.sst"), key_format=True, table=True)
@click.argument("paths", metavar="DB|FILE...", type=click.Path(), nargs=-1, required=True)
def ls(out: Output, paths: tuple[str, ...]) -> None:
    """List tables: sizes, entries, key range, compression, filter bits, and the keyspace they were written for."""
    rows = read_tables(paths, "opening", lambda file: table_row(out, file), lambda row: row["problem"])
    out.rows(rows, COLUMNS, empty="no tables", finding=any(row["problem"] for row in rows))

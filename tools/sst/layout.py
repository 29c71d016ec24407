"""`sst layout` and `sst blocks`: print the sections and data blocks of a table file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lsmkv_tool import exits
from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import EXPIRES, PROBLEM, Column, key, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Table, op_name

BLOCK_COLUMNS = [
    num("offset", "offset"),
    num("stored", "stored"),
    num("raw", "raw", rank=1),
    num("entries", "entries"),
    Column("codec", "codec"),
    key("up to key", "separator"),
    PROBLEM,
]
ENTRY_COLUMNS = [key("key", "key"), num("seq", "seq"), Column("op", "op"), num("value", "value_size"), EXPIRES]


@declare("sst layout", example="lsmkv-tool sst layout table.sst", key_format=True, table=True)
@path_argument("file", "FILE")
def layout(out: Output, file: str) -> None:
    """Print the sections of a table and each data block: offset, stored size, raw size."""
    with Table(file) as table:
        sections, blocks = table.sections(), table.block_rows(out.key)

    def rows() -> Iterator[dict[str, Any]]:
        for section in sections:
            yield section
            if section["part"] == "data":
                for i, block in enumerate(blocks):
                    branch = "`-" if i + 1 == len(blocks) else "|-"
                    yield {**block, "part": f"  {branch} block {block['block']}"}

    columns = [Column("part", "part"), *BLOCK_COLUMNS]
    if out.mode == "jsonl":
        out.rows([*sections, *blocks], columns)
    else:
        data = {"file": file, "sections": sections, "blocks": blocks}
        out.result(data, lambda printer: printer.table(columns, rows()))


@declare(
    "sst blocks",
    example=("lsmkv-tool sst blocks table.sst", "lsmkv-tool sst blocks table.sst --block 0"),
    key_format=True,
    table=True,
)
@path_argument("file", "FILE")
@click.option("--block", type=click.IntRange(min=0), help="List the entries of this block.")
def blocks(out: Output, file: str, block: int | None) -> None:
    """List the data blocks, or the entries of one block."""
    with Table(file) as table:
        rows = table.block_rows(out.key)
        if block is None:
            damaged = any(row["problem"] for row in rows)
            out.rows(rows, [num("block", "block"), *BLOCK_COLUMNS], empty="no data blocks", finding=damaged)
            return
        if block >= len(rows):
            raise exits.Usage(f"no block {block}: {file} has {len(rows)} blocks, numbered from 0")
        entries = list(table.block_entries(block))
    shown = [
        {
            "key": out.key(key),
            "seq": seq,
            "op": op_name(value),
            "value_size": None if value is None else len(value),
            "expires": units.moment(expiry),
        }
        for key, value, seq, expiry in entries
    ]
    out.rows(shown, ENTRY_COLUMNS)
